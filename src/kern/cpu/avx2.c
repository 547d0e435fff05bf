/* SPDX-License-Identifier: Apache-2.0
 * The kernels in AVX2 width. */
#include "kern/cpu/vec_avx2.h"

#define ISA_NAME "avx2"

#include "kern/cpu/all.h"
