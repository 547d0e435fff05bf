/* SPDX-License-Identifier: Apache-2.0
 * The cpu kind: the oracle's loops for every op that has no faster form. */
#include "kern/card.h"

sn_status kern_cpu_open(const sn_card_opts *opts, sn_card **ret)
{
    *ret = kern_card_create("cpu", kern_ref_impls(), opts);
    return SN_OK;
}
