/* SPDX-License-Identifier: Apache-2.0
 *
 * 1F1B unit by unit: each stage takes its forwards and backwards in their order as soon as what
 * they need has come. What pipeline.c says in a formula, pictures and traces take from here, and a
 * test holds the two together. */
#include "sim/sim.h"

#include <math.h>
#include <stdlib.h>

typedef struct stage {
    double free;
    int64_t forwards, backwards;
} stage;

typedef struct walk {
    int stages;
    int64_t micros;
    double *done[2]; /* [stages][micros] forward, backward: when it ended, < 0: not yet */
    stage *stage;
} walk;

/* The next of a stage; false: it has done all. A stage keeps as many forwards ahead as stages come
 * after it. */
static bool next_of(const walk *w, int k, bool *ret_backward, int64_t *ret_micro)
{
    const stage *s = &w->stage[k];
    int64_t warm = SN_MIN((int64_t) (w->stages - 1 - k), w->micros);
    *ret_backward =
        s->forwards == w->micros || (s->forwards > warm && s->forwards - warm > s->backwards);
    *ret_micro = *ret_backward ? s->backwards : s->forwards;
    return s->backwards < w->micros;
}

/* When what a unit needs is there; < 0: nobody knows yet. */
static double ready_at(const walk *w, int k, bool backward, int64_t micro, double hop)
{
    int from = backward ? k + 1 : k - 1;
    if (from < 0)
        return 0;
    if (from == w->stages)
        return w->done[0][k * w->micros + micro];
    double there = w->done[backward][from * w->micros + micro];
    return there < 0 ? there : there + hop;
}

double sn_sim_walk(int stages, int64_t micros, double forward, double backward, double hop,
                   sn_sim_visit visit, void *ctx)
{
    walk w = {
        .stages = stages, .micros = micros, .stage = sn_alloc((size_t) stages * sizeof(*w.stage))};
    double end = 0;
    for (int b = 0; b < 2; b++) {
        w.done[b] = sn_alloc((size_t) stages * (size_t) micros * sizeof(double));
        for (int64_t i = 0; i < stages * micros; i++)
            w.done[b][i] = -1;
    }
    for (int k = 0; k < stages; k++)
        w.stage[k] = (stage){0};
    for (bool moved = true; moved;) {
        moved = false;
        for (int k = 0; k < stages; k++) {
            sn_sim_unit u = {.stage = k};
            double ready;
            if (!next_of(&w, k, &u.backward, &u.micro) ||
                (ready = ready_at(&w, k, u.backward, u.micro, hop)) < 0)
                continue;
            u.from = fmax(w.stage[k].free, ready);
            u.to = u.from + (u.backward ? backward : forward);
            w.done[u.backward][k * micros + u.micro] = w.stage[k].free = u.to;
            w.stage[k].forwards += !u.backward;
            w.stage[k].backwards += u.backward;
            end = fmax(end, u.to);
            moved = true;
            if (visit)
                visit(ctx, &u);
        }
    }
    free(w.done[0]);
    free(w.done[1]);
    free(w.stage);
    return end;
}
