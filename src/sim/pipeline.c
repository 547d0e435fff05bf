/* SPDX-License-Identifier: Apache-2.0
 *
 * How long m micro-batches take through p stages. 1F1B and its interleaved form stand still for
 * p - 1 micro-batches (of one of v parts); where weight gradients are units of their own they fill
 * what is left between the others: with the memory of 1F1B a stage holds back p - 1 of them (H1),
 * with twice that 2 (p - 1) (H2). Qi et al., "Zero bubble pipeline parallelism", ICLR 2024.
 * `hop` delays the first micro-batch on its way down and the last one on its way up. Plain 1F1B has
 * nothing to do while a gradient and an activation cross: it stands still for half of that. */
#include "sim/private.h"

#include <math.h>

double sn_sim_pipeline(sn_sim_schedule s, int p, int virtual_stages, int64_t m, double forward,
                       double backward, double weights, double hop, double *ret_idle)
{
    double busy = (double) m * (forward + backward + weights), each = forward + backward + weights;
    if (s == SN_SIM_1F1B)
        each /= virtual_stages;
    else if (s == SN_SIM_ZB_H1)
        each = forward + backward - weights;
    else
        each = forward + backward - 2 * weights;
    double bubble = (p - 1) * (fmax(0, each) + 2 * hop);
    if (s == SN_SIM_1F1B && virtual_stages == 1 && p > 1)
        bubble += (double) m * hop;
    *ret_idle = bubble / (busy + bubble);
    return busy + bubble;
}
