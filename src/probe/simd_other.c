/* SPDX-License-Identifier: Apache-2.0
 * Elsewhere: two 128-bit FMA units, what an Arm server core has at least. */
#include "probe/parts.h"

probe_simd probe_simd_here(void)
{
    return (probe_simd){2 * 2 * 4, 2 * 2 * 4};
}
