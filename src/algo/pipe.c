/* SPDX-License-Identifier: Apache-2.0 */
#include "algo/pipe.h"

static int lag(const algo_pipe *p)
{
    return p->works && p->segments > 1 ? 2 : 1;
}

static bool valid(const algo_pipe *p, int segment)
{
    return segment >= 0 && segment < p->segments;
}

static void post(const algo_pipe *p, int slot)
{
    for (int k = 0; k < p->stages; k++)
        if (valid(p, slot - lag(p) * k))
            p->post(p->ctx, slot - lag(p) * k, k);
}

/* On what came in slot `slot`. */
static void work(const algo_pipe *p, int slot)
{
    for (int k = 0; k < p->stages && p->work != NULL; k++)
        if (valid(p, slot - lag(p) * k))
            p->work(p->ctx, slot - lag(p) * k, k);
}

static void enter(const algo_pipe *p, int segment)
{
    if (p->enter != NULL && valid(p, segment))
        p->enter(p->ctx, segment);
}

void algo_pipe_run(algo_build *b, const algo_pipe *p)
{
    int each = lag(p);
    int through =
        p->stages > 0 ? each * p->stages - 1 : 0; /* slots from a segment's first to last */
    enter(p, 0);
    for (int slot = 0; slot <= p->segments + through; slot++) {
        post(p, slot);
        enter(p, slot + 1);
        if (each == 2)
            work(p, slot - 1);
        if (p->leave != NULL && valid(p, slot - through - 1))
            p->leave(p->ctx, slot - through - 1);
        algo_fence(b);
        if (each == 1)
            work(p, slot);
        if (p->signals && valid(p, slot - through))
            algo_signal(b);
    }
}

/* In use from slot s - 1 to slot s + 2 · adding. */
int algo_pipe_window(int segments, int adding)
{
    return SN_MIN(segments, 2 * adding + 2);
}
