/* SPDX-License-Identifier: Apache-2.0
 *
 * 1F1B: a stage first runs forward as many micro-batches as there are stages after it, then one
 * forward and one backward in turn, then drains. It holds the activations of at most `stages`
 * micro-batches.
 *
 *   stage 0 of 3, 4 micro-batches:  F0 F1 F2 B0 F3 B1 B2 B3
 *
 * Source: Narayanan et al., "Memory-efficient pipeline-parallel DNN training", ICML 2021. */
#include "plan/private.h"

int plan_order(int warm, int micros, bool forward_only, plan_unit *ret)
{
    int n = 0, forward = 0, backward = 0;
    warm = forward_only ? micros : SN_MIN(warm, micros);
    while (forward < warm)
        ret[n++] = (plan_unit){false, forward++};
    if (forward_only)
        return n;
    while (forward < micros) {
        ret[n++] = (plan_unit){false, forward++};
        ret[n++] = (plan_unit){true, backward++};
    }
    while (backward < micros)
        ret[n++] = (plan_unit){true, backward++};
    return n;
}
