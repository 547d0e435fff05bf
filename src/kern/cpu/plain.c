/* SPDX-License-Identifier: Apache-2.0
 * The kernels in plain width. */
#include "kern/cpu/vec_plain.h"

#define ISA_NAME "plain"

#include "kern/cpu/all.h"
