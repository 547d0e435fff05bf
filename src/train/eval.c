/* SPDX-License-Identifier: Apache-2.0
 *
 * eval — the loss on held-out text, in nats per byte, so that tokenizers compare.
 *
 *   held-out  [ window 0 | window 1 | … | last, padded with ignored targets ]
 *
 * Windows of one sequence that do not overlap predict each token but the first exactly once. Fewer
 * windows, on the way, are spread evenly over the text. What runs is the forward part of the
 * training program itself: the same parameters in the same places under the same split. */
#include "train/parts.h"

static double run_pass(train_worker *w, int64_t windows, sn_status *status)
{
    int64_t time_ns[SN_TIME_KINDS] = {0};
    train_feed_held(&w->feed, w->tokens, w->window, windows);
    *status = sn_exec_run_forward(w->exec, train_deadline(w), time_ns);
    if (*status < 0)
        return 0;
    const float *scalars = sn_exec_slot(w->exec, w->program->scalars);
    return (double) scalars[0] * (double) (w->job->batch * w->job->gpt.sequence);
}

sn_status train_evaluate(train_worker *w, int64_t windows_max, double *ret_loss)
{
    int64_t sequence = w->job->gpt.sequence, batch = w->job->batch, bytes = 0;
    int64_t all = train_held_windows(w->tokens, sequence), n = SN_MIN(all, windows_max);
    double sum = 0;
    for (int64_t done = 0; done < n;) {
        int64_t k = 0;
        for (; k < batch && done < n; k++, done++) {
            int64_t begin = done * all / n * sequence;
            w->window[k] = begin / sequence;
            int64_t have = SN_MIN(sequence, sn_tokens_held(w->tokens) - 1 - begin);
            bytes += sn_tokens_bytes(w->tokens, true, begin + 1, have);
        }
        sn_status status;
        sum += run_pass(w, k, &status);
        if (status < 0)
            return sn_fail_in(status, "evaluation");
    }
    *ret_loss = sum / (double) SN_MAX(1, bytes);
    return SN_OK;
}
