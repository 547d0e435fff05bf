/* SPDX-License-Identifier: Apache-2.0
 *
 * rooted — gather and scatter across hosts: straight between the root and everybody (a row of
 * `hierarchical`), or along a binomial tree of hosts (`binomial`).
 *
 *   straight   every member of another host ──its block──▶ root           p-l messages, no copies
 *
 *   tree       0 ◀── 4 ◀── 6 ◀── 7    hosts as seen from the root's, the first member of each
 *              │     └──── 5          collects its host's blocks and those of the hosts below it
 *              ├──── 2 ◀── 3          and passes all on as one message: ⌈log2 h⌉ latencies
 *              └──── 1
 *
 * On the root's host everybody copies its own block, at the same time. scatter is the same
 * backwards. Nothing of the others' OUT (gather) or IN (scatter) is touched. */
#include "algo/lanes.h"

static sn_place block_of(const algo_lanes *t, int member, sn_buf buf, int block)
{
    return algo_at(member, buf, t->b.call->count * block);
}

/* Everybody on the root's host, the root too. */
static void near_root(algo_lanes *t)
{
    int root = t->b.call->root;
    int64_t n = t->b.call->count;
    if (t->b.call->op == SN_GATHER)
        algo_copy(&t->b, block_of(t, root, SN_BUF_OUT, t->me), algo_at(t->me, SN_BUF_IN, 0), n);
    else
        algo_copy(&t->b, algo_at(t->me, SN_BUF_OUT, 0), block_of(t, root, SN_BUF_IN, t->me), n);
    algo_signal(&t->b);
    if (t->me == root)
        algo_wait(&t->b, SN_ALL, 2);
}

void algo_rooted_straight(algo_lanes *t)
{
    int root = t->b.call->root;
    int64_t n = t->b.call->count;
    bool gather = t->b.call->op == SN_GATHER, near = t->host == t->m.host[root];
    algo_enter(&t->b);
    for (int k = 1; k < t->b.members && t->me == root; k++) {
        int i = (root + k) % t->b.members;
        if (t->m.host[i] == t->host)
            continue;
        if (gather)
            algo_recv(&t->b, i, block_of(t, root, SN_BUF_OUT, i), n);
        else
            algo_send(&t->b, i, block_of(t, root, SN_BUF_IN, i), n);
    }
    if (!near && gather)
        algo_send(&t->b, root, algo_at(t->me, SN_BUF_IN, 0), n);
    if (!near && !gather)
        algo_recv(&t->b, root, algo_at(t->me, SN_BUF_OUT, 0), n);
    if (near)
        near_root(t);
}

/* ---- the tree ---- */

typedef struct tree {
    algo_lanes *t;
    int hosts, at; /* my host, counted from the root's */
} tree;

static int host_at(const tree *s, int at)
{
    return (s->t->m.host[s->t->b.call->root] + at) % s->hosts;
}

static int speaker(const tree *s, int at)
{
    return at == 0 ? s->t->b.call->root : algo_map_member(&s->t->m, host_at(s, at), 0);
}

/* Blocks of the hosts [from, to), counted from the root's. */
static int64_t blocks(const tree *s, int from, int to)
{
    int n = 0;
    for (int a = from; a < to; a++)
        n += s->t->m.size[host_at(s, a)];
    return n;
}

/* The hosts [at, below(at)) hang on `at`. */
static int below(const tree *s, int at)
{
    return at == 0 ? s->hosts : SN_MIN(s->hosts, at + (at & -at));
}

/* Where in my scratch the blocks of host `at` are: mine first, of those that I pass on. */
static sn_place scratch(const tree *s, int at)
{
    int64_t n = s->t->b.call->count;
    return algo_at(s->t->me, SN_BUF_TMP, n * blocks(s, SN_MAX(s->at, 1), at));
}

/* The hosts right below mine, the farthest first: what it hangs on itself takes longest. */
static void children(tree *s, bool send)
{
    int far = 1;
    while (s->at + far < below(s, s->at))
        far *= 2;
    for (far /= 2; far > 0; far /= 2) {
        int child = s->at + far;
        if (child >= below(s, s->at))
            continue;
        int64_t n = s->t->b.call->count * blocks(s, child, below(s, child));
        if (send)
            algo_send(&s->t->b, speaker(s, child), scratch(s, child), n);
        else
            algo_recv(&s->t->b, speaker(s, child), scratch(s, child), n);
    }
}

/* Between my scratch and the members of host `at`: their blocks in the root's buffer, or their own
 * buffers on my host. */
static void unpack(tree *s, int at)
{
    algo_lanes *t = s->t;
    int64_t n = t->b.call->count;
    bool gather = t->b.call->op == SN_GATHER, root = s->at == 0;
    for (int l = 0; l < t->m.size[host_at(s, at)]; l++) {
        int i = algo_map_member(&t->m, host_at(s, at), l);
        sn_buf buf = gather == root ? SN_BUF_OUT : SN_BUF_IN;
        sn_place far = root ? block_of(t, t->me, buf, i) : algo_at(i, buf, 0);
        sn_place here = scratch(s, at);
        here.at += n * l;
        if (gather == root)
            algo_copy(&t->b, far, here, n);
        else
            algo_copy(&t->b, here, far, n);
    }
}

static void gather_root(tree *s)
{
    children(s, false);
    near_root(s->t);
    algo_fence(&s->t->b);
    for (int a = 1; a < s->hosts; a++)
        unpack(s, a);
}

static void scatter_root(tree *s)
{
    for (int a = 1; a < s->hosts; a++)
        unpack(s, a);
    children(s, true);
    near_root(s->t);
}

static void gather_speaker(tree *s)
{
    children(s, false);
    unpack(s, s->at);
    algo_signal(&s->t->b);
    algo_fence(&s->t->b);
    algo_send(&s->t->b, speaker(s, s->at & (s->at - 1)), scratch(s, s->at),
              s->t->b.call->count * blocks(s, s->at, below(s, s->at)));
}

static void scatter_speaker(tree *s)
{
    algo_recv(&s->t->b, speaker(s, s->at & (s->at - 1)), scratch(s, s->at),
              s->t->b.call->count * blocks(s, s->at, below(s, s->at)));
    algo_fence(&s->t->b);
    children(s, true);
    unpack(s, s->at);
    algo_signal(&s->t->b);
}

void algo_rooted_tree(algo_lanes *t)
{
    int hosts = t->m.hosts, root_host = t->m.host[t->b.call->root];
    tree s = {.t = t, .hosts = hosts, .at = (t->host - root_host + hosts) % hosts};
    bool gather = t->b.call->op == SN_GATHER;
    algo_enter(&t->b);
    if (t->me != speaker(&s, s.at)) {
        if (s.at == 0)
            near_root(t);
        else /* my block is taken from me, or brought */
            algo_wait(&t->b, speaker(&s, s.at), 2);
        return;
    }
    if (s.at == 0)
        (gather ? gather_root : scatter_root)(&s);
    else
        (gather ? gather_speaker : scatter_speaker)(&s);
}
