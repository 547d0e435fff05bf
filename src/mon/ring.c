/* SPDX-License-Identifier: Apache-2.0
 * The ring of completed steps in a control page: a reader that polls sees each step once; and the
 * view of a step from the core that cards share. */
#include "mon/mon.h"

#include <math.h>
#include <string.h>

void sn_page_step_done(sn_page *page, int64_t step)
{
    sn_page_step *row = &page->ring[step % SN_PAGE_RING];
    __atomic_store_n(&row->step, -1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* nobody may see new fields under the old number */
    row->loss = page->loss;
    row->grad_norm = page->grad_norm;
    row->lr = page->lr;
    row->val_loss = page->val_step == step + 1 ? page->val_loss : NAN;
    row->step_ns = page->step_ns;
    row->tokens = page->tokens;
    memcpy(row->time_ns, page->time_ns, sizeof row->time_ns);
    row->comm_ns = page->comm_ns;
    row->flops = page->flops;
    row->bytes_host = page->bytes_host;
    row->bytes_net = page->bytes_net;
    __atomic_store_n(&row->step, step, __ATOMIC_RELEASE);
    __atomic_store_n(&page->step, step + 1, __ATOMIC_RELEASE);
}

void sn_page_past(sn_page *page, const sn_page_step *past, int steps)
{
    for (int i = 0; i < steps; i++)
        if (past[i].step >= 0)
            page->ring[past[i].step % SN_PAGE_RING] = past[i];
}

bool sn_page_step_read(const sn_page *page, int64_t step, sn_page_step *ret)
{
    if (step < 0)
        return false;
    const sn_page_step *row = &page->ring[step % SN_PAGE_RING];
    if (__atomic_load_n(&row->step, __ATOMIC_ACQUIRE) != step)
        return false;
    *ret = *row;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return __atomic_load_n(&row->step, __ATOMIC_RELAXED) == step;
}

void sn_metrics_of_core(sn_step_metrics *row, double cards_per_core)
{
    int64_t *t = row->time_ns;
    double busy = (double) (t[SN_TIME_COMPUTE] + t[SN_TIME_OPTIMIZER]);
    double waits = (double) (t[SN_TIME_COLLECTIVE] + t[SN_TIME_PIPELINE]);
    if (cards_per_core <= 1 || busy <= 0 || waits <= 0)
        return;
    double up = SN_MIN(cards_per_core, (double) row->step_ns / busy);
    double down = ((double) row->step_ns - busy * up) / waits;
    t[SN_TIME_OTHER] = 0; /* standing still in the middle of computing: somebody else's turn */
    for (int k = 0; k < SN_TIME_OTHER; k++) {
        bool wait = k == SN_TIME_COLLECTIVE || k == SN_TIME_PIPELINE;
        t[k] = (int64_t) ((double) t[k] * (wait ? down : up));
    }
}
