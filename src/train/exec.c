/* SPDX-License-Identifier: Apache-2.0
 *
 * exec — runs a program on this card: looks everything up once, then walks a flat list.
 *
 *   sn_instr  ──create──▶  action { kernel, pointers | call | peer }   ──run──▶  one after another
 *
 * While an operation is under way the transport is driven between kernels; a wait first asks, and
 * only when it would really wait does the clock get read and the time go to another account. */
#include <stdlib.h>
#include <string.h>

#include "os/os.h"
#include "train/parts.h"

typedef struct action {
    sn_instr_kind kind;
    sn_time_kind account; /* of a kernel's or a wait's time */
    bool forward;         /* evaluating runs it too */
    const char *begins;   /* what the control page says from here on, NULL: as before */
    int ticket;
    sn_kernel *kernel;
    const void *in[SN_OP_IN_MAX];
    void *out[SN_OP_OUT_MAX];
    sn_coll_group *group;
    sn_coll_call call;
    sn_compress *coded; /* encoded between hosts; NULL: not */
    int peer;
    uint32_t tag;
    uint64_t bytes;
} action;

typedef struct ticket {
    sn_time_kind account; /* of a wait for it */
    bool forward;         /* its operation is part of the forward pass */
    int post;             /* the instruction that posts it */
    sn_time posted;       /* while traced */
} ticket;

struct sn_exec {
    const sn_plan *plan;
    const sn_program *program;
    sn_coll *coll;
    void *own;             /* memory of a world of one; else coll's */
    void **at;             /* [slots] */
    action *actions;       /* [instrs] */
    sn_coll_group **group; /* [groups], NULL: I am no member */
    int groups;
    sn_coll_req **req;   /* [tickets], NULL: not under way */
    sn_compress **coded; /* [tickets], NULL: not under way */
    train_wires *wires;  /* NULL: nothing is encoded */
    sn_exec_wire wire;
    ticket *ticket;        /* [tickets] */
    int *flying;           /* [tickets] those under way, `open` of them */
    int open;              /* tickets under way */
    sn_time flying_since;  /* open > 0: since when */
    int64_t flying_ns;     /* time with something under way, until then */
    bool updates;          /* the program changes the masters */
    bool fresh;            /* the working parameters are those of the masters */
    bool alone;            /* nothing is computed while a collective is under way */
    train_trace *trace;    /* NULL: nobody wants one */
    sn_page *page;         /* says what is being done; may be NULL */
    sn_recorder *recorder; /* likewise */
    sn_arena *arena;       /* of the texts for it */
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
    sn_memory_prefer_large(e->own, bytes);
    memset(e->own, 0, bytes); /* touched here, not in the first step */
    *ret = e->own;
    return SN_OK;
}

static sn_status place_slots(sn_exec *e)
{
    void *base;
    SN_TRY(get_memory(e, &base));
    for (int i = 0; i < e->program->slots; i++)
        e->at[i] = (char *) base + e->program->slot[i].offset;
    return SN_OK;
}

static bool has(const sn_plan_group *g, int rank)
{
    for (int i = 0; i < g->members; i++)
        if (g->rank[i] == rank)
            return true;
    return false;
}

static sn_status join_groups(sn_exec *e, sn_time deadline)
{
    const sn_plan *plan = e->plan;
    e->groups = plan->groups;
    e->group = sn_alloc((size_t) SN_MAX(1, plan->groups) * sizeof(*e->group));
    for (int i = 0; e->coll && i < plan->groups; i++) {
        const sn_plan_group *g = &plan->group[i];
        if (has(g, e->program->rank))
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
    e->ticket[n->ticket] = (ticket){
        .account = SN_TIME_PIPELINE, .forward = a->forward, .post = (int) (n - e->program->instr)};
    if (n->kind == SN_INSTR_COLL) {
        if (e->plan->group[n->group].axis != SN_AXIS_PIPELINE)
            e->ticket[n->ticket].account = SN_TIME_COLLECTIVE;
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
        a->coded = n->wire ? train_wires_get(e->wires, n->wire - 1) : NULL;
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

/* Is this part of computing the loss alone? The parameters, what comes from a forward node, the
 * clearing of the scalars before, and their sum over the job after. */
static bool is_forward(const sn_exec *e, const sn_instr *n)
{
    int scalars = e->program->scalars;
    if (n->phase == SN_PHASE_GATHER)
        return true;
    if (n->node >= 0)
        return !e->plan->graph->node[n->node].backward;
    return scalars >= 0 && n->outs > 0 && n->out[0] == scalars;
}

/* Where the program changes from one phase and micro-batch to the next, in words for the page. */
static void name_phases(sn_exec *e)
{
    static const char *const phase[] = {"computing forward", "computing backward",
                                        "reducing gradients", "updating parameters",
                                        "gathering parameters"};
    const sn_instr *before = NULL;
    for (int i = 0; i < e->program->instrs; i++) {
        const sn_instr *n = &e->program->instr[i];
        if (n->kind != SN_INSTR_KERNEL ||
            (before && before->phase == n->phase && before->micro == n->micro))
            continue;
        before = n;
        e->actions[i].begins = n->micro < 0 ? phase[n->phase]
                                            : sn_arena_printf(e->arena, "%s, micro-batch %d",
                                                              phase[n->phase], n->micro);
    }
}

static sn_status prepare(sn_exec *e, sn_card *card)
{
    name_phases(e);
    for (int i = 0; i < e->program->instrs; i++) {
        const sn_instr *n = &e->program->instr[i];
        action *a = &e->actions[i];
        a->kind = n->kind;
        e->updates |= n->phase == SN_PHASE_OPTIMIZER;
        a->forward = is_forward(e, n);
        sn_status status = SN_OK;
        if (n->kind == SN_INSTR_KERNEL) {
            status = prepare_kernel(e, card, n, a);
        } else if (n->kind == SN_INSTR_WAIT) {
            a->ticket = n->ticket;
            a->account = e->ticket[n->ticket].account;
            a->forward = e->ticket[n->ticket].forward;
        } else {
            status = prepare_transfer(e, n, a);
        }
        if (status < 0)
            return failed(e, i, status);
    }
    return SN_OK;
}

sn_status sn_exec_create(const sn_plan *plan, const sn_program *program, sn_card *card, sn_coll *c,
                         sn_time deadline, sn_exec **ret)
{
    sn_exec *e = sn_alloc(sizeof(*e));
    e->plan = plan;
    e->program = program;
    e->coll = c;
    e->arena = sn_arena_create();
    e->at = sn_alloc((size_t) SN_MAX(1, program->slots) * sizeof(*e->at));
    e->actions = sn_alloc((size_t) SN_MAX(1, program->instrs) * sizeof(*e->actions));
    e->req = sn_alloc((size_t) SN_MAX(1, program->tickets) * sizeof(*e->req));
    e->coded = sn_alloc((size_t) SN_MAX(1, program->tickets) * sizeof(*e->coded));
    e->ticket = sn_alloc((size_t) SN_MAX(1, program->tickets) * sizeof(*e->ticket));
    e->flying = sn_alloc((size_t) SN_MAX(1, program->tickets) * sizeof(*e->flying));
    sn_status status = place_slots(e);
    if (status >= 0)
        status = join_groups(e, deadline);
    if (status >= 0 && program->wires > 0 && c)
        status = train_wires_open(plan, program, c, e->group, deadline, &e->wires);
    if (status >= 0)
        status = prepare(e, card);
    if (status < 0) {
        sn_exec_free(e);
        return status;
    }
    *ret = e;
    return SN_OK;
}

void sn_exec_free(sn_exec *e)
{
    if (!e)
        return;
    train_wires_close(e->wires);
    for (int i = 0; e->group && i < e->groups; i++)
        if (e->group[i])
            sn_coll_group_free(e->group[i]);
    free(e->group);
    free(e->ticket);
    free(e->flying);
    free(e->own);
    free(e->at);
    free(e->actions);
    free(e->req);
    free(e->coded);
    sn_arena_free(e->arena);
    free(e);
}

void sn_exec_tell(sn_exec *e, sn_page *page)
{
    e->page = page;
}

void sn_exec_record(sn_exec *e, sn_recorder *recorder)
{
    e->recorder = recorder;
}

void sn_exec_overlap(sn_exec *e, bool overlap)
{
    e->alone = !overlap;
}

int64_t sn_exec_flying_ns(const sn_exec *e)
{
    return e->flying_ns;
}

bool sn_exec_fresh(const sn_exec *e)
{
    return e->fresh;
}

void train_exec_trace(sn_exec *e, train_trace *trace)
{
    e->trace = trace;
}

void *sn_exec_slot(sn_exec *e, int slot)
{
    return slot_at(e, slot);
}

train_wires *train_exec_wires(const sn_exec *e)
{
    return e->wires;
}

void sn_exec_set_wire(sn_exec *e, sn_exec_wire wire)
{
    bool changes = e->wire != wire;
    e->wire = wire;
    if (e->wires && changes)
        train_wires_plain(e->wires, wire != SN_WIRE_CODED);
}

/* ---- running ---- */

typedef struct meter { /* whose time it is */
    int64_t *time_ns;
    sn_time_kind account;
    sn_time since, cpu_since;
} meter;

/* Book the time since the last look. While computing only the processor's time counts: a card that
 * shares its core stands still now and then, and that is not its computing. */
static void book(meter *m)
{
    sn_time now = sn_now(), spent = now - m->since;
    if (m->account == SN_TIME_COMPUTE || m->account == SN_TIME_OPTIMIZER) {
        sn_time cpu = sn_now_thread(), worked = SN_MIN(spent, cpu - m->cpu_since);
        m->time_ns[m->account] += worked;
        m->time_ns[SN_TIME_OTHER] += spent - worked;
    } else {
        m->time_ns[m->account] += spent;
    }
    m->since = now;
}

static void switch_to(meter *m, sn_time_kind account)
{
    if (m->account == account)
        return;
    book(m);
    m->account = account;
    if (account == SN_TIME_COMPUTE || account == SN_TIME_OPTIMIZER)
        m->cpu_since = sn_now_thread();
}

/* Everybody's part of what was seen, from where it lies. */
static sn_status post_seen(sn_exec *e, const action *a, sn_time deadline, sn_coll_req **ret)
{
    sn_coll_call call = a->call;
    call.in = (const float *) call.out + sn_coll_group_me(a->group) * call.count;
    return sn_coll_post(a->group, &call, deadline, ret);
}

static sn_status post_coded(sn_exec *e, const action *a, sn_time deadline)
{
    const sn_coll_call *c = &a->call;
    sn_status status;
    if (c->op == SN_ALL_GATHER)
        status = sn_compress_all_gather(a->coded, c->in, c->out, c->priority, deadline);
    else if (c->op == SN_ALL_REDUCE)
        status = sn_compress_all_reduce(a->coded, c->out, c->red, c->priority, deadline);
    else /* the gradients of a step are not read again */
        status = sn_compress_reduce_scatter(a->coded, (float *) c->in, c->out, c->red, c->priority,
                                            deadline);
    if (status == SN_OK)
        e->coded[a->ticket] = a->coded;
    return status;
}

static sn_status post(sn_exec *e, const action *a, sn_time deadline, sn_coll_req **ret)
{
    if (a->coded && a->call.op == SN_ALL_GATHER && e->wire == SN_WIRE_SEEN)
        return post_seen(e, a, deadline, ret);
    if (a->coded)
        return post_coded(e, a, deadline);
    if (a->kind == SN_INSTR_COLL)
        return sn_coll_post(a->group, &a->call, deadline, ret);
    if (a->kind == SN_INSTR_SEND)
        return sn_coll_send(e->coll, a->peer, a->tag, a->out[0], a->bytes, deadline, ret);
    return sn_coll_recv(e->coll, a->peer, a->tag, a->out[0], a->bytes, deadline, ret);
}

static void takes_off(sn_exec *e, int t)
{
    sn_time now = e->open == 0 || e->trace ? sn_now() : 0;
    if (e->open == 0)
        e->flying_since = now;
    e->ticket[t].posted = now;
    e->flying[e->open++] = t;
}

/* Number k of those under way is done. */
static void lands(sn_exec *e, int k)
{
    int t = e->flying[k];
    e->req[t] = NULL;
    e->coded[t] = NULL;
    e->flying[k] = e->flying[--e->open];
    if (e->open > 0 && !e->trace)
        return;
    sn_time now = sn_now();
    if (e->open == 0)
        e->flying_ns += now - e->flying_since;
    if (e->trace && e->ticket[t].posted)
        train_trace_add(e->trace, e->ticket[t].post, e->ticket[t].posted, now);
}

/* Give back the requests that are done: the pool behind `post` is finite, and when a transfer ended
 * is known as of the end of the kernel beside it. */
static sn_status reap(sn_exec *e)
{
    for (int k = e->open - 1; k >= 0; k--) {
        int t = e->flying[k];
        sn_status status = e->coded[t] ? sn_compress_test(e->coded[t]) : sn_coll_test(e->req[t]);
        if (status == SN_PENDING)
            continue;
        lands(e, k);
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
    takes_off(e, a->ticket);
    return SN_OK;
}

static sn_status progress(sn_exec *e)
{
    sn_coll_progress(e->coll);
    if (e->wires)
        train_wires_progress(e->wires);
    return reap(e);
}

/* Wait for a ticket; one that was reaped is done. */
static sn_status finish(sn_exec *e, int t, sn_time_kind account, meter *m)
{
    int k = 0;
    sn_coll_req *req = e->req[t];
    sn_compress *z = e->coded[t];
    if (!req && !z)
        return SN_OK;
    sn_status status = z ? sn_compress_test(z) : sn_coll_test(req);
    if (status == SN_PENDING) {
        sn_time since = e->trace ? sn_now() : 0;
        switch_to(m, account);
        status = z ? sn_compress_wait(z) : sn_coll_wait(req);
        if (e->trace)
            train_trace_add(e->trace, train_trace_wait(e->ticket[t].post), since, sn_now());
    }
    while (e->flying[k] != t)
        k++;
    lands(e, k);
    return status;
}

static sn_status run_kernel(sn_exec *e, const action *a, meter *m)
{
    switch_to(m, a->account);
    sn_time since = e->trace ? sn_now() : 0;
    SN_TRY(sn_kernel_run(a->kernel, a->in, a->out));
    if (e->trace)
        train_trace_add(e->trace, (int) (a - e->actions), since, sn_now());
    return e->open > 0 ? progress(e) : SN_OK;
}

static sn_status run_post(sn_exec *e, const action *a, sn_time patience, meter *m)
{
    SN_TRY(start(e, a, patience));
    return e->alone && a->kind == SN_INSTR_COLL
               ? finish(e, a->ticket, e->ticket[a->ticket].account, m)
               : SN_OK;
}

static sn_status run_action(sn_exec *e, const action *a, sn_time patience, meter *m)
{
    if (a->begins) {
        sn_page_op(e->page, a->begins, 0);
        sn_recorder_doing(e->recorder, a->begins);
    }
    if (a->kind == SN_INSTR_KERNEL)
        return run_kernel(e, a, m);
    return a->kind == SN_INSTR_WAIT ? finish(e, a->ticket, a->account, m)
                                    : run_post(e, a, patience, m);
}

/* What a part of the program left under way. */
static sn_status finish_all(sn_exec *e, meter *m)
{
    while (e->open > 0) {
        int t = e->flying[e->open - 1];
        sn_status status = finish(e, t, e->ticket[t].account, m);
        if (status < 0)
            return failed(e, e->ticket[t].post, status);
    }
    return SN_OK;
}

typedef enum part { ALL, FORWARD, GATHER } part;

static bool belongs(const sn_exec *e, int i, part what)
{
    bool gathers = i >= e->program->gather_first && i < e->program->gather_last;
    if (what == GATHER)
        return gathers;
    return (what == ALL || e->actions[i].forward) && !(gathers && e->fresh);
}

static sn_status run(sn_exec *e, part what, sn_time deadline, int64_t time_ns[SN_TIME_KINDS])
{
    meter m = {.time_ns = time_ns, .account = SN_TIME_OTHER, .since = sn_now()};
    sn_time patience = SN_MAX(0, deadline - m.since);
    int last = what == GATHER ? e->program->gather_last : e->program->instrs;
    for (int i = what == GATHER ? e->program->gather_first : 0; i < last; i++) {
        sn_status status = SN_OK;
        if (belongs(e, i, what))
            status = run_action(e, &e->actions[i], patience, &m);
        if (status < 0)
            return failed(e, i, status);
    }
    sn_status status = finish_all(e, &m);
    book(&m);
    e->fresh = what != ALL || !e->updates;
    return status;
}

sn_status sn_exec_run(sn_exec *e, sn_time deadline, int64_t time_ns[SN_TIME_KINDS])
{
    return run(e, ALL, deadline, time_ns);
}

sn_status sn_exec_run_forward(sn_exec *e, sn_time deadline, int64_t time_ns[SN_TIME_KINDS])
{
    return run(e, FORWARD, deadline, time_ns);
}

sn_status sn_exec_gather(sn_exec *e, sn_time deadline, int64_t time_ns[SN_TIME_KINDS])
{
    return run(e, GATHER, deadline, time_ns);
}
