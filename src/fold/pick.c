/* SPDX-License-Identifier: Apache-2.0 */
#include "fold/fold.h"

const sn_fold_table *sn_fold_kernels(void)
{
    return &sn_fold_plain;
}
