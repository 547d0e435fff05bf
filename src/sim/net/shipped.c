/* SPDX-License-Identifier: Apache-2.0
 *
 * What tool/dcqcn found: the policy's weights and DCQCN's tuned parameters. */
#include "private.h"

const sn_roce_policy *sn_roce_policy_shipped(void)
{
    static const sn_roce_policy policy = {{
#include "weights.h"
    }};
    return &policy;
}

void sn_roce_use_tuned(sn_roce_opts *opts)
{
    opts->control = SN_ROCE_DCQCN;
#include "tuned.h"
}
