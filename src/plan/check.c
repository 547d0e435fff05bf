/* SPDX-License-Identifier: Apache-2.0
 *
 * The contract of programs as one executable function: places, tickets and data flow of each rank,
 * then all ranks together on counters instead of data. */
#include "plan/private.h"

#include <stdlib.h>
#include <string.h>

/* ---- places */

static void check_slot(const sn_program *p, const sn_slot *s)
{
    SN_ASSERT(s->bytes == (uint64_t) sn_shape_count(s->shape) * sn_dtype_bytes(s->dtype));
    if (s->last < 0)
        return; /* never touched: it has no place */
    SN_ASSERT(s->offset + s->bytes <= p->memory_bytes);
    SN_ASSERT(s->first <= s->last && s->last < p->instrs);
    if (s->base < 0) {
        SN_ASSERT(s->offset % 64 == 0);
        return;
    }
    const sn_slot *base = &p->slot[s->base];
    SN_ASSERT(base->base < 0 && base->dtype == s->dtype);
    SN_ASSERT(s->at + s->bytes <= base->bytes && s->offset == base->offset + s->at);
    SN_ASSERT(base->first <= s->first && s->last <= base->last);
}

static int by_first(const void *a, const void *b)
{
    const sn_slot *const *x = a, *const *y = b;
    return ((*x)->first > (*y)->first) - ((*x)->first < (*y)->first);
}

/* No two slots that are alive together overlap, views aside. */
static void check_places(const sn_program *p, sn_arena *arena)
{
    const sn_slot **order = SN_NEW_N(arena, const sn_slot *, p->slots + 1);
    const sn_slot **alive = SN_NEW_N(arena, const sn_slot *, p->slots + 1);
    int n = 0, alive_n = 0;
    for (int i = 0; i < p->slots; i++) {
        check_slot(p, &p->slot[i]);
        if (p->slot[i].base < 0 && p->slot[i].last >= 0 && p->slot[i].bytes > 0)
            order[n++] = &p->slot[i];
    }
    qsort(order, (size_t) n, sizeof *order, by_first);
    for (int i = 0; i < n; i++) {
        int kept = 0;
        for (int k = 0; k < alive_n; k++) {
            const sn_slot *a = alive[k];
            if (a->last < order[i]->first)
                continue;
            SN_ASSERT(a->offset + a->bytes <= order[i]->offset ||
                      order[i]->offset + order[i]->bytes <= a->offset);
            alive[kept++] = a;
        }
        alive[kept++] = order[i];
        alive_n = kept;
    }
}

/* ---- data flow and tickets of one rank */

typedef struct flow {
    const sn_program *p;
    bool *written; /* [slots] */
    int *post;     /* [tickets] the instruction, -1 not yet, -2 waited for */
    int *flying;   /* tickets */
    int flights;
} flow;

static bool overlap(const sn_program *p, int a, int b)
{
    const sn_slot *x = &p->slot[a], *y = &p->slot[b];
    return x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
}

static bool has_content(const flow *f, int slot)
{
    const sn_slot *s = &f->p->slot[slot];
    bool given = s->kind == SN_SLOT_INPUT || s->kind == SN_SLOT_PARAM ||
                 s->kind == SN_SLOT_MASTER || s->kind == SN_SLOT_MOMENT1 ||
                 s->kind == SN_SLOT_MOMENT2 || s->kind == SN_SLOT_STATE || s->kind == SN_SLOT_HYPER;
    return given || f->written[slot] || (s->base >= 0 && has_content(f, s->base));
}

/* A slot with a written view counts as written: who reads all of it is trusted to mean it. */
static void set_written(flow *f, int slot)
{
    f->written[slot] = true;
    if (f->p->slot[slot].base >= 0)
        f->written[f->p->slot[slot].base] = true;
}

static void check_operand(const flow *f, int i, int slot)
{
    SN_ASSERT(slot >= 0 && slot < f->p->slots);
    SN_ASSERT(f->p->slot[slot].first <= i && i <= f->p->slot[slot].last);
}

/* Nothing in flight may see this instruction write, nor this instruction an unfinished result. */
static void check_hazards(const flow *f, const sn_instr *in)
{
    for (int k = 0; k < f->flights; k++) {
        const sn_instr *fly = &f->p->instr[f->post[f->flying[k]]];
        for (int o = 0; o < in->outs; o++) {
            if (in->out[o] < 0)
                continue;
            for (int i = 0; i < fly->ins; i++)
                SN_ASSERT(!overlap(f->p, in->out[o], fly->in[i]));
            for (int i = 0; i < fly->outs; i++)
                SN_ASSERT(!overlap(f->p, in->out[o], fly->out[i]));
        }
        for (int i = 0; i < in->ins; i++)
            for (int o = 0; in->in[i] >= 0 && o < fly->outs; o++)
                SN_ASSERT(!overlap(f->p, in->in[i], fly->out[o]));
    }
}

static void check_sizes(const sn_plan *plan, const sn_program *p, const sn_instr *in)
{
    if (in->kind == SN_INSTR_KERNEL)
        return;
    uint64_t unit = sn_dtype_bytes(in->dtype), n = (uint64_t) in->count * unit;
    uint64_t members = in->kind == SN_INSTR_COLL ? (uint64_t) plan->group[in->group].members : 1;
    for (int i = 0; i < in->ins; i++)
        SN_ASSERT(
            p->slot[in->in[i]].dtype == in->dtype &&
            p->slot[in->in[i]].bytes ==
                n * (in->kind == SN_INSTR_COLL && in->coll == SN_REDUCE_SCATTER ? members : 1));
    for (int o = 0; o < in->outs; o++)
        SN_ASSERT(p->slot[in->out[o]].dtype == in->dtype &&
                  p->slot[in->out[o]].bytes ==
                      n * (in->kind == SN_INSTR_COLL && in->coll == SN_ALL_GATHER ? members : 1));
}

static void check_wait(flow *f, const sn_instr *in)
{
    SN_ASSERT(in->ticket >= 0 && in->ticket < f->p->tickets && f->post[in->ticket] >= 0);
    const sn_instr *of = &f->p->instr[f->post[in->ticket]];
    for (int o = 0; o < of->outs; o++)
        set_written(f, of->out[o]);
    f->post[in->ticket] = -2;
    int kept = 0;
    for (int k = 0; k < f->flights; k++)
        if (f->flying[k] != in->ticket)
            f->flying[kept++] = f->flying[k];
    f->flights = kept;
}

static void check_instr(const sn_plan *plan, flow *f, int i)
{
    const sn_instr *in = &f->p->instr[i];
    if (in->kind == SN_INSTR_WAIT) {
        check_wait(f, in);
        return;
    }
    for (int k = 0; k < in->ins; k++)
        if (in->in[k] >= 0) {
            check_operand(f, i, in->in[k]);
            SN_ASSERT(has_content(f, in->in[k]));
        }
    for (int o = 0; o < in->outs; o++)
        if (in->out[o] >= 0) {
            check_operand(f, i, in->out[o]);
            bool gradient = f->p->slot[in->out[o]].kind == SN_SLOT_GRAD;
            SN_ASSERT(!(in->accumulate >> o & 1) ||
                      (gradient ? f->written[in->out[o]] : has_content(f, in->out[o])));
        }
    check_sizes(plan, f->p, in);
    check_hazards(f, in);
    if (in->kind == SN_INSTR_KERNEL) {
        for (int o = 0; o < in->outs; o++)
            if (in->out[o] >= 0)
                set_written(f, in->out[o]);
        return;
    }
    SN_ASSERT(in->ticket >= 0 && in->ticket < f->p->tickets && f->post[in->ticket] == -1);
    f->post[in->ticket] = i;
    f->flying[f->flights++] = in->ticket;
}

static void check_rank(const sn_plan *plan, const sn_program *p, sn_arena *arena)
{
    flow f = {.p = p,
              .written = SN_NEW_N(arena, bool, p->slots + 1),
              .post = SN_NEW_N(arena, int, p->tickets + 1),
              .flying = SN_NEW_N(arena, int, p->tickets + 1)};
    check_places(p, arena);
    for (int t = 0; t < p->tickets; t++)
        f.post[t] = -1;
    for (int i = 0; i < p->instrs; i++) {
        if (i == p->gather_first)
            SN_ASSERT(f.flights == 0); /* it can be run alone */
        SN_ASSERT((p->instr[i].phase == SN_PHASE_GATHER) ==
                  (i >= p->gather_first && i < p->gather_last));
        check_instr(plan, &f, i);
    }
    SN_ASSERT(f.flights == 0);
    for (int t = 0; t < p->tickets; t++)
        SN_ASSERT(f.post[t] == -2);
}

/* ---- all ranks together
 *
 * The strictest machine that is allowed: a send ends only when the receive is posted, a collective
 * only when all members have come. */

typedef struct rank_state {
    const sn_program *p;
    int at;
    int *post;    /* [tickets] */
    bool *posted; /* [instrs] */
} rank_state;

typedef struct world_state {
    const sn_plan *plan;
    rank_state *rank;
} world_state;

/* The instruction of `rank` that is its seq-th on the group, posted or not. */
static const sn_instr *coll_at(const rank_state *r, int group, int seq)
{
    for (int i = 0, n = 0; i < r->p->instrs; i++)
        if (r->p->instr[i].kind == SN_INSTR_COLL && r->p->instr[i].group == group && n++ == seq)
            return &r->p->instr[i];
    return NULL;
}

static int seq_of(const rank_state *r, int at)
{
    int n = 0;
    for (int i = 0; i < at; i++)
        n += r->p->instr[i].kind == SN_INSTR_COLL && r->p->instr[i].group == r->p->instr[at].group;
    return n;
}

static bool coll_done(const world_state *w, const rank_state *r, int at)
{
    const sn_instr *in = &r->p->instr[at];
    const sn_plan_group *g = &w->plan->group[in->group];
    int seq = seq_of(r, at);
    for (int m = 0; m < g->members; m++) {
        const rank_state *other = &w->rank[g->rank[m]];
        const sn_instr *same = coll_at(other, in->group, seq);
        SN_ASSERT(same && same->coll == in->coll && same->red == in->red &&
                  same->count == in->count && same->dtype == in->dtype);
        if (!other->posted[same - other->p->instr])
            return false;
    }
    return true;
}

/* The instruction at the other end of a transfer: tags are used once in a step. */
static bool transfer_done(const world_state *w, const rank_state *r, int at)
{
    const sn_instr *in = &r->p->instr[at];
    sn_instr_kind want = in->kind == SN_INSTR_SEND ? SN_INSTR_RECV : SN_INSTR_SEND;
    SN_ASSERT(in->peer >= 0 && in->peer < w->plan->world && in->peer != r->p->rank);
    const rank_state *other = &w->rank[in->peer];
    const sn_instr *match = NULL;
    for (int i = 0; i < other->p->instrs; i++) {
        const sn_instr *o = &other->p->instr[i];
        if (o->kind != want || o->tag != in->tag || o->peer != r->p->rank)
            continue;
        SN_ASSERT(!match);
        match = o;
    }
    SN_ASSERT(match && match->count == in->count && match->dtype == in->dtype);
    return other->posted[match - other->p->instr];
}

static bool advance(const world_state *w, rank_state *r)
{
    int from = r->at;
    for (; r->at < r->p->instrs; r->at++) {
        const sn_instr *in = &r->p->instr[r->at];
        if (in->kind == SN_INSTR_WAIT) {
            int at = r->post[in->ticket];
            bool done = r->p->instr[at].kind == SN_INSTR_COLL ? coll_done(w, r, at)
                                                              : transfer_done(w, r, at);
            if (!done)
                break;
        } else if (in->kind != SN_INSTR_KERNEL) {
            r->post[in->ticket] = r->at;
        }
        r->posted[r->at] = true;
    }
    return r->at > from;
}

static void check_world(const sn_plan *plan, sn_program *const *all, sn_arena *arena)
{
    world_state w = {plan, SN_NEW_N(arena, rank_state, plan->world)};
    bool moved = true;
    for (int r = 0; r < plan->world; r++)
        w.rank[r] = (rank_state){.p = all[r],
                                 .post = SN_NEW_N(arena, int, all[r]->tickets + 1),
                                 .posted = SN_NEW_N(arena, bool, all[r]->instrs + 1)};
    while (moved) {
        moved = false;
        for (int r = 0; r < plan->world; r++)
            moved |= advance(&w, &w.rank[r]);
    }
    for (int r = 0; r < plan->world; r++)
        SN_ASSERT(w.rank[r].at == all[r]->instrs); /* else: a deadlock */
}

/* ---- states: the owners' pieces cover each tensor exactly once */

static void mark(const sn_state *st, sn_shape whole, uint8_t *seen)
{
    for (int64_t f = st->flat_begin; f < st->flat_begin + st->flat_count; f++) {
        int64_t rest = f, at = 0, stride = 1;
        for (int d = whole.rank - 1; d >= 0; d--) {
            at += (st->begin[d] + rest % st->extent[d]) * stride;
            rest /= st->extent[d];
            stride *= whole.dim[d];
        }
        SN_ASSERT(rest == 0 && at < stride && !seen[at]);
        seen[at] = 1;
    }
}

static void check_states(const sn_plan *plan, sn_program *const *all, sn_slot_kind kind, int value)
{
    sn_shape whole = plan->graph->value[value].shape;
    int64_t count = sn_shape_count(whole);
    sn_arena *arena = sn_arena_create();
    uint8_t *seen = SN_NEW_N(arena, uint8_t, count);
    for (int r = 0; r < plan->world; r++)
        for (int i = 0; i < all[r]->states; i++) {
            const sn_state *st = &all[r]->state[i];
            if (st->value != value || st->kind != kind)
                continue;
            SN_ASSERT(st->slot_at >= 0 &&
                      st->slot_at + st->flat_count <= sn_shape_count(all[r]->slot[st->slot].shape));
            if (st->owner)
                mark(st, whole, seen);
        }
    for (int64_t i = 0; i < count; i++)
        SN_ASSERT(seen[i]);
    sn_arena_free(arena);
}

void sn_program_check(const sn_plan *plan, sn_program *const *all)
{
    sn_arena *arena = sn_arena_create();
    for (int r = 0; r < plan->world; r++) {
        SN_ASSERT(all[r]->rank == r);
        check_rank(plan, all[r], arena);
    }
    check_world(plan, all, arena);
    sn_arena_free(arena);
    for (int v = 0; v < plan->graph->values; v++) {
        if (plan->graph->value[v].kind == SN_VALUE_STATE)
            check_states(plan, all, SN_SLOT_STATE, v);
        if (plan->graph->value[v].kind != SN_VALUE_PARAM)
            continue;
        check_states(plan, all, SN_SLOT_MASTER, v);
        if (!plan->opts.forward_only) {
            check_states(plan, all, SN_SLOT_MOMENT1, v);
            check_states(plan, all, SN_SLOT_MOMENT2, v);
        }
    }
}
