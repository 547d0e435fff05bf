/* SPDX-License-Identifier: Apache-2.0
 *
 * double_tree — between hosts along two binary trees, each with half of the part, in segments that
 * follow each other; inside a host as in lanes.h.
 *
 *   tree 0        4            tree 1        3         six hosts, numbered from 1 here: who is
 *               /   \                      /   \       inside one tree is a leaf of the other, so
 *              2     6                    5     1      everybody sends and receives alike.
 *             / \   /                    / \     \
 *            1   3 5                    6   4     2
 *
 * Stage k of the D stages up: the nodes of depth D - k send to their parents, who add both children
 * and their own host's inputs; then D stages down (pipe.h). A segment's sum is made along one tree
 * and finished by its root.
 *
 * broadcast: the root's host stands above the roots of two trees of the other hosts.
 *
 * Cost: (segments + 4D) · latency + 2 · bytes / wire.
 * Source: Sanders, Speck & Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and
 * scan", Parallel Computing 35(12), 2009. */
#include "algo/lanes.h"

#define TREES 2

/* A node's neighbours, all numbered 1 … nodes; 0: none. */
typedef struct node {
    int parent, child[2], children, depth;
} node;

typedef struct trees {
    node at[TREES];
    int deepest;
    int base; /* node v is host base + v, around */
} trees;

/* In order: the odd ones are leaves, the lowest bit says how high a node is. */
static int parent_of(int v, int nodes)
{
    int low = v & -v, up = (v & ~low) | low << 1;
    return up <= nodes ? up : v & ~low;
}

/* Tree 1 is tree 0 with odd and even changed places: mirrored, or moved by one. */
static int place_in(int tree, int v, int nodes)
{
    if (tree == 0)
        return v;
    return nodes % 2 == 0 ? nodes + 1 - v : v % nodes + 1;
}

static int node_at(int tree, int place, int nodes)
{
    if (tree == 0 || place == 0)
        return place;
    return nodes % 2 == 0 ? nodes + 1 - place : (place + nodes - 2) % nodes + 1;
}

static int depth_of(int place, int nodes)
{
    int depth = 0;
    while ((place = parent_of(place, nodes)) > 0)
        depth++;
    return depth;
}

static int depth_max(int nodes)
{
    int most = 0;
    for (int v = 1; v <= nodes; v++)
        most = SN_MAX(most, depth_of(v, nodes));
    return most;
}

/* v 0: above the roots (broadcast). */
static node find(int tree, int v, int nodes)
{
    int place = v > 0 ? place_in(tree, v, nodes) : 0;
    node n = {.depth = v > 0 ? depth_of(place, nodes) : -1};
    n.parent = v > 0 ? node_at(tree, parent_of(place, nodes), nodes) : 0;
    for (int w = 1; w <= nodes; w++)
        if (parent_of(w, nodes) == place)
            n.child[n.children++] = node_at(tree, w, nodes);
    return n;
}

/* ---- the stages ---- */

static const void *plan(algo_lanes *t)
{
    bool down_only = t->b.call->op == SN_BROADCAST;
    int hosts = t->m.hosts, nodes = down_only ? hosts - 1 : hosts;
    int base = down_only ? t->m.host[t->b.call->root] : hosts - 1;
    int v = down_only ? (t->host - base + hosts) % hosts : t->host + 1;
    trees *p = SN_NEW(t->b.arena, trees);
    p->base = base;
    p->deepest = depth_max(nodes);
    for (int tree = 0; tree < TREES; tree++)
        p->at[tree] = find(tree, v, nodes);
    return p;
}

static int host_of(const algo_part *p, int v)
{
    const trees *s = p->t->plan;
    return (s->base + v) % p->t->m.hosts;
}

static algo_range half(const algo_part *p, int tree)
{
    return algo_slice(p->count, TREES, tree);
}

/* Child i's contribution to a tree. */
static int64_t scratch(const algo_part *p, int tree, int i)
{
    return half(p, 0).count * (2 * tree + i);
}

static int64_t came(const algo_lanes *t, int64_t count)
{
    return 2 * TREES * algo_slice(count, TREES, 0).count;
}

/* The nodes of depth `depth` to their parents. */
static void up(const algo_part *p, int tree, int depth)
{
    const trees *s = p->t->plan;
    const node *n = &s->at[tree];
    algo_range r = half(p, tree);
    if (n->depth == depth)
        algo_part_send(p, host_of(p, n->parent), algo_part_sum(p, r.at), r.count);
    for (int i = 0; i < n->children && n->depth + 1 == depth; i++)
        algo_part_recv(p, host_of(p, n->child[i]), algo_part_came(p, scratch(p, tree, i)), r.count);
}

/* The nodes of depth `depth` from their parents. */
static void down(const algo_part *p, int tree, int depth)
{
    const trees *s = p->t->plan;
    const node *n = &s->at[tree];
    algo_range r = half(p, tree);
    if (n->depth == depth)
        algo_part_recv(p, host_of(p, n->parent), algo_part_result(p, r.at), r.count);
    for (int i = 0; i < n->children && n->depth + 1 == depth; i++)
        algo_part_send(p, host_of(p, n->child[i]), algo_part_result(p, r.at), r.count);
}

static void enter(const algo_part *p)
{
    const trees *s = p->t->plan;
    for (int tree = 0; tree < TREES; tree++)
        if (s->at[tree].children == 0)
            algo_part_sum_inputs(p, half(p, tree).at, half(p, tree).count);
}

static void post(const algo_part *p, int stage)
{
    const trees *s = p->t->plan;
    for (int tree = 0; tree < TREES; tree++) {
        if (p->t->b.call->op == SN_BROADCAST)
            down(p, tree, stage);
        else if (stage < s->deepest)
            up(p, tree, s->deepest - stage);
        else
            down(p, tree, stage - s->deepest + 1);
    }
}

static void work(const algo_part *p, int stage)
{
    const trees *s = p->t->plan;
    for (int tree = 0; tree < TREES; tree++) {
        const node *n = &s->at[tree];
        algo_range r = half(p, tree);
        int srcs;
        if (stage >= s->deepest || n->children == 0 || n->depth + 1 != s->deepest - stage)
            continue;
        algo_part_begin(p, &srcs);
        algo_part_add_inputs(p, &srcs, r.at);
        for (int i = 0; i < n->children; i++)
            algo_part_add(p, &srcs, algo_part_came(p, scratch(p, tree, i)));
        algo_part_end(p, srcs, r.at, r.count, n->parent == 0);
    }
}

/* Who is inside a tree has two children there, and hears from another in the other one. */
static algo_flow flow(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c)
{
    double bytes = (double) algo_bytes(c), wide = algo_lanes_widened(c);
    double slice = algo_lanes_slice(s, c), kids = SN_MIN(2, s->hosts - 1);
    int deepest = depth_max(s->hosts);
    algo_flow f = algo_lanes_flow(s, c);
    f.stages = 2 * deepest;
    f.adding = deepest;
    f.works = true;
    f.posts = 6 * s->most_lanes;
    f.posts_all = 12 * s->most_lanes;
    f.messages = f.stages * (6 * s->most_lanes - 1) / 2;
    algo_lanes_sent(&f, s, c, deepest * kids * (wide + 1) * bytes / 2,
                    kids * (wide + 1) * bytes / 2);
    f.path.of[ALGO_REDUCE] += deepest * (s->size_max + (kids + 1) * wide) * slice / 2;
    f.steady.of[ALGO_REDUCE] += kids * wide * slice / 2;
    return f;
}

static algo_flow flow_down(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c)
{
    double bytes = (double) algo_bytes(c), kids = SN_MIN(2, s->hosts - 2);
    algo_flow f = algo_lanes_flow(s, c);
    f.stages = depth_max(s->hosts - 1) + 1;
    f.posts = 6;
    f.posts_all = 6;
    f.messages = f.stages;
    algo_lanes_sent(&f, s, c, bytes + (f.stages - 1) * kids * bytes / 2, bytes);
    return f;
}

static const algo_across across = {
    .flow = flow, .plan = plan, .came = came, .enter = enter, .post = post, .work = work};
static const algo_across across_down = {.flow = flow_down, .plan = plan, .post = post};

static const algo_across *across_of(const sn_algo_call *c)
{
    return c->op == SN_BROADCAST ? &across_down : &across;
}

static sn_status schedule(const sn_algo_group *g, const sn_algo_call *c, int me, sn_arena *arena,
                          sn_sched *ret)
{
    return algo_lanes_schedule(g, c, me, arena, "double_tree", across_of(c), ret);
}

static void count(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c,
                  const sn_algo_model *m, algo_counts *ret)
{
    algo_lanes_count(s, g, c, m, across_of(c), ret);
}

const sn_algo_row algo_double_tree = {
    .name = "double_tree",
    .needs = "several hosts",
    .ops = 1u << SN_ALL_REDUCE | 1u << SN_BROADCAST,
    .notes = true,
    .fits = algo_lanes_fits,
    .schedule = schedule,
    .count = count,
};
