/* SPDX-License-Identifier: Apache-2.0
 *
 * check — the contract of a schedule as one executable function: walks all members' schedules
 * together, in any order that the waits allow, and asserts the invariants of algo.h. */
#include "algo/build.h"

#include <stdlib.h>
#include <string.h>

typedef struct walk {
    const sn_algo_group *g;
    const sn_algo_call *c;
    const sn_sched *all;
    int n;
    int *at;           /* [n] next step */
    int *round;        /* [n] last one signalled */
    int *sent, *taken; /* [n · n] sends and receives from i to k so far */
    int *missing;      /* [n] receives so far that nothing was sent for yet */
    int **recv;        /* [n · n] steps of k that receive from i, in order */
    int *recvs;
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
    SN_ASSERT(p.buf != SN_BUF_TMP && p.buf != SN_BUF_WIDE);
    SN_ASSERT(w->round[p.member] >= 1);
    if (p.buf != SN_BUF_NOTE) {
        SN_ASSERT(w->all[me].shared);
        SN_ASSERT(w->at[p.member] < w->all[p.member].steps); /* its owner is still in the call */
    }
}

static void written(walk *w, sn_place p, int64_t count)
{
    if (p.buf == SN_BUF_OUT)
        memset(w->out + w->out_count * p.member + p.at, 1, (size_t) count);
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

/* The k-th send from me to a member: as much, and as wide, as its k-th receive from me. */
static void check_pair(const walk *w, int me, const sn_step *send)
{
    int pair = me * w->n + send->member, k = w->sent[pair];
    const sn_sched *mine = &w->all[me], *peer = &w->all[send->member];
    SN_ASSERT(k < w->recvs[pair]); /* every send has its receive */
    const sn_step *recv = &peer->step[w->recv[pair][k]];
    bool wide = mine->place[send->src].buf == SN_BUF_WIDE;
    SN_ASSERT(recv->count == send->count);
    SN_ASSERT(wide == (peer->place[recv->dst].buf == SN_BUF_WIDE));
}

/* Where each member receives from each other one. */
static void find_receives(walk *w)
{
    int n = w->n;
    for (int pass = 0; pass < 2; pass++) { /* count, then list */
        for (int k = 0; k < n; k++) {
            for (int i = 0; i < w->all[k].steps; i++) {
                const sn_step *s = &w->all[k].step[i];
                int pair = s->member * n + k;
                if (s->kind != SN_STEP_RECV)
                    continue;
                SN_ASSERT(s->member >= 0 && s->member < n);
                if (pass == 1)
                    w->recv[pair][w->recvs[pair]] = i;
                w->recvs[pair]++;
            }
        }
        for (int pair = 0; pair < n * n && pass == 0; pair++) {
            if (w->recvs[pair] > 0)
                w->recv[pair] = sn_alloc((size_t) w->recvs[pair] * sizeof(int));
            w->recvs[pair] = 0;
        }
    }
}

static void check_step(const walk *w, int me, const sn_step *step)
{
    const sn_place *place = w->all[me].place;
    bool net = step->kind == SN_STEP_SEND || step->kind == SN_STEP_RECV;
    if (net)
        SN_ASSERT(w->g->host[step->member] != w->g->host[me]);
    if (step->kind == SN_STEP_COPY)
        SN_ASSERT(place[step->src].buf != SN_BUF_WIDE && place[step->dst].buf != SN_BUF_WIDE);
    if (step->kind == SN_STEP_SEND)
        SN_ASSERT(place[step->src].member == me);
    if (step->kind == SN_STEP_RECV)
        SN_ASSERT(place[step->dst].member == me);
    if (step->kind == SN_STEP_REDUCE)
        SN_ASSERT(step->srcs <= SN_MAX(w->n, 2) && step->dsts <= w->n);
    if (step->kind == SN_STEP_SIGNAL)
        SN_ASSERT(step->round == w->round[me] + 1 && step->round <= w->all[me].rounds);
}

static void move(walk *w, int me, const sn_step *step)
{
    int to = me * w->n + step->member, from = step->member * w->n + me;
    if (step->kind == SN_STEP_SEND && w->sent[to]++ < w->taken[to])
        w->missing[step->member]--;
    if (step->kind == SN_STEP_RECV && ++w->taken[from] > w->sent[from])
        w->missing[me]++;
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
    if (step->kind == SN_STEP_FENCE && w->missing[me] > 0)
        return false;
    check_step(w, me, step);
    if (step->kind == SN_STEP_SIGNAL)
        w->round[me] = step->round;
    for (int i = 0; i < step->srcs; i++)
        check_place(w, me, s->place[step->src + i], step->count);
    for (int i = 0; i < step->dsts; i++) {
        check_place(w, me, s->place[step->dst + i], step->count);
        written(w, s->place[step->dst + i], step->count);
    }
    if (step->kind == SN_STEP_SEND)
        check_pair(w, me, step);
    move(w, me, step);
    w->at[me]++;
    return true;
}

static void check_end(walk *w)
{
    for (int i = 0; i < w->n; i++) {
        SN_ASSERT(w->at[i] == w->all[i].steps); /* nobody waits for ever */
        SN_ASSERT(w->missing[i] == 0);
        SN_ASSERT(w->all[i].rounds == w->all[0].rounds && w->all[i].shared == w->all[0].shared);
        for (int k = 0; k < w->n; k++)
            SN_ASSERT(k == i || w->sent[k * w->n + i] == w->taken[k * w->n + i]);
        bool given = w->c->op == SN_BARRIER || (w->c->op == SN_BROADCAST && i == w->c->root);
        int64_t n = buf_count(w, i, SN_BUF_OUT);
        for (int64_t k = 0; k < n && !given; k++)
            SN_ASSERT(w->out[w->out_count * i + k]);
    }
}

static void done(walk *w)
{
    for (int pair = 0; pair < w->n * w->n; pair++)
        free(w->recv[pair]);
    free(w->at);
    free(w->round);
    free(w->sent);
    free(w->taken);
    free(w->missing);
    free(w->recv);
    free(w->recvs);
    free(w->out);
}

void sn_sched_check(const sn_algo_group *g, const sn_algo_call *c, const sn_sched *all)
{
    size_t n = (size_t) g->members;
    walk w = {.g = g, .c = c, .all = all, .n = g->members};
    w.out_count = buf_count(&w, c->root, SN_BUF_OUT);
    w.at = sn_alloc(n * sizeof(int));
    w.round = sn_alloc(n * sizeof(int));
    w.missing = sn_alloc(n * sizeof(int));
    w.sent = sn_alloc(n * n * sizeof(int));
    w.taken = sn_alloc(n * n * sizeof(int));
    w.recv = sn_alloc(n * n * sizeof(int *));
    w.recvs = sn_alloc(n * n * sizeof(int));
    w.out = sn_alloc(n * (size_t) w.out_count + 1);
    find_receives(&w);
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < g->members; i++)
            while (advance(&w, i))
                moved = true;
    }
    check_end(&w);
    done(&w);
}
