/* SPDX-License-Identifier: Apache-2.0
 * The kernels in AVX-512 width. */
#include "kern/cpu/vec_avx512.h"

#define ISA_NAME "avx512"

#include "kern/cpu/all.h"
