/* SPDX-License-Identifier: Apache-2.0
 *
 * check — the contract of a schedule as one executable function: walks all members' schedules
 * together, in any order that the waits allow, and asserts the invariants of algo.h. */
#include "algo/build.h"

#include <stdlib.h>

typedef struct walk {
    const sn_algo_group *g;
    const sn_algo_call *c;
    const sn_sched *all;
    int n;
    int *at;            /* [n] next step */
    int *round;         /* [n] last one signalled */
    int *sent, *taken;  /* [n · n] messages from i to k so far */
    unsigned char *out; /* [n · out_count] written */
    int64_t out_count;
} walk;

static int64_t buf_count(const walk *w, int member, sn_buf buf)
{
    const sn_algo_call *c = w->c;
    bool root = member == c->root;
    bool blocks_in = c->op == SN_REDUCE_SCATTER || c->op == SN_ALL_TO_ALL || c->op == SN_SCATTER;
    bool blocks_out = c->op == SN_ALL_GATHER || c->op == SN_ALL_TO_ALL || c->op == SN_GATHER;
    bool no_in = c->op == SN_BROADCAST || (c->op == SN_SCATTER && !root);
    bool no_out = c->op == SN_GATHER && !root;
    switch (buf) {
    case SN_BUF_IN:
        return no_in ? 0 : c->count * (blocks_in ? w->n : 1);
    case SN_BUF_OUT:
        return no_out ? 0 : c->count * (blocks_out ? w->n : 1);
    case SN_BUF_TMP:
        return w->all[member].tmp_count;
    case SN_BUF_WIDE:
        return w->all[member].wide_count;
    case SN_BUF_NOTE:
        break;
    }
    return SN_ALGO_NOTE_BYTES / (int64_t) sn_dtype_bytes(c->dtype);
}

static void check_place(const walk *w, int me, sn_place p, int64_t count)
{
    SN_ASSERT(p.member >= 0 && p.member < w->n && p.at >= 0 && count > 0);
    SN_ASSERT(p.at + count <= buf_count(w, p.member, p.buf));
    if (p.member == me)
        return;
    SN_ASSERT(w->g->host[p.member] == w->g->host[me]);
    SN_ASSERT(p.buf != SN_BUF_TMP);
    SN_ASSERT(w->round[p.member] >= 1);
    if (p.buf != SN_BUF_NOTE) {
        SN_ASSERT(w->all[me].shared);
        SN_ASSERT(w->at[p.member] < w->all[p.member].steps); /* its owner is still in the call */
    }
}

static void written(walk *w, sn_place p, int64_t count)
{
    for (int64_t k = 0; p.buf == SN_BUF_OUT && k < count; k++)
        w->out[w->out_count * p.member + p.at + k] = 1;
}

static bool waits(const walk *w, int me, const sn_step *s)
{
    if (s->member != SN_ALL) {
        SN_ASSERT(s->member >= 0 && s->member < w->n && s->round <= w->all[s->member].rounds);
        SN_ASSERT(w->g->host[s->member] == w->g->host[me]);
        return w->round[s->member] < s->round;
    }
    for (int i = 0; i < w->n; i++)
        if (w->g->host[i] == w->g->host[me] && w->round[i] < s->round)
            return true;
    return false;
}

/* The k-th send from me to member: the count of its k-th receive from me. */
static void check_pair(const walk *w, int me, const sn_step *send)
{
    const sn_sched *peer = &w->all[send->member];
    int skip = w->sent[me * w->n + send->member];
    for (int i = 0; i < peer->steps; i++) {
        const sn_step *r = &peer->step[i];
        if (r->kind == SN_STEP_RECV && r->member == me && skip-- == 0) {
            SN_ASSERT(r->count == send->count);
            return;
        }
    }
    SN_ASSERT(!"every send has its receive");
}

/* Is everything that I receive up to step `to` sent by now? */
static bool arrived(walk *w, int me, int to)
{
    for (int i = w->n; i-- > 0;) {
        int want = 0;
        for (int k = 0; k < to; k++)
            want += w->all[me].step[k].kind == SN_STEP_RECV && w->all[me].step[k].member == i;
        w->taken[i * w->n + me] = want;
        if (w->sent[i * w->n + me] < want)
            return false;
    }
    return true;
}

/* One step of one member; false when it has to wait. */
static bool advance(walk *w, int me)
{
    const sn_sched *s = &w->all[me];
    if (w->at[me] == s->steps)
        return false;
    const sn_step *step = &s->step[w->at[me]];
    if (step->kind == SN_STEP_WAIT && waits(w, me, step))
        return false;
    if (step->kind == SN_STEP_FENCE && !arrived(w, me, w->at[me]))
        return false;
    if (step->kind == SN_STEP_SIGNAL) {
        SN_ASSERT(step->round == w->round[me] + 1 && step->round <= s->rounds);
        w->round[me] = step->round;
    }
    for (int i = 0; i < step->srcs; i++)
        check_place(w, me, s->place[step->src + i], step->count);
    for (int i = 0; i < step->dsts; i++) {
        check_place(w, me, s->place[step->dst + i], step->count);
        written(w, s->place[step->dst + i], step->count);
    }
    if (step->kind == SN_STEP_SEND || step->kind == SN_STEP_RECV)
        SN_ASSERT(w->g->host[step->member] != w->g->host[me]);
    if (step->kind == SN_STEP_SEND) {
        check_pair(w, me, step);
        w->sent[me * w->n + step->member]++;
    }
    w->at[me]++;
    return true;
}

static void check_end(walk *w)
{
    for (int i = 0; i < w->n; i++) {
        SN_ASSERT(w->at[i] == w->all[i].steps); /* nobody waits for ever */
        SN_ASSERT(arrived(w, i, w->all[i].steps));
        SN_ASSERT(w->all[i].rounds == w->all[0].rounds && w->all[i].shared == w->all[0].shared);
        for (int k = 0; k < w->n; k++)
            SN_ASSERT(k == i || w->sent[k * w->n + i] == w->taken[k * w->n + i]);
        bool given = w->c->op == SN_BARRIER || (w->c->op == SN_BROADCAST && i == w->c->root);
        for (int64_t k = 0; k < buf_count(w, i, SN_BUF_OUT) && !given; k++)
            SN_ASSERT(w->out[w->out_count * i + k]);
    }
}

void sn_sched_check(const sn_algo_group *g, const sn_algo_call *c, const sn_sched *all)
{
    size_t n = (size_t) g->members;
    walk w = {.g = g, .c = c, .all = all, .n = g->members};
    w.out_count = buf_count(&w, c->root, SN_BUF_OUT);
    w.at = sn_alloc(n * sizeof(int));
    w.round = sn_alloc(n * sizeof(int));
    w.sent = sn_alloc(n * n * sizeof(int));
    w.taken = sn_alloc(n * n * sizeof(int));
    w.out = sn_alloc(n * (size_t) w.out_count + 1);
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < g->members; i++)
            while (advance(&w, i))
                moved = true;
    }
    check_end(&w);
    free(w.at);
    free(w.round);
    free(w.sent);
    free(w.taken);
    free(w.out);
}
