/* SPDX-License-Identifier: Apache-2.0
 *
 * exec — runs a program on this card: looks everything up once, then walks a flat list.
 *
 *   sn_instr  ──create──▶  action { kernel, pointers | call | peer }   ──run──▶  one after another
 *
 * While an operation is under way the transport is driven between kernels; a wait first asks, and
 * only when it would really wait does the clock get read and the time go to another account. */
#include "train/train.h"

#include <stdlib.h>
#include <string.h>

#include "os/os.h"

typedef struct action {
    sn_instr_kind kind;
    sn_time_kind account; /* of a kernel's or a wait's time */
    int ticket;
    sn_kernel *kernel;
    const void *in[SN_OP_IN_MAX];
    void *out[SN_OP_OUT_MAX];
    sn_coll_group *group;
    sn_coll_call call;
    int peer;
    uint32_t tag;
    uint64_t bytes;
} action;

struct sn_exec {
    const sn_plan *plan;
    const sn_program *program;
    sn_coll *coll;
    void *own;             /* memory of a world of one; else coll's */
    void **at;             /* [slots] */
    action *actions;       /* [instrs] */
    sn_coll_group **group; /* [groups], NULL: I am no member */
    bool *lent;            /* [groups] it belongs to the executor whose parameters I use */
    int groups;
    sn_coll_req **req;     /* [tickets], NULL: not under way */
    sn_time_kind *account; /* [tickets] of a wait for it */
    int open;              /* tickets under way */
};

/* ---- words for failures ---- */

static const char *slot_name(const sn_exec *e, int slot)
{
    const char *name = slot >= 0 ? e->program->slot[slot].name : NULL;
    return name ? name : "?";
}

static sn_status failed(const sn_exec *e, int i, sn_status status)
{
    static const char *const phase[] = {"forward", "backward", "reduce", "optimizer", "gather"};
    const sn_instr *n = &e->program->instr[i];
    const char *node = n->node >= 0 ? e->plan->graph->node[n->node].name : NULL;
    sn_str what = {0};
    switch (n->kind) {
    case SN_INSTR_KERNEL:
        sn_str_printf(&what, "%s", sn_op_name(n->op));
        break;
    case SN_INSTR_COLL:
        sn_str_printf(&what, "%s of %s", sn_coll_op_name(n->coll), slot_name(e, n->out[0]));
        break;
    case SN_INSTR_SEND:
        sn_str_printf(&what, "send %s to rank %d", slot_name(e, n->in[0]), n->peer);
        break;
    case SN_INSTR_RECV:
        sn_str_printf(&what, "receive %s from rank %d", slot_name(e, n->out[0]), n->peer);
        break;
    case SN_INSTR_WAIT:
        sn_str_printf(&what, "wait for ticket %d", n->ticket);
        break;
    }
    if (node)
        sn_str_printf(&what, " (%s)", node);
    if (n->micro >= 0)
        sn_str_printf(&what, ", micro-batch %d", n->micro);
    sn_fail_in(status, "%s %s", phase[n->phase], sn_str_get(&what));
    sn_str_done(&what);
    return status;
}

/* ---- setting up ---- */

static sn_status get_memory(sn_exec *e, void **ret)
{
    uint64_t bytes = SN_MAX(e->program->memory_bytes, 64);
    if (e->coll)
        return sn_coll_alloc(e->coll, bytes, ret);
    size_t align =
        bytes >= (4u << 20) ? 2u << 20 : 64; /* large pages where the system gives them */
    if (posix_memalign(&e->own, align, bytes))
        return sn_fail(SN_ENOMEM, "no memory for a program of %llu bytes on one card",
                       (unsigned long long) bytes);
    memset(e->own, 0, bytes); /* touched here, not in the first step */
    *ret = e->own;
    return SN_OK;
}

static const sn_slot *same_param(const sn_exec *from, const char *name, int *ret)
{
    for (int i = 0; i < from->program->slots; i++) {
        const sn_slot *s = &from->program->slot[i];
        if (s->kind == SN_SLOT_PARAM && s->value >= 0 &&
            !strcmp(from->plan->graph->value[s->value].name, name)) {
            *ret = i;
            return s;
        }
    }
    return NULL;
}

static sn_status borrow_param(sn_exec *e, int i, const sn_exec *from)
{
    const sn_slot *s = &e->program->slot[i];
    const char *name = e->plan->graph->value[s->value].name;
    int other = -1;
    const sn_slot *o = same_param(from, name, &other);
    if (!o)
        return sn_fail(SN_ENOTFOUND, "rank %d has no parameter %s to evaluate with",
                       e->program->rank, name);
    if (o->dtype != s->dtype || !sn_shape_equal(o->shape, s->shape)) {
        char a[96], b[96];
        return sn_fail(SN_EMISMATCH, "parameter %s is %s in one program and %s in the other", name,
                       sn_shape_text(a, o->shape), sn_shape_text(b, s->shape));
    }
    e->at[i] = from->at[other];
    return SN_OK;
}

static sn_status place_slots(sn_exec *e, const sn_exec *params)
{
    void *base;
    SN_TRY(get_memory(e, &base));
    for (int i = 0; i < e->program->slots; i++) {
        const sn_slot *s = &e->program->slot[i];
        e->at[i] = (char *) base + s->offset;
        if (params && s->kind == SN_SLOT_PARAM && s->value >= 0)
            SN_TRY(borrow_param(e, i, params));
    }
    return SN_OK;
}

static bool has(const sn_plan_group *g, int rank)
{
    for (int i = 0; i < g->members; i++)
        if (g->rank[i] == rank)
            return true;
    return false;
}

/* The group of `from` with the same members: one set of sequence numbers and buffers serves both.
 */
static sn_coll_group *same_group(const sn_exec *from, const sn_plan_group *g)
{
    for (int i = 0; from && i < from->groups; i++) {
        const sn_plan_group *o = &from->plan->group[i];
        if (from->group[i] && o->members == g->members &&
            !memcmp(o->rank, g->rank, (size_t) g->members * sizeof(*g->rank)))
            return from->group[i];
    }
    return NULL;
}

static sn_status join_groups(sn_exec *e, const sn_exec *params, sn_time deadline)
{
    const sn_plan *plan = e->plan;
    e->groups = plan->groups;
    e->group = sn_alloc((size_t) SN_MAX(1, plan->groups) * sizeof(*e->group));
    e->lent = sn_alloc((size_t) SN_MAX(1, plan->groups) * sizeof(*e->lent));
    for (int i = 0; e->coll && i < plan->groups; i++) {
        const sn_plan_group *g = &plan->group[i];
        if (!has(g, e->program->rank))
            continue;
        e->group[i] = same_group(params, g);
        e->lent[i] = e->group[i] != NULL;
        if (!e->lent[i])
            SN_TRY(sn_coll_group_create(e->coll, g->name, g->rank, g->members, deadline,
                                        &e->group[i]));
    }
    return SN_OK;
}

static sn_time_kind account_of(const sn_instr *n)
{
    return n->phase >= SN_PHASE_REDUCE ? SN_TIME_OPTIMIZER : SN_TIME_COMPUTE;
}

static sn_status prepare_kernel(sn_exec *e, sn_card *card, const sn_instr *n, action *a)
{
    sn_kernel_spec spec = {
        .op = n->op, .attr = n->attr, .ins = n->ins, .outs = n->outs, .accumulate = n->accumulate};
    for (int k = 0; k < n->ins; k++) {
        spec.in[k].absent = n->in[k] < 0;
        if (n->in[k] < 0)
            continue;
        spec.in[k].dtype = e->program->slot[n->in[k]].dtype;
        spec.in[k].shape = e->program->slot[n->in[k]].shape;
        a->in[k] = e->at[n->in[k]];
    }
    for (int k = 0; k < n->outs; k++) {
        spec.out[k].absent = n->out[k] < 0;
        if (n->out[k] < 0)
            continue;
        spec.out[k].dtype = e->program->slot[n->out[k]].dtype;
        spec.out[k].shape = e->program->slot[n->out[k]].shape;
        a->out[k] = e->at[n->out[k]];
    }
    a->account = account_of(n);
    return sn_card_prepare(card, &spec, &a->kernel);
}

static void *slot_at(const sn_exec *e, int slot)
{
    return slot >= 0 ? e->at[slot] : NULL;
}

static sn_status prepare_transfer(sn_exec *e, const sn_instr *n, action *a)
{
    if (!e->coll)
        return sn_fail(SN_EINVAL, "a program of one card asks for a transfer");
    a->ticket = n->ticket;
    e->account[n->ticket] = SN_TIME_PIPELINE;
    if (n->kind == SN_INSTR_COLL) {
        if (e->plan->group[n->group].axis != SN_AXIS_PIPELINE)
            e->account[n->ticket] = SN_TIME_COLLECTIVE;
        a->group = e->group[n->group];
        if (!a->group)
            return sn_fail(SN_EINVAL, "rank %d is no member of group %s", e->program->rank,
                           e->plan->group[n->group].name);
        a->call = (sn_coll_call){.op = n->coll,
                                 .red = n->red,
                                 .dtype = n->dtype,
                                 .count = n->count,
                                 .in = slot_at(e, n->in[0]),
                                 .out = slot_at(e, n->out[0]),
                                 .priority = n->priority};
        return SN_OK;
    }
    int slot = n->kind == SN_INSTR_SEND ? n->in[0] : n->out[0];
    a->out[0] = slot_at(e, slot);
    a->bytes = n->count > 0 ? (uint64_t) n->count * sn_dtype_bytes(n->dtype)
                            : e->program->slot[slot].bytes;
    a->peer = n->peer;
    a->tag = n->tag;
    return SN_OK;
}

static sn_status prepare(sn_exec *e, sn_card *card)
{
    for (int i = 0; i < e->program->instrs; i++) {
        const sn_instr *n = &e->program->instr[i];
        action *a = &e->actions[i];
        a->kind = n->kind;
        sn_status status = SN_OK;
        if (n->kind == SN_INSTR_KERNEL) {
            status = prepare_kernel(e, card, n, a);
        } else if (n->kind == SN_INSTR_WAIT) {
            a->ticket = n->ticket;
            a->account = e->account[n->ticket];
        } else {
            status = prepare_transfer(e, n, a);
        }
        if (status < 0)
            return failed(e, i, status);
    }
    return SN_OK;
}

sn_status sn_exec_create_sharing(const sn_plan *plan, const sn_program *program, sn_card *card,
                                 sn_coll *c, const sn_exec *params, sn_time deadline, sn_exec **ret)
{
    sn_exec *e = sn_alloc(sizeof(*e));
    e->plan = plan;
    e->program = program;
    e->coll = c;
    e->at = sn_alloc((size_t) SN_MAX(1, program->slots) * sizeof(*e->at));
    e->actions = sn_alloc((size_t) SN_MAX(1, program->instrs) * sizeof(*e->actions));
    e->req = sn_alloc((size_t) SN_MAX(1, program->tickets) * sizeof(*e->req));
    e->account = sn_alloc((size_t) SN_MAX(1, program->tickets) * sizeof(*e->account));
    sn_status status = place_slots(e, params);
    if (status >= 0)
        status = join_groups(e, params, deadline);
    if (status >= 0)
        status = prepare(e, card);
    if (status < 0) {
        sn_exec_free(e);
        return status;
    }
    *ret = e;
    return SN_OK;
}

sn_status sn_exec_create(const sn_plan *plan, const sn_program *program, sn_card *card, sn_coll *c,
                         sn_time deadline, sn_exec **ret)
{
    return sn_exec_create_sharing(plan, program, card, c, NULL, deadline, ret);
}

void sn_exec_free(sn_exec *e)
{
    if (!e)
        return;
    for (int i = 0; e->group && i < e->groups; i++)
        if (e->group[i] && !e->lent[i])
            sn_coll_group_free(e->group[i]);
    free(e->group);
    free(e->lent);
    free(e->account);
    free(e->own);
    free(e->at);
    free(e->actions);
    free(e->req);
    free(e);
}

void *sn_exec_slot(sn_exec *e, int slot)
{
    return slot_at(e, slot);
}

/* ---- running ---- */

typedef struct meter { /* whose time it is */
    int64_t *time_ns;
    sn_time_kind account;
    sn_time since;
} meter;

static void switch_to(meter *m, sn_time_kind account)
{
    if (m->account == account)
        return;
    sn_time now = sn_now();
    m->time_ns[m->account] += now - m->since;
    m->since = now;
    m->account = account;
}

static sn_status post(sn_exec *e, const action *a, sn_time deadline, sn_coll_req **ret)
{
    if (a->kind == SN_INSTR_COLL)
        return sn_coll_post(a->group, &a->call, deadline, ret);
    if (a->kind == SN_INSTR_SEND)
        return sn_coll_send(e->coll, a->peer, a->tag, a->out[0], a->bytes, deadline, ret);
    return sn_coll_recv(e->coll, a->peer, a->tag, a->out[0], a->bytes, deadline, ret);
}

/* Give back the requests that are done: the pool behind `post` is finite. */
static sn_status reap(sn_exec *e)
{
    for (int t = 0; t < e->program->tickets; t++) {
        if (!e->req[t])
            continue;
        sn_status status = sn_coll_test(e->req[t]);
        if (status == SN_PENDING)
            continue;
        e->req[t] = NULL;
        e->open--;
        if (status < 0)
            return status;
    }
    return SN_OK;
}

static sn_status start(sn_exec *e, const action *a, sn_time patience)
{
    sn_time deadline = sn_now() + patience;
    sn_coll_req *req = NULL;
    sn_status status;
    while ((status = post(e, a, deadline, &req)) == SN_AGAIN) {
        SN_TRY(reap(e));
        sn_coll_progress(e->coll);
        if (sn_now() > deadline)
            return sn_fail(SN_ETIME, "no request came free");
    }
    SN_TRY(status);
    e->req[a->ticket] = req;
    e->open++;
    return SN_OK;
}

static sn_status finish(sn_exec *e, const action *a, meter *m)
{
    sn_coll_req *req = e->req[a->ticket];
    if (!req)
        return SN_OK; /* reaped earlier */
    sn_status status = sn_coll_test(req);
    if (status == SN_PENDING) {
        switch_to(m, a->account);
        status = sn_coll_wait(req);
    }
    e->req[a->ticket] = NULL;
    e->open--;
    return status;
}

sn_status sn_exec_run(sn_exec *e, int first, int last, sn_time deadline,
                      int64_t time_ns[SN_TIME_KINDS])
{
    meter m = {.time_ns = time_ns, .account = SN_TIME_OTHER, .since = sn_now()};
    sn_time patience = SN_MAX(0, deadline - m.since);
    sn_status status = SN_OK;
    int i = first;
    for (; i < last && status >= 0; i++) {
        const action *a = &e->actions[i];
        if (a->kind == SN_INSTR_KERNEL) {
            switch_to(&m, a->account);
            status = sn_kernel_run(a->kernel, a->in, a->out);
            if (e->open > 0)
                sn_coll_progress(e->coll);
        } else if (a->kind == SN_INSTR_WAIT) {
            status = finish(e, a, &m);
        } else {
            status = start(e, a, patience);
        }
    }
    time_ns[m.account] += sn_now() - m.since;
    return status < 0 ? failed(e, i - 1, status) : SN_OK;
}
