/* SPDX-License-Identifier: Apache-2.0
 *
 * hierarchical — inside a host by loads and stores, and straight between all hosts (lanes.h).
 *
 *   all_reduce   each lane cuts its slice into a piece a host: a piece goes to its owner, who adds
 *                all of them in host order with one rounding, and comes back: two latencies,
 *                2(h-1)/h of the slice on the wire. A small one goes whole, one latency
 *
 * Fits every group of several hosts, and every operation. A member sends to h-1 others at once,
 * which among many hosts is what it costs. What is only one member's travels as it is: where hosts
 * have a member each no sum is ever sent, and bf16 stays bf16.
 *
 * Cost: rounds · signal + in-host bytes / memory + 1 or 2 · latency + messages + bytes / wire, the
 * bytes of both in segments that overlap. */
#include "algo/lanes.h"

/* ---- all_reduce ---- */

static algo_range piece(const algo_part *p, int host)
{
    if (p->t->small)
        return (algo_range){.count = p->count};
    return algo_slice(p->count, p->t->m.hosts, host);
}

static int64_t came(const algo_lanes *t, int64_t count)
{
    return t->m.hosts * (t->small ? count : algo_slice(count, t->m.hosts, 0).count);
}

/* Where host h's contribution to my piece comes to. */
static sn_place came_from(const algo_part *p, int h)
{
    int64_t at = piece(p, p->t->host).count * h;
    return p->t->m.size[h] == 1 ? algo_part_came_as_is(p, at) : algo_part_came(p, at);
}

static sn_place own(const algo_part *p, int64_t off)
{
    return p->t->size == 1 ? algo_part_input(p, off) : algo_part_sum(p, off);
}

/* What goes to others; my own piece is summed with what comes. */
static void enter(const algo_part *p)
{
    algo_range mine = piece(p, p->t->host);
    int64_t end = mine.at + mine.count;
    if (p->t->size == 1)
        return;
    if (p->t->small) {
        algo_part_sum_inputs(p, 0, p->count);
        return;
    }
    algo_part_sum_inputs(p, 0, mine.at);
    algo_part_sum_inputs(p, end, p->count - end);
}

static void post(const algo_part *p, int stage)
{
    const algo_lanes *t = p->t;
    algo_range mine = piece(p, t->host);
    for (int k = 1; k < t->m.hosts; k++) {
        int h = (t->host + k) % t->m.hosts;
        algo_range theirs = piece(p, h);
        if (stage == 0) {
            algo_part_send(p, h, own(p, theirs.at), theirs.count);
            algo_part_recv(p, h, came_from(p, h), mine.count);
        } else {
            algo_part_send(p, h, algo_part_result(p, mine.at), mine.count);
            algo_part_recv(p, h, algo_part_result(p, theirs.at), theirs.count);
        }
    }
}

static void work(const algo_part *p, int stage)
{
    const algo_lanes *t = p->t;
    algo_range mine = piece(p, t->host);
    int srcs;
    if (stage > 0)
        return;
    algo_part_begin(p, &srcs);
    for (int h = 0; h < t->m.hosts; h++) {
        if (h != t->host)
            algo_part_add(p, &srcs, came_from(p, h));
        else if (t->small && t->size > 1)
            algo_part_add(p, &srcs, algo_part_sum(p, 0)); /* all hosts add the same numbers */
        else
            algo_part_add_inputs(p, &srcs, mine.at);
    }
    algo_part_end(p, srcs, mine.at, mine.count, true);
}

static algo_flow flow(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c)
{
    bool small = algo_lanes_small(c);
    double bytes = (double) algo_bytes(c), h = s->hosts, others = h - 1;
    double wide = s->size_max > 1 ? algo_lanes_widened(c) : 1;
    double sent = small ? others * wide * bytes : others / h * (wide + 1) * bytes;
    algo_flow f = algo_lanes_flow(s, c);
    f.stages = small ? 1 : 2;
    f.adding = 1;
    f.works = true;
    f.posts = 2 * (s->hosts - 1) * s->most_lanes;
    f.messages = f.stages * (others * (small ? 1 : s->most_lanes) - 1);
    algo_lanes_sent(&f, s, c, sent, sent);
    algo_flow_both(&f, ALGO_REDUCE, (small ? h + 1 : others / h) * wide * algo_lanes_slice(s, c));
    if (s->size_max == 1) /* only my piece is added, nothing copied */
        algo_flow_both(&f, ALGO_REDUCE, -2 * others / h * algo_lanes_slice(s, c) * !small);
    return f;
}

static const algo_across across = {
    .flow = flow, .came = came, .enter = enter, .post = post, .work = work};

/* ---- broadcast: the root sends to one member of every other host ---- */

static void post_root(const algo_part *p, int stage)
{
    const algo_lanes *t = p->t;
    int root = t->m.host[t->b.call->root];
    for (int k = 1; k < t->m.hosts && t->host == root; k++)
        algo_part_send(p, (root + k) % t->m.hosts, algo_part_result(p, 0), p->count);
    if (t->host != root)
        algo_part_recv(p, root, algo_part_result(p, 0), p->count);
}

static algo_flow flow_root(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c)
{
    double sent = (s->hosts - 1) * (double) algo_bytes(c);
    algo_flow f = algo_lanes_flow(s, c);
    f.stages = 1;
    f.posts = s->hosts - 1;
    f.messages = s->hosts - 2;
    algo_lanes_sent(&f, s, c, sent, sent);
    return f;
}

static const algo_across from_root = {.flow = flow_root, .post = post_root};

/* ---- reduce_scatter, all_gather: blocks, in segments ---- */

typedef struct blocks {
    algo_lanes *t;
    int segments, window;
    int64_t room;
    int *block, count; /* reduce_scatter: members of other hosts whose block I sum for my host */
} blocks;

static algo_range segment(const blocks *x, int s)
{
    return algo_slice(x->t->b.call->count, x->segments, s);
}

/* Block t of every member's IN is reduced on each host by one of its members, who sends the partial
 * sum to member t. */
static void find_blocks(blocks *x)
{
    algo_lanes *t = x->t;
    x->block = SN_NEW_N(t->b.arena, int, t->b.members);
    for (int k = 1; k < t->b.members; k++) {
        int i = (t->me + k) % t->b.members;
        if (t->m.host[i] != t->host && algo_lanes_speaker(t, t->host, t->m.local[i]) == t->me)
            x->block[x->count++] = i;
    }
}

/* My host's part of the k-th of those blocks. */
static sn_place block_part(const blocks *x, int k, int s)
{
    const algo_lanes *t = x->t;
    if (t->size == 1)
        return algo_at(t->me, SN_BUF_IN, t->b.call->count * x->block[k] + segment(x, s).at);
    return algo_at(t->me, t->wide ? SN_BUF_WIDE : SN_BUF_TMP,
                   x->room * ((int64_t) k * x->window + s % x->window));
}

/* What host h sends me, behind my parts. */
static sn_place block_came(const blocks *x, int h, int s)
{
    const algo_lanes *t = x->t;
    return algo_at(t->me, t->wide && t->m.size[h] > 1 ? SN_BUF_WIDE : SN_BUF_TMP,
                   x->room * ((int64_t) (x->count + h) * x->window + s % x->window));
}

static void scatter_enter(void *ctx, int s)
{
    const blocks *x = ctx;
    algo_lanes *t = x->t;
    algo_range r = segment(x, s);
    for (int k = 0; k < x->count && t->size > 1; k++) {
        sn_place part = block_part(x, k, s);
        sn_place *in = algo_lanes_of_host(t, SN_BUF_IN, t->b.call->count * x->block[k] + r.at);
        algo_reduce(&t->b, &part, 1, in, t->size, r.count, false);
    }
}

static void scatter_post(void *ctx, int s, int stage)
{
    const blocks *x = ctx;
    algo_lanes *t = x->t;
    int64_t n = segment(x, s).count;
    for (int k = 0; k < x->count; k++)
        algo_send(&t->b, x->block[k], block_part(x, k, s), n);
    for (int k = 1; k < t->m.hosts; k++) {
        int h = (t->host + k) % t->m.hosts;
        algo_recv(&t->b, algo_lanes_speaker(t, h, t->local), block_came(x, h, s), n);
    }
}

static void scatter_work(void *ctx, int s, int stage)
{
    const blocks *x = ctx;
    algo_lanes *t = x->t;
    algo_range r = segment(x, s);
    int srcs = 0;
    for (int h = 0; h < t->m.hosts; h++) {
        if (h != t->host)
            t->source[srcs++] = block_came(x, h, s);
        for (int l = 0; l < t->size && h == t->host; l++)
            t->source[srcs++] =
                algo_at(algo_map_member(&t->m, h, l), SN_BUF_IN, t->b.call->count * t->me + r.at);
    }
    sn_place out = algo_at(t->me, SN_BUF_OUT, r.at);
    algo_reduce(&t->b, &out, 1, t->source, srcs, r.count, true);
}

static algo_flow scatter_flow(const algo_shape *s, const sn_algo_call *c)
{
    double bytes = (double) algo_bytes(c), l = s->size_max, far = s->members - s->size_min;
    double wide = s->size_max > 1 ? algo_lanes_widened(c) : 1;
    double mine = far / s->size_min; /* blocks of others that I sum */
    algo_flow f = {.stages = 1, .adding = 1, .works = true, .bytes = bytes};
    f.posts = (int) mine + s->hosts;
    f.messages = SN_MAX(mine, s->hosts - 1) - 1;
    f.once.of[ALGO_CALL] = 1;
    f.once.of[ALGO_SIGNAL] = s->size_max > 1 ? 2 : 0;
    algo_flow_both(&f, ALGO_WIRE, wide * far * bytes);
    algo_flow_both(&f, ALGO_SOCKET, wide * (mine + s->hosts - 1) * bytes);
    algo_flow_both(&f, ALGO_REDUCE,
                   ((l > 1 ? mine * (l + wide) : 0) + l + wide * (s->hosts - 1) + 1) * bytes);
    return f;
}

/* A member's block goes to one member of every other host, the others there copy it from that. */
static void gather_post(void *ctx, int s, int stage)
{
    const blocks *x = ctx;
    algo_lanes *t = x->t;
    int64_t n = t->b.call->count;
    algo_range r = segment(x, s);
    for (int k = 1; k < t->m.hosts; k++)
        algo_send(&t->b, algo_lanes_speaker(t, (t->host + k) % t->m.hosts, t->local),
                  algo_at(t->me, SN_BUF_IN, r.at), r.count);
    for (int i = 0; i < t->b.members; i++)
        if (t->m.host[i] != t->host && algo_lanes_speaker(t, t->host, t->m.local[i]) == t->me)
            algo_recv(&t->b, i, algo_at(t->me, SN_BUF_OUT, n * i + r.at), r.count);
}

static void gather_leave(void *ctx, int s)
{
    const blocks *x = ctx;
    algo_lanes *t = x->t;
    int64_t n = t->b.call->count;
    int p = t->b.members;
    algo_range r = segment(x, s);
    if (t->size > 1)
        algo_wait(&t->b, SN_ALL, 2 + s);
    for (int k = 0; k < p; k++) {
        int i = (t->me + k) % p;
        bool here = t->m.host[i] == t->host;
        int from = here ? i : algo_lanes_speaker(t, t->host, t->m.local[i]);
        algo_copy(&t->b, algo_at(t->me, SN_BUF_OUT, n * i + r.at),
                  here ? algo_at(i, SN_BUF_IN, r.at) : algo_at(from, SN_BUF_OUT, n * i + r.at),
                  r.count);
    }
}

/* Of the other hosts' blocks, a member's part comes straight to it. */
static algo_flow gather_flow(const algo_shape *s, const sn_algo_call *c)
{
    double bytes = (double) algo_bytes(c), p = s->members, far = p - s->size_min;
    double mine = far / s->size_min;
    algo_flow f = {.stages = 1, .signals = s->size_max > 1, .bytes = bytes};
    f.posts = (int) mine + s->hosts;
    f.messages = SN_MAX(mine, s->hosts - 1) - 1;
    f.once.of[ALGO_CALL] = 1;
    f.once.of[ALGO_SIGNAL] = s->size_max > 1 ? 2 : 0;
    algo_flow_both(&f, ALGO_WIRE, far * bytes);
    algo_flow_both(&f, ALGO_SOCKET, (mine + s->hosts - 1) * bytes);
    algo_flow_both(&f, ALGO_COPY, (p - mine) * bytes);
    return f;
}

static algo_flow blocks_flow(const algo_shape *s, const sn_algo_call *c)
{
    return c->op == SN_ALL_GATHER ? gather_flow(s, c) : scatter_flow(s, c);
}

static int run_blocks(algo_lanes *t)
{
    const sn_algo_group *g = t->b.group;
    const sn_algo_call *c = t->b.call;
    bool gather = c->op == SN_ALL_GATHER;
    algo_flow f = blocks_flow(&t->shape, c);
    blocks x = {.t = t};
    x.segments = algo_flow_segments(&f, g);
    x.window = algo_pipe_window(x.segments, 1);
    x.room = segment(&x, 0).count;
    if (!gather)
        find_blocks(&x);
    algo_pipe pipe = {.segments = x.segments,
                      .stages = 1,
                      .works = f.works,
                      .signals = gather && t->size > 1,
                      .ctx = &x,
                      .enter = gather ? NULL : scatter_enter,
                      .post = gather ? gather_post : scatter_post,
                      .work = gather ? NULL : scatter_work,
                      .leave = gather ? gather_leave : NULL};
    algo_enter(&t->b);
    algo_pipe_run(&t->b, &pipe);
    if (t->size > 1)
        algo_enter(&t->b);
    return t->shape.size_max == 1 ? 1 : gather ? x.segments + 2 : 2;
}

/* ---- all_to_all, barrier ---- */

/* Half of a pair's exchange inside a host, as in flat: the lower member moves the first half. */
static void swap(algo_lanes *t, int peer)
{
    int64_t n = t->b.call->count;
    algo_range r = algo_slice(n, 2, t->me > peer);
    sn_place tmp = algo_at(t->me, SN_BUF_TMP, 0);
    int64_t x = n * peer + r.at, y = n * t->me + r.at;
    algo_copy(&t->b, tmp, algo_at(t->me, SN_BUF_IN, x), r.count);
    algo_copy(&t->b, algo_at(t->me, SN_BUF_OUT, x), algo_at(peer, SN_BUF_IN, y), r.count);
    algo_copy(&t->b, algo_at(peer, SN_BUF_OUT, y), tmp, r.count);
}

static void all_to_all(algo_lanes *t)
{
    int64_t n = t->b.call->count;
    int p = t->b.members;
    sn_buf into = t->b.call->in_place ? SN_BUF_TMP : SN_BUF_OUT;
    algo_enter(&t->b);
    for (int k = 1; k < p; k++) {
        int to = (t->me + k) % p, from = (t->me + p - k) % p;
        if (t->m.host[to] != t->host)
            algo_send(&t->b, to, algo_at(t->me, SN_BUF_IN, n * to), n);
        if (t->m.host[from] != t->host)
            algo_recv(&t->b, from,
                      algo_at(t->me, into, into == SN_BUF_TMP ? n * (1 + from) : n * from), n);
    }
    algo_copy(&t->b, algo_at(t->me, SN_BUF_OUT, n * t->me), algo_at(t->me, SN_BUF_IN, n * t->me),
              n);
    for (int i = 0; i < t->size; i++) {
        int peer = algo_map_member(&t->m, t->host, (t->local + i) % t->size);
        if (peer != t->me)
            swap(t, peer);
    }
    algo_fence(&t->b);
    for (int i = 0; i < p && into == SN_BUF_TMP; i++)
        if (t->m.host[i] != t->host)
            algo_copy(&t->b, algo_at(t->me, SN_BUF_OUT, n * i),
                      algo_at(t->me, SN_BUF_TMP, n * (1 + i)), n);
    algo_enter(&t->b);
}

/* One byte between the first members tells each host that the others have all come. */
static void barrier(algo_lanes *t)
{
    algo_enter(&t->b);
    if (t->local == 0) {
        for (int k = 1; k < t->m.hosts; k++) {
            int h = (t->host + k) % t->m.hosts, peer = algo_map_member(&t->m, h, 0);
            algo_send(&t->b, peer, algo_at(t->me, SN_BUF_NOTE, 0), 1);
            algo_recv(&t->b, peer, algo_at(t->me, SN_BUF_TMP, h), 1);
        }
        algo_fence(&t->b);
        algo_signal(&t->b);
    }
    algo_wait(&t->b, t->leader, 2);
}

static sn_status schedule(const sn_algo_group *g, const sn_algo_call *c, int me, sn_arena *arena,
                          sn_sched *ret)
{
    if (c->op == SN_ALL_REDUCE || c->op == SN_BROADCAST)
        return algo_lanes_schedule(g, c, me, arena, "hierarchical",
                                   c->op == SN_BROADCAST ? &from_root : &across, ret);
    algo_lanes t = algo_lanes_begin(g, c, me, arena);
    int rounds = 2;
    if (c->op == SN_REDUCE_SCATTER || c->op == SN_ALL_GATHER)
        rounds = run_blocks(&t);
    else if (c->op == SN_ALL_TO_ALL)
        all_to_all(&t);
    else if (c->op == SN_BARRIER)
        barrier(&t);
    else
        algo_rooted_straight(&t);
    algo_build_end(&t.b, "hierarchical", rounds, c->op != SN_BARRIER && t.shape.size_max > 1, ret);
    return SN_OK;
}

static void count(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c,
                  const sn_algo_model *m, algo_counts *ret)
{
    double bytes = (double) algo_bytes(c), p = s->members, l = s->size_max;
    double far = p - s->size_min;
    algo_flow f;
    *ret = (algo_counts){.of = {[ALGO_CALL] = 1, [ALGO_SIGNAL] = 2, [ALGO_LATENCY] = 1}};
    switch (c->op) {
    case SN_ALL_REDUCE:
        algo_lanes_count(s, g, c, m, &across, ret);
        return;
    case SN_BROADCAST:
        algo_lanes_count(s, g, c, m, &from_root, ret);
        return;
    case SN_REDUCE_SCATTER:
    case SN_ALL_GATHER:
        f = blocks_flow(s, c);
        algo_flow_count(&f, g, m, ret);
        return;
    case SN_ALL_TO_ALL:
        ret->of[ALGO_COPY] = 2 * p * bytes;
        ret->of[ALGO_MESSAGE] = far - 1;
        ret->of[ALGO_WIRE] = (p - l) * l * bytes;
        ret->of[ALGO_SOCKET] = 2 * far * bytes;
        return;
    case SN_GATHER:
    case SN_SCATTER:
        ret->of[ALGO_COPY] = l > 1 ? bytes : 0;
        ret->of[ALGO_MESSAGE] = far - 1;
        ret->of[ALGO_WIRE] = far * bytes;
        ret->of[ALGO_SOCKET] = far * bytes;
        return;
    case SN_BARRIER:
    case SN_COLL_OPS:
        break;
    }
    ret->of[ALGO_MESSAGE] = s->hosts - 2;
}

const sn_algo_row algo_hierarchical = {
    .name = "hierarchical",
    .needs = "several hosts",
    .ops = (1u << SN_COLL_OPS) - 1,
    .notes = true,
    .fits = algo_lanes_fits,
    .schedule = schedule,
    .count = count,
};
