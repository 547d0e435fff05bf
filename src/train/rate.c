/* SPDX-License-Identifier: Apache-2.0
 *
 * rate — the learning rate of a step: a linear climb to lr, then half a cosine down to lr_min.
 * Source: Loshchilov & Hutter, "SGDR: stochastic gradient descent with warm restarts", ICLR 2017.
 */
#include <math.h>

#include "train/train.h"

double sn_job_lr(const sn_job *job, int64_t step)
{
    double lr = job->optimizer.lr, least = job->optimizer.lr_min;
    int64_t warmup = job->optimizer.warmup, falling = job->steps - 1 - warmup;
    if (step < warmup)
        return lr * (double) (step + 1) / (double) warmup;
    if (falling <= 0)
        return lr;
    double done = SN_MIN(1.0, (double) (step - warmup) / (double) falling);
    return least + (lr - least) * 0.5 * (1 + cos(M_PI * done));
}
