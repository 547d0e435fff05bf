/* SPDX-License-Identifier: Apache-2.0
 *
 * Compression between hosts: which data groups it applies to, the vectors that travel encoded, and
 * what that costs.
 *
 * A stage is compressed when its data groups (one for each tensor index) are on equally many hosts,
 * and on more than one: what a checkpoint says about a parameter then has one form. */
#include "plan/emit.h"

#define CODEC_BYTES_PER_S 1e9 /* when nobody measured */

bool plan_compresses(const sn_plan_compression *c)
{
    return c->gradients.kind != SN_CODEC_NONE || c->parameters.kind != SN_CODEC_NONE;
}

int plan_hosts_of(const sn_plan_group *g)
{
    int hosts = 0;
    for (int i = 0; i < g->members; i++) {
        bool seen = false;
        for (int j = 0; j < i && !seen; j++)
            seen = g->host[j] == g->host[i];
        hosts += !seen;
    }
    return hosts;
}

static bool spans_hosts(const sn_plan *plan, int stage)
{
    int hosts = 0;
    for (int t = 0; t < plan->tensor; t++) {
        int group = plan_mesh_group(plan, SN_AXIS_DATA, plan_mesh_rank(plan, t, stage, 0));
        int n = group < 0 ? 1 : plan_hosts_of(&plan->group[group]);
        if (n < 2 || (hosts && n != hosts))
            return false;
        hosts = n;
    }
    return true;
}

static const sn_codec *codec_of(const sn_plan_compression *c, sn_coll_op op)
{
    return op == SN_ALL_GATHER ? &c->parameters : &c->gradients;
}

/* Which of the three a compressed step has: parameters that are kept are never gathered. */
static bool has(const sn_plan_compression *c, sn_coll_op op)
{
    return c->kept == (op == SN_ALL_REDUCE) && codec_of(c, op)->kind != SN_CODEC_NONE;
}

bool plan_encodes(const sn_plan *plan, int stage, sn_coll_op op)
{
    return !plan->opts.forward_only && has(&plan->opts.compression, op) && spans_hosts(plan, stage);
}

bool emit_encodes(const emitter *e, sn_coll_op op)
{
    return plan_encodes(e->plan, e->s, op);
}

/* ---- vectors */

/* A matrix is worth factors when both of them, there and back, are less than it. */
static bool factors_pay(int64_t rows, int64_t cols, int rank)
{
    return 2 * (rows + cols) * rank < rows * cols;
}

/* The squarest matrix that it can be seen as. */
static void see_as_matrix(sn_shape local, sn_wire_param *w)
{
    int64_t rows = 1;
    w->rows = 1;
    w->cols = w->count;
    for (int d = 0; d < local.rank - 1; d++) {
        rows *= local.dim[d];
        if (rows + w->count / rows < w->rows + w->cols) {
            w->rows = rows;
            w->cols = w->count / rows;
        }
    }
}

/* Gains and biases are few and each of them matters: they go as int8 or int4 where matrices go as
 * less. */
static sn_codec codec_for(const sn_codec *codec, sn_shape local)
{
    bool less = codec->kind == SN_CODEC_INT4 || codec->kind == SN_CODEC_ONEBIT ||
                codec->kind == SN_CODEC_TOPK;
    if (local.rank < 2 && codec->kind == SN_CODEC_TERNARY)
        return (sn_codec){.kind = SN_CODEC_INT4};
    return local.rank < 2 && less ? (sn_codec){.kind = SN_CODEC_INT8} : *codec;
}

static void encode_as(const emitter *e, const sn_wire *wire, sn_wire_param *w)
{
    const plan_model *m = e->m;
    int8_t form = m->form[PLAN_TENSOR][w->value];
    sn_shape local = plan_local(m, w->value, form, FORM_WHOLE);
    w->parts = form >= 0 ? e->plan->tensor : 1;
    w->part = form >= 0 ? e->t : 0;
    w->codec = codec_for(&wire->codec, local);
    w->passes = w->codec.kind == wire->codec.kind ? wire->passes : 1;
    if (local.rank < 2)
        return;
    sn_wire_param seen = *w;
    see_as_matrix(local, &seen);
    if (wire->codec.kind == SN_CODEC_TERNARY && wire->op != SN_ALL_GATHER)
        w->codec.cols = seen.cols; /* gradients differ by rows and columns, their changes do not */
    if (wire->codec.kind != SN_CODEC_POWERSGD)
        return;
    *w = seen;
    if (!factors_pay(w->rows, w->cols, wire->codec.rank))
        w->rows = w->cols = 0;
}

static int by_place(const plan_layout *l, int bucket, int64_t after)
{
    int next = -1;
    for (int i = 0; i < l->params; i++)
        if (l->param[i].bucket == bucket && l->param[i].at >= after &&
            (next < 0 || l->param[i].at < l->param[next].at))
            next = i;
    return next;
}

static void list_params(emitter *e, sn_wire *w)
{
    const plan_bucket *b = &e->layout->bucket[w->bucket];
    w->param = SN_NEW_N(e->arena, sn_wire_param, e->layout->params + 1);
    int64_t at = b->at;
    for (int i; (i = by_place(e->layout, w->bucket, at)) >= 0;) {
        const plan_param *p = &e->layout->param[i];
        sn_wire_param *to = &w->param[w->params++];
        *to = (sn_wire_param){.value = p->value,
                              .at = p->at - b->at,
                              .count = p->count,
                              .owner = !(p->replicated && e->t)};
        emit_block(e, p->value, to->begin, to->extent);
        encode_as(e, w, to);
        at = p->at + SN_MAX(1, p->count);
    }
}

int emit_new_wire(emitter *e, sn_coll_op op, int index)
{
    sn_program *p = e->p;
    const sn_plan_compression *c = &e->plan->opts.compression;
    p->wire = sn_arena_grow(e->arena, p->wire, (size_t) p->wires, (size_t) p->wires + 1,
                            sizeof *p->wire, &e->wire_cap);
    sn_wire *w = &p->wire[p->wires++];
    *w = (sn_wire){.op = op,
                   .codec = *codec_of(c, op),
                   .passes = op == SN_ALL_GATHER ? SN_MAX(1, c->passes) : 1,
                   .momentum = op == SN_ALL_GATHER ? 0 : c->momentum,
                   .forget = op != SN_ALL_GATHER && c->forget,
                   .group = plan_mesh_group(e->plan, SN_AXIS_DATA, p->rank),
                   .count = e->layout->bucket[index].count,
                   .bucket = index};
    w->name = sn_arena_printf(e->arena, "%s of bucket %d",
                              op == SN_ALL_GATHER ? "parameters" : "gradients", index);
    list_params(e, w);
    return p->wires;
}

/* ---- what it costs */

static int halves(const sn_wire *w)
{
    return w->op == SN_ALL_REDUCE ? 2 : 1;
}

static double param_bytes(const sn_wire *w, const sn_wire_param *p)
{
    if (w->codec.kind == SN_CODEC_POWERSGD) { /* all_reduce moves twice */
        int64_t factors = (p->rows + p->cols) * w->codec.rank;
        return 8.0 / halves(w) * (double) (p->rows > 0 ? factors : p->count);
    }
    return (double) sn_codec_bytes(&p->codec, p->count) * SN_MAX(1, p->passes);
}

/* Encoded bytes of a vector, over those of the vector. */
double plan_wire_share(const sn_wire *w)
{
    double coded = 0;
    for (int i = 0; i < w->params; i++)
        coded += param_bytes(w, &w->param[i]);
    return w->count > 0 ? coded / (4.0 * (double) w->count) : 1;
}

double plan_codec_ns(const sn_plan_compression *c, const sn_wire *w, int members)
{
    double rate = c->codec_bytes_per_s > 0 ? c->codec_bytes_per_s : CODEC_BYTES_PER_S;
    double blocks = w->op == SN_REDUCE_SCATTER ? 1 : members; /* a block, or all of them */
    if (w->op == SN_ALL_REDUCE)
        blocks = 1 + members;
    if (w->codec.kind == SN_CODEC_POWERSGD)
        blocks = members;
    return 4.0 * (double) w->count / members * blocks / rate * 1e9;
}

uint64_t plan_wire_memory(const sn_plan *plan, const sn_program *p)
{
    double elements = 0;
    for (int i = 0; i < p->wires; i++) {
        const sn_wire *w = &p->wire[i];
        double members = plan->group[w->group].members,
               hosts = plan_hosts_of(&plan->group[w->group]);
        double share = SN_MIN(1, plan_wire_share(w));
        bool owes = w->op != SN_ALL_GATHER && !w->forget && sn_codec_feedback(&w->codec);
        elements += (double) w->count * (owes ? hosts / members : 0);              /* residuals */
        elements += (double) w->count * share * halves(w) * (2 + hosts / members); /* codes */
    }
    return (uint64_t) (4 * elements);
}

/* Bytes between hosts of the whole group in one half of an all_reduce, uncompressed. */
static double plain_bytes(const sn_plan_group *g, int64_t count)
{
    return 4.0 * (double) count * (plan_hosts_of(g) - 1);
}

void plan_wire_bytes(const sn_plan *plan, const sn_program *p, double *ret_plain, double *ret_coded)
{
    *ret_plain = *ret_coded = 0;
    for (int i = 0; i < p->wires; i++) {
        const sn_wire *w = &p->wire[i];
        const sn_plan_group *g = &plan->group[w->group];
        double plain = halves(w) * plain_bytes(g, w->count);
        *ret_plain += plain;
        *ret_coded += plain * plan_wire_share(w);
    }
}
