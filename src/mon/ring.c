/* SPDX-License-Identifier: Apache-2.0
 * The ring of completed steps in a control page: a reader that polls sees each step once. */
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
    row->flops = page->flops;
    row->bytes_host = page->bytes_host;
    row->bytes_net = page->bytes_net;
    __atomic_store_n(&row->step, step, __ATOMIC_RELEASE);
    __atomic_store_n(&page->step, step + 1, __ATOMIC_RELEASE);
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
