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
 * Time runs in slots, one a segment and edge: depth d (deepest D) sends segment s up in slot
 * s + D - d and gets the result in slot s + D + d - 1. A slot's transfers are on both sides between
 * the same two fences in the same order, so nobody waits in a circle. A segment's sum is made along
 * one tree and finished by its root.
 *
 * broadcast: the root's host stands above the roots of two trees of the other hosts.
 *
 * Cost: (segments + 2D - 1) · (latency + 2 / segments · bytes / wire); the segments are as many as
 * make that least.
 * Source: Sanders, Speck & Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and
 * scan", Parallel Computing 35(12), 2009. */
#include "algo/lanes.h"

#define TREES 2

/* A node's neighbours, all numbered 1 … nodes; 0: none. */
typedef struct node {
    int parent, child[2], children, depth;
} node;

typedef struct pipe {
    algo_lanes *t;
    node at[TREES];
    algo_range half[TREES];
    int deepest, segments, slot;
    int base; /* node v is host base + v, around */
    sn_place part;
    bool moved; /* something was posted in this slot */
} pipe;

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

static int member(const pipe *p, int v)
{
    const algo_lanes *t = p->t;
    int h = (p->base + v) % t->m.hosts;
    return t->b.call->op == SN_BROADCAST ? algo_lanes_speaker(t, h, t->m.local[t->b.call->root])
                                         : algo_lanes_peer(t, h);
}

/* The segment that is due `delay` slots after the first one; false when there is none. */
static bool due(const pipe *p, int tree, int delay, algo_range *ret)
{
    int s = p->slot - delay;
    if (s < 0 || s >= p->segments)
        return false;
    *ret = algo_slice(p->half[tree].count, p->segments, s);
    ret->at += p->half[tree].at;
    return ret->count > 0;
}

static sn_place segment(const pipe *p, algo_range r)
{
    sn_place at = p->part;
    at.at += r.at;
    return at;
}

/* Child i's contribution in my scratch: room for the longest segment each. */
static sn_place scratch(const pipe *p, int tree, int i)
{
    int64_t room = algo_slice(p->half[0].count, p->segments, 0).count;
    return algo_at(p->t->me, SN_BUF_TMP, room * (2 * tree + i));
}

static void up(pipe *p, int tree)
{
    const node *n = &p->at[tree];
    algo_range r;
    if (n->parent > 0 && due(p, tree, p->deepest - n->depth, &r)) {
        algo_send(&p->t->b, member(p, n->parent), segment(p, r), r.count);
        p->moved = true;
    }
    for (int i = 0; i < n->children && due(p, tree, p->deepest - n->depth - 1, &r); i++) {
        algo_recv(&p->t->b, member(p, n->child[i]), scratch(p, tree, i), r.count);
        p->moved = true;
    }
}

/* `first`: the slot in which the topmost node sends segment 0 down. */
static void down(pipe *p, int tree, int first, bool above)
{
    const node *n = &p->at[tree];
    algo_range r;
    if (above && due(p, tree, first + n->depth - 1, &r)) {
        algo_recv(&p->t->b, member(p, n->parent), segment(p, r), r.count);
        p->moved = true;
    }
    for (int i = 0; i < n->children && due(p, tree, first + n->depth, &r); i++) {
        algo_send(&p->t->b, member(p, n->child[i]), segment(p, r), r.count);
        p->moved = true;
    }
}

static void add(pipe *p, int tree)
{
    const node *n = &p->at[tree];
    algo_range r;
    if (n->children == 0 || !due(p, tree, p->deepest - n->depth - 1, &r))
        return;
    sn_place part = segment(p, r), src[3] = {part, scratch(p, tree, 0), scratch(p, tree, 1)};
    algo_reduce(&p->t->b, &part, 1, src, 1 + n->children, r.count, n->parent == 0);
}

static void fence(pipe *p)
{
    if (p->moved)
        algo_fence(&p->t->b);
    p->moved = false;
}

static double pipe_ns(const sn_algo_group *g, const sn_algo_call *c, const sn_algo_model *m,
                      int segments)
{
    double bytes = (double) algo_bytes(c);
    bool reduces = c->op == SN_ALL_REDUCE;
    int hosts = algo_hosts(g), deepest = depth_max(reduces ? hosts : hosts - 1);
    int slots = reduces ? segments + 2 * deepest - 1 : segments + deepest;
    double wire = algo_wire_ns(m, 1, 4, (reduces ? 2 : 1) * bytes / segments);
    double work = reduces ? algo_reduce_ns(m, 2 * algo_lanes_part(g, c) / segments) : 0;
    return slots * (wire + work);
}

static int segments(const algo_lanes *t)
{
    const sn_algo_group *g = t->b.group;
    sn_algo_model none = sn_algo_model_from(NULL, NULL, 0);
    return algo_segments(g, t->b.call, g->model != NULL ? g->model : &none, pipe_ns, NULL);
}

/* My host is number `v` of `nodes`. */
static pipe pipe_begin(algo_lanes *t, sn_place part, int64_t count, int v, int nodes)
{
    pipe p = {.t = t, .deepest = depth_max(nodes), .part = part};
    p.base = t->host - v + t->m.hosts;
    for (int tree = 0; tree < TREES; tree++) {
        p.half[tree] = algo_slice(count, TREES, tree);
        p.at[tree] = find(tree, v, nodes);
    }
    p.segments = segments(t);
    return p;
}

static void reduce_across(algo_lanes *t, sn_place part, int64_t count)
{
    pipe p = pipe_begin(t, part, count, t->host + 1, t->m.hosts);
    for (p.slot = 0; p.slot < p.segments + 2 * p.deepest - 1; p.slot++) {
        for (int tree = 0; tree < TREES; tree++) {
            up(&p, tree);
            down(&p, tree, p.deepest, p.at[tree].parent > 0);
        }
        fence(&p);
        for (int tree = 0; tree < TREES; tree++)
            add(&p, tree);
    }
}

static void broadcast_across(algo_lanes *t, sn_place part, int64_t count)
{
    int hosts = t->m.hosts, v = (t->host - t->m.host[t->b.call->root] + hosts) % hosts;
    pipe p = pipe_begin(t, part, count, v, hosts - 1);
    for (p.slot = 0; p.slot < p.segments + p.deepest; p.slot++) {
        for (int tree = 0; tree < TREES; tree++)
            down(&p, tree, 1, v > 0);
        fence(&p);
    }
}

static bool fits(const sn_algo_group *g, const sn_algo_call *c)
{
    return algo_lanes_fits(g, c);
}

static sn_status schedule(const sn_algo_group *g, const sn_algo_call *c, int me, sn_arena *arena,
                          sn_sched *ret)
{
    algo_lanes t = algo_lanes_begin(g, c, me, arena);
    if (c->op == SN_BROADCAST)
        algo_lanes_broadcast(&t, broadcast_across);
    else
        algo_lanes_all_reduce(&t, reduce_across);
    algo_lanes_end(&t, "double_tree", ret);
    return SN_OK;
}

static double cost_ns(const sn_algo_group *g, const sn_algo_call *c, const sn_algo_model *m)
{
    double ns;
    algo_segments(g, c, m, pipe_ns, &ns);
    return algo_lanes_ns(g, c, m) + ns;
}

const sn_algo_row algo_double_tree = {
    .name = "double_tree",
    .needs = "several hosts; sums in bf16: two hosts",
    .ops = 1u << SN_ALL_REDUCE | 1u << SN_BROADCAST,
    .notes = true,
    .fits = fits,
    .schedule = schedule,
    .cost_ns = cost_ns,
};
