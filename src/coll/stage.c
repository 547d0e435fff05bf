/* SPDX-License-Identifier: Apache-2.0
 *
 * stage — for buffers outside the arena: what peers touch of them lies in the stage instead, an
 * image of the chunk in the segment; everything else stays where it is.
 *
 *   flat all_reduce of two, member 0:    IN  [ mine | peer's ]      [ · | image ]  filled before
 *                                        OUT [ mine | peer's ]      [ · | image ]  emptied after
 *
 * Which ranges those are follows from the schedules of all members on the host, so it works for
 * every algorithm: elements that a peer touches, or that one step takes together with such, or, in
 * chunks, across the border of two blocks (which lie apart in the caller's buffer).
 *
 * Images are small enough for two chunks to stay in the L2 cache. */
#include "coll/coll_private.h"

#include <stdlib.h>
#include <string.h>

/* ---- the pool ---- */

static int find_units(const sn_coll *c, int n)
{
    int run = 0;
    for (int i = 0; i < c->units; i++) {
        run = c->unit_used[i] ? 0 : run + 1;
        if (run == n)
            return i + 1 - n;
    }
    return -1;
}

/* A quarter of what is left when every group yet to come has the smallest. */
void coll_stage_take(sn_coll_group *g)
{
    sn_coll *c = g->coll;
    int spare = (c->units_free - (COLL_BLOCKS - c->blocks_used)) / 4, at = -1;
    int n = COLL_STAGE_MAX / COLL_STAGE_MIN;
    while (n > 1 && (n > spare || (at = find_units(c, n)) < 0))
        n /= 2;
    if (n == 1)
        at = find_units(c, 1);
    SN_ASSERT(at >= 0); /* there are as many units as blocks */
    memset(c->unit_used + at, true, (size_t) n * sizeof(bool));
    c->units_free -= n;
    g->stage_at = at;
    g->stage_units = n;
    g->stage = c->pool + (size_t) at * COLL_STAGE_MIN;
    g->image = (size_t) n * COLL_STAGE_MIN / COLL_IMAGES;
}

void coll_stage_give(sn_coll_group *g)
{
    if (g->stage == NULL)
        return;
    memset(g->coll->unit_used + g->stage_at, false, (size_t) g->stage_units * sizeof(bool));
    g->coll->units_free += g->stage_units;
    g->stage = NULL;
}

/* ---- which ranges ---- */

typedef struct touch {
    int64_t at, end;
    bool staged;
} touch;

typedef struct touches {
    touch *t;
    size_t n, cap;
} touches;

static void add(touches *s, touch t)
{
    if (s->n == s->cap) {
        size_t cap = s->cap > 0 ? 2 * s->cap : 64;
        touch *more = sn_alloc(cap * sizeof(touch));
        if (s->n > 0)
            memcpy(more, s->t, s->n * sizeof(touch));
        free(s->t);
        s->t = more;
        s->cap = cap;
    }
    s->t[s->n++] = t;
}

/* What `who` does to my buffers by its schedule. */
static void collect(const sn_coll_group *g, const sn_algo_call *c, const sn_sched *s, int who,
                    touches side[2])
{
    for (int i = 0; i < s->steps; i++) {
        const sn_step *step = &s->step[i];
        for (int k = 0; k < step->srcs + step->dsts; k++) {
            const sn_place *p =
                &s->place[k < step->srcs ? step->src + k : step->dst + k - step->srcs];
            if (p->member != g->me || (p->buf != SN_BUF_IN && p->buf != SN_BUF_OUT))
                continue;
            bool apart = p->at / c->count != (p->at + step->count - 1) / c->count;
            add(&side[p->buf == SN_BUF_OUT && !c->in_place],
                (touch){p->at, p->at + step->count, who != g->me || apart});
        }
    }
}

static int by_start(const void *a, const void *b)
{
    const touch *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* Ranges that overlap belong together; the staged ones that follow each other are one span. */
static coll_span *join(touches *s, sn_arena *arena, int *ret_n)
{
    int n = 0;
    if (s->n > 0)
        qsort(s->t, s->n, sizeof(touch), by_start);
    coll_span *span = SN_NEW_N(arena, coll_span, s->n + 1);
    for (size_t i = 0; i < s->n;) {
        touch t = s->t[i];
        for (i++; i < s->n && s->t[i].at < t.end; i++) {
            t.end = SN_MAX(t.end, s->t[i].end);
            t.staged = t.staged || s->t[i].staged;
        }
        if (!t.staged)
            continue;
        if (n > 0 && span[n - 1].end == t.at)
            span[n - 1].end = t.end;
        else
            span[n++] = (coll_span){t.at, t.end};
    }
    *ret_n = n;
    return span;
}

sn_status coll_stage_map(sn_coll_group *g, coll_plan *p)
{
    const sn_algo_row *const *rows;
    touches side[2] = {{0}, {0}};
    sn_status status = SN_OK;
    if (p->mapped)
        return SN_OK;
    sn_algo_rows(&rows);
    sn_arena *arena = sn_arena_create();
    collect(g, &p->call, &p->sched, g->me, side);
    for (int i = 0; i < g->locals && status == SN_OK; i++) {
        sn_sched s;
        status = rows[p->algorithm]->schedule(&g->algo, &p->call, g->local[i], arena, &s);
        if (status == SN_OK)
            collect(g, &p->call, &s, g->local[i], side);
    }
    sn_arena_free(arena);
    if (status == SN_OK) {
        p->stage_in = join(&side[0], p->arena, &p->stage_ins);
        p->stage_out = join(&side[1], p->arena, &p->stage_outs);
        p->mapped = true;
    }
    free(side[0].t);
    free(side[1].t);
    return status;
}

bool coll_stage_has(const coll_span *span, int n, int64_t at)
{
    for (int i = 0; i < n && span[i].at <= at; i++)
        if (at < span[i].end)
            return true;
    return false;
}

/* ---- moving ---- */

/* Where the caller has element `at` of a buffer and how many follow it there, at most *n. */
static unsigned char *callers(const sn_coll_req *r, bool in, int64_t at, int64_t *n)
{
    size_t el = sn_dtype_bytes(r->call.dtype);
    const sn_coll_call *c = &r->call;
    if (r->many != NULL) {
        c = r->many;
        while (at >= c->count) {
            at -= c->count;
            c++;
        }
        *n = SN_MIN(*n, c->count - at);
    }
    const unsigned char *base = in ? c->in : c->out;
    return (unsigned char *) (uintptr_t) base + (size_t) at * el;
}

/* Elements [at, end) of the chunk between the caller's buffer and its image. */
static void move(sn_coll_req *r, const coll_run *run, bool in, bool fill, coll_span s)
{
    size_t el = sn_dtype_bytes(r->call.dtype);
    bool stream = !fill && (uint64_t) r->call.count * el * 2 >= COLL_STREAM;
    unsigned char *image = in ? run->in : run->out;
    for (int64_t at = s.at, n; at < s.end; at += n) {
        int64_t block = at / run->n, into = at % run->n;
        n = SN_MIN(s.end - at, run->n - into);
        unsigned char *user = callers(r, in, block * r->call.count + run->at + into, &n);
        unsigned char *there = image + (size_t) at * el;
        r->coll->kernels->copy(fill ? there : user, fill ? user : there, (size_t) n * el, stream);
    }
}

static void move_all(sn_coll_req *r, const coll_run *run, bool in, bool fill)
{
    const coll_plan *p = run->plan;
    bool first = in || p->call.in_place;
    const coll_span *span = first ? p->stage_in : p->stage_out;
    int n = first ? p->stage_ins : p->stage_outs;
    if (r->many != NULL && run->n > 0) {
        move(r, run, in, fill, (coll_span){0, run->n});
        return;
    }
    for (int i = 0; i < n; i++)
        move(r, run, in, fill, span[i]);
}

void coll_stage_fill(sn_coll_req *r, coll_run *run)
{
    bool root = r->group->me == r->call.root;
    if (run->in_staged)
        move_all(r, run, true, true);
    if (run->out_staged && r->call.op == SN_BROADCAST && root)
        move_all(r, run, false, true);
}

void coll_stage_empty(sn_coll_req *r, coll_run *run)
{
    bool root = r->group->me == r->call.root;
    if (run->out_staged && !(r->call.op == SN_BROADCAST && root))
        move_all(r, run, false, false);
}
