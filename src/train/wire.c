/* SPDX-License-Identifier: Apache-2.0
 *
 * wire — the vectors of a program that travel encoded between hosts: opened, run, saved, loaded.
 *
 *   program's wire ─▶ sn_compress         state in a checkpoint, by parameter
 *   gradients of bucket b                 compress.owed.H/NAME      what host H still owes of it
 *                                         compress.owed_back/NAME   an owner of a sum that all get
 *                                         compress.velocity.H/NAME  its momentum correction
 *                                         compress.q/NAME           PowerSGD's start, by tensor
 *                                         index
 *   parameters of bucket b                compress.seen/NAME        (a state of the program itself)
 *
 * Loading takes from a checkpoint of any split: every card reads what all hosts of that time owed
 * for the elements that it codes now, and takes over what falls to it; so the sum owed stays. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/parts.h"

struct train_wires {
    const sn_plan *plan;
    const sn_program *program;
    sn_compress_group **group; /* [plan groups], NULL: nothing of it is encoded */
    sn_compress **z;           /* [program wires] */
};

/* ---- opening ---- */

static unsigned call_of(const sn_wire *w)
{
    if (w->op == SN_ALL_REDUCE)
        return SN_COMPRESS_ALL_REDUCE;
    return w->op == SN_REDUCE_SCATTER ? SN_COMPRESS_REDUCE_SCATTER : SN_COMPRESS_ALL_GATHER;
}

static int matrices_of(const sn_wire *w, sn_compress_matrix *ret)
{
    int n = 0;
    for (int i = 0; i < w->params; i++)
        if (w->param[i].rows > 0)
            ret[n++] = (sn_compress_matrix){w->param[i].at, w->param[i].rows, w->param[i].cols};
    return n;
}

/* Each parameter has a code of its own. */
static int segments_of(const sn_wire *w, sn_compress_segment *ret)
{
    for (int i = 0; i < w->params; i++) {
        const sn_wire_param *p = &w->param[i];
        ret[i] = (sn_compress_segment){p->at, p->count, p->codec, p->passes};
    }
    return w->codec.kind == SN_CODEC_POWERSGD ? 0 : w->params;
}

typedef struct parts { /* of a vector, [params] each */
    sn_compress_matrix *matrix;
    sn_compress_segment *segment;
} parts;

static parts parts_make(const sn_wire *w)
{
    return (parts){sn_alloc((size_t) (w->params + 1) * sizeof(sn_compress_matrix)),
                   sn_alloc((size_t) (w->params + 1) * sizeof(sn_compress_segment))};
}

static void parts_free(parts p)
{
    free(p.matrix);
    free(p.segment);
}

static sn_compress_opts opts_of(const sn_wire *w, parts p)
{
    return (sn_compress_opts){.name = w->name,
                              .codec = w->codec,
                              .count = w->count,
                              .segments = segments_of(w, p.segment),
                              .segment = p.segment,
                              .matrices = matrices_of(w, p.matrix),
                              .matrix = p.matrix,
                              .first_relay = w->bucket,
                              .momentum = w->momentum,
                              .forget = w->forget,
                              .calls = call_of(w)};
}

static int place_in(const sn_plan_group *g, int rank)
{
    for (int i = 0; i < g->members; i++)
        if (g->rank[i] == rank)
            return i;
    return 0;
}

uint64_t train_wires_bytes(const sn_plan *plan, const sn_program *p)
{
    uint64_t sum = 0;
    for (int i = 0; i < p->wires; i++) {
        const sn_wire *w = &p->wire[i];
        const sn_plan_group *g = &plan->group[w->group];
        parts of = parts_make(w);
        sn_compress_opts opts = opts_of(w, of);
        sum += sn_compress_arena_bytes(g->host, g->members, place_in(g, p->rank), &opts);
        parts_free(of);
    }
    return sum;
}

static sn_status open_wire(train_wires *s, int i, sn_coll *c, sn_coll_group *const *groups,
                           sn_time deadline)
{
    const sn_wire *w = &s->program->wire[i];
    const sn_plan_group *g = &s->plan->group[w->group];
    if (!s->group[w->group])
        SN_TRY(sn_compress_group_create(c, groups[w->group], g->name, g->rank, g->host, g->members,
                                        deadline, &s->group[w->group]));
    parts of = parts_make(w);
    sn_compress_opts opts = opts_of(w, of);
    sn_status status = sn_compress_open(s->group[w->group], &opts, &s->z[i]);
    parts_free(of);
    return status;
}

sn_status train_wires_open(const sn_plan *plan, const sn_program *p, sn_coll *c,
                           sn_coll_group *const *groups, sn_time deadline, train_wires **ret)
{
    train_wires *s = sn_alloc(sizeof(*s));
    s->plan = plan;
    s->program = p;
    s->group = sn_alloc((size_t) SN_MAX(1, plan->groups) * sizeof(*s->group));
    s->z = sn_alloc((size_t) SN_MAX(1, p->wires) * sizeof(*s->z));
    sn_status status = SN_OK;
    for (int i = 0; i < p->wires && status >= 0; i++)
        status = open_wire(s, i, c, groups, deadline);
    if (status < 0) {
        train_wires_close(s);
        return status;
    }
    *ret = s;
    return SN_OK;
}

void train_wires_close(train_wires *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->program->wires; i++)
        sn_compress_close(s->z[i]);
    for (int g = 0; g < s->plan->groups; g++)
        sn_compress_group_free(s->group[g]);
    free(s->group);
    free(s->z);
    free(s);
}

/* ---- running ---- */

sn_compress *train_wires_get(const train_wires *s, int i)
{
    return s->z[i];
}

void train_wires_plain(train_wires *s, bool plain)
{
    for (int i = 0; i < s->program->wires; i++)
        sn_compress_plain(s->z[i], plain);
}

void train_wires_progress(train_wires *s)
{
    for (int g = 0; g < s->plan->groups; g++)
        if (s->group[g])
            sn_compress_progress(s->group[g]);
}

sn_compress_stats train_wires_stats(const train_wires *s)
{
    sn_compress_stats sum = {0};
    for (int g = 0; g < s->plan->groups; g++) {
        if (!s->group[g])
            continue;
        sn_compress_stats x = sn_compress_stats_get(s->group[g]);
        sum.plain_bytes += x.plain_bytes;
        sum.coded_bytes += x.coded_bytes;
        sum.codec_ns += x.codec_ns;
    }
    return sum;
}

/* ---- naming ---- */

static const char *name_of(sn_arena *arena, sn_compress_state_kind kind, int source,
                           const char *param)
{
    if (kind == SN_COMPRESS_FACTOR)
        return sn_arena_printf(arena, "compress.q/%s", param);
    if (kind == SN_COMPRESS_OWED_BACK)
        return sn_arena_printf(arena, "compress.owed_back/%s", param);
    return sn_arena_printf(arena, "compress.%s.%d/%s",
                           kind == SN_COMPRESS_VELOCITY ? "velocity" : "owed", source, param);
}

static sn_piece factor_piece(const train_wires *s, const sn_wire_param *p,
                             const sn_compress_state *st, sn_arena *arena)
{
    sn_piece piece = {
        .name = name_of(arena, st->kind, 0, s->plan->graph->value[p->value].name),
        .dtype = SN_F32,
        .shape = SN_SHAPE(p->parts, p->cols, st->count / p->cols),
        .extent = {1, p->cols, st->count / p->cols},
        .begin = {p->part},
        .flat_count = st->count,
        .data = st->data,
    };
    return piece;
}

/* Elements [from, to) of the vector, which lie in the parameter. */
static sn_piece range_piece(const train_wires *s, const sn_wire_param *p, const char *name,
                            int64_t from, int64_t to, float *data)
{
    sn_piece piece = {.name = name,
                      .dtype = SN_F32,
                      .shape = s->plan->graph->value[p->value].shape,
                      .flat_begin = from - p->at,
                      .flat_count = to - from,
                      .data = data};
    memcpy(piece.begin, p->begin, sizeof(piece.begin));
    memcpy(piece.extent, p->extent, sizeof(piece.extent));
    return piece;
}

typedef struct visit { /* one state of this card and the parameter that it lies in */
    sn_compress *z;
    const sn_wire_param *p;
    const sn_compress_state *st;
    int64_t from, to; /* of the vector */
} visit;

typedef void (*visitor)(const train_wires *s, const visit *v, void *ctx);

static void visit_state(const train_wires *s, const sn_wire *w, sn_compress *z,
                        const sn_compress_state *st, visitor fn, void *ctx)
{
    for (int i = 0; i < w->params; i++) {
        const sn_wire_param *p = &w->param[i];
        bool factor = st->kind == SN_COMPRESS_FACTOR;
        visit v = {z, p, st, SN_MAX(st->at, p->at), SN_MIN(st->at + st->count, p->at + p->count)};
        if (factor ? st->at == p->at : v.to > v.from)
            fn(s, &v, ctx);
    }
}

static void visit_all(const train_wires *s, visitor fn, void *ctx)
{
    for (int i = 0; i < s->program->wires; i++) {
        const sn_compress_state *st;
        int n = sn_compress_states(s->z[i], &st);
        for (int k = 0; k < n; k++)
            visit_state(s, &s->program->wire[i], s->z[i], &st[k], fn, ctx);
    }
}

/* ---- saving ---- */

typedef struct pieces {
    sn_arena *arena;
    sn_piece *piece;
    int count;
    size_t cap;
} pieces;

static void add_piece(const train_wires *s, const visit *v, void *ctx)
{
    pieces *out = ctx;
    const sn_compress_state *st = v->st;
    if (!v->p->owner || (st->shared && st->source != 0))
        return;
    out->piece = sn_arena_grow(out->arena, out->piece, (size_t) out->count, (size_t) out->count + 1,
                               sizeof(*out->piece), &out->cap);
    const char *param = s->plan->graph->value[v->p->value].name;
    out->piece[out->count++] =
        st->kind == SN_COMPRESS_FACTOR
            ? factor_piece(s, v->p, st, out->arena)
            : range_piece(s, v->p, name_of(out->arena, st->kind, st->source, param), v->from, v->to,
                          st->data + (v->from - st->at));
}

int train_wires_pieces(const train_wires *s, sn_arena *arena, sn_piece **ret)
{
    pieces out = {.arena = arena};
    if (s)
        visit_all(s, add_piece, &out);
    *ret = out.piece;
    return out.count;
}

/* ---- loading ---- */

typedef struct load {
    const sn_ckpt *ckpt;
    sn_arena *arena; /* of names */
    int sources;     /* hosts that owed something */
    sn_status status;
} load;

static bool holds(const sn_ckpt *c, const sn_piece *want)
{
    sn_dtype dtype;
    sn_shape shape;
    for (int i = 0; i < sn_ckpt_tensors(c); i++)
        if (!strcmp(sn_ckpt_tensor(c, i, &dtype, &shape), want->name))
            return sn_shape_equal(shape, want->shape);
    return false;
}

/* Read one piece that is there into memory of its own, and hand it over. */
static sn_status take(load *l, const visit *v, sn_piece *piece, int source)
{
    if (!holds(l->ckpt, piece))
        return SN_OK;
    float *data = malloc((size_t) SN_MAX(1, piece->flat_count) * sizeof(float));
    if (!data)
        return sn_fail(SN_ENOMEM, "no memory for %lld elements of %s",
                       (long long) piece->flat_count, piece->name);
    piece->data = data;
    sn_status status = sn_ckpt_load(l->ckpt, piece, 1);
    if (status >= 0)
        sn_compress_take_over(v->z, v->st->kind, source, v->from, piece->flat_count, data);
    free(data);
    return status;
}

static bool owes_back(sn_compress *z)
{
    const sn_compress_state *st;
    int n = sn_compress_states(z, &st);
    for (int k = 0; k < n; k++)
        if (st[k].kind == SN_COMPRESS_OWED_BACK)
            return true;
    return false;
}

static void load_state(const train_wires *s, const visit *v, void *ctx)
{
    load *l = ctx;
    const char *param = s->plan->graph->value[v->p->value].name;
    bool factor = v->st->kind == SN_COMPRESS_FACTOR;
    bool one = factor || v->st->kind == SN_COMPRESS_OWED_BACK;
    for (int h = 0; h < (one ? 1 : l->sources) && l->status >= 0; h++) {
        sn_piece piece = factor ? factor_piece(s, v->p, v->st, l->arena)
                                : range_piece(s, v->p, name_of(l->arena, v->st->kind, h, param),
                                              v->from, v->to, NULL);
        l->status = take(l, v, &piece, h);
    }
    if (v->st->kind == SN_COMPRESS_OWED && l->status >= 0 && !owes_back(v->z)) {
        /* sums are not coded here: what owners of sums owed is owed like a part of one */
        sn_piece piece = range_piece(s, v->p, name_of(l->arena, SN_COMPRESS_OWED_BACK, 0, param),
                                     v->from, v->to, NULL);
        l->status = take(l, v, &piece, 0);
    }
}

/* The hosts that a checkpoint knows of: one more than the highest number in its names. */
static int sources_of(const sn_ckpt *c)
{
    int most = 0;
    for (int i = 0; i < sn_ckpt_tensors(c); i++) {
        sn_dtype dtype;
        sn_shape shape;
        int host;
        const char *name = sn_ckpt_tensor(c, i, &dtype, &shape);
        if ((sscanf(name, "compress.owed.%d/", &host) == 1 ||
             sscanf(name, "compress.velocity.%d/", &host) == 1) &&
            host >= 0 && host < 65536)
            most = SN_MAX(most, host + 1);
    }
    return most;
}

sn_status train_wires_load(train_wires *s, const sn_ckpt *c, int *ret_sources)
{
    load l = {.ckpt = c, .arena = sn_arena_create(), .sources = sources_of(c)};
    if (s)
        visit_all(s, load_state, &l);
    *ret_sources = l.sources;
    sn_arena_free(l.arena);
    return l.status;
}
