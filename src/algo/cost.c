/* SPDX-License-Identifier: Apache-2.0 */
#include "algo/cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SEGMENTS_MAX 256
#define SEGMENT_BYTES 4096
#define POSTS_MAX 16384 /* of a member in all: what a schedule is long */

algo_counts algo_prices(const sn_algo_model *m)
{
    double shared = m->members_per_core;
    double socket = m->net_member_bytes_per_s > 0 ? 1e9 / m->net_member_bytes_per_s * shared : 0;
    return (algo_counts){.of = {[ALGO_CALL] = m->call_ns,
                                [ALGO_SIGNAL] = m->signal_ns * shared,
                                [ALGO_COPY] = 1e9 / m->copy_bytes_per_s * shared,
                                [ALGO_REDUCE] = 1e9 / m->reduce_bytes_per_s * shared,
                                [ALGO_LATENCY] = m->net_latency_ns,
                                [ALGO_MESSAGE] = m->net_message_ns,
                                [ALGO_WIRE] = 1e9 / m->net_bytes_per_s,
                                [ALGO_SOCKET] = socket}};
}

double algo_ns(const algo_counts *count, const algo_counts *price)
{
    double ns = 0;
    for (int i = 0; i < ALGO_TERMS; i++)
        ns += count->of[i] * price->of[i];
    return ns;
}

double algo_band(const sn_algo_call *c, int *ret_band)
{
    double bytes = (double) c->count * (double) sn_dtype_bytes(c->dtype);
    double at = bytes > 512 ? (log2(bytes) - 9) / 4 : 0;
    at = SN_MIN(at, SN_ALGO_BANDS - 1);
    *ret_band = SN_MIN((int) at, SN_ALGO_BANDS - 2);
    return at - *ret_band;
}

double algo_factor(const sn_algo_model *m, int row, const sn_algo_call *c)
{
    int band;
    if (m->fitted == 0 || row < 0)
        return 1;
    double next = algo_band(c, &band);
    const int8_t *f = m->factor[row][c->op];
    return exp2((f[band] * (1 - next) + f[band + 1] * next) / 24);
}

void algo_counts_add(algo_counts *c, const algo_counts *more, double times)
{
    for (int i = 0; i < ALGO_TERMS; i++)
        c->of[i] += more->of[i] * times;
}

/* ---- the group ---- */

typedef struct host_entry {
    int id, size; /* size 0: empty */
    int dense, last;
} host_entry;

#define STACK_ENTRIES 1024

typedef struct host_table {
    int mask;
    host_entry *entry, on_stack[STACK_ENTRIES];
} host_table;

/* Room for twice as many as there can be. */
static void table_init(host_table *t, int members)
{
    int cap = 16;
    while (cap < 2 * members)
        cap *= 2;
    t->mask = cap - 1;
    t->entry = t->on_stack;
    if (cap > STACK_ENTRIES)
        t->entry = sn_alloc((size_t) cap * sizeof(host_entry));
    else
        memset(t->entry, 0, (size_t) cap * sizeof(host_entry));
}

static void table_done(host_table *t)
{
    if (t->entry != t->on_stack)
        free(t->entry);
}

static host_entry *table_find(host_table *t, int id)
{
    unsigned at = (unsigned) id * 2654435769u;
    for (at ^= at >> 16;; at++) {
        host_entry *e = &t->entry[at & (unsigned) t->mask];
        if (e->size == 0 || e->id == id)
            return e;
    }
}

/* Adds member i; *hosts counts. False: its host's members do not follow each other. */
static bool table_add(host_table *t, const sn_algo_group *g, int i, int *hosts)
{
    host_entry *e = table_find(t, g->host[i]);
    if (e->size == 0)
        *e = (host_entry){.id = g->host[i], .dense = (*hosts)++, .last = i - 1};
    bool follows = e->last == i - 1;
    e->size++;
    e->last = i;
    return follows;
}

int algo_hosts_number(const sn_algo_group *g, int *ret_host)
{
    host_table t;
    int hosts = 0;
    table_init(&t, g->members);
    for (int i = 0; i < g->members; i++) {
        table_add(&t, g, i, &hosts);
        ret_host[i] = table_find(&t, g->host[i])->dense;
    }
    table_done(&t);
    return hosts;
}

static int divide_up(int a, int b)
{
    return (a + b - 1) / b;
}

/* What the busiest member of any host reads and writes when the vector is cut into that many lanes.
 */
static double busiest(const host_table *t, int lanes)
{
    double most = 0;
    for (int k = 0; k <= t->mask; k++) {
        int size = t->entry[k].size;
        if (size > 0)
            most = SN_MAX(most, (double) (size + 1) * divide_up(lanes, size) / lanes);
    }
    return most;
}

/* Between as many lanes as the smallest and the largest host has members: the number that leaves
 * the least to the busiest, while nobody has more messages than there is room for. */
static void choose_lanes(algo_shape *s, const host_table *t)
{
    double best = 0;
    for (int lanes = s->size_min; lanes <= s->size_max; lanes++) {
        int most = divide_up(lanes, s->size_min);
        if (most > 1 && 2 * most * SN_MAX(s->hosts - 1, 4) > ALGO_UNDER_WAY(s->members))
            break;
        double now = busiest(t, lanes);
        if (lanes > s->size_min && now >= best)
            continue;
        best = now;
        s->lanes = lanes;
        s->most_lanes = most;
    }
}

algo_shape algo_shape_of(const sn_algo_group *g)
{
    algo_shape s = {.members = g->members, .size_min = g->members, .contiguous = true};
    host_table t;
    table_init(&t, g->members);
    for (int i = 0; i < g->members; i++)
        s.contiguous = table_add(&t, g, i, &s.hosts) && s.contiguous;
    for (int k = 0; k <= t.mask; k++) {
        if (t.entry[k].size == 0)
            continue;
        s.size_min = SN_MIN(s.size_min, t.entry[k].size);
        s.size_max = SN_MAX(s.size_max, t.entry[k].size);
    }
    choose_lanes(&s, &t);
    table_done(&t);
    return s;
}

/* ---- pipelines ---- */

static algo_counts flow_counts(const algo_flow *f, int segments, const algo_counts *price)
{
    static const algo_term processor[] = {ALGO_COPY, ALGO_REDUCE, ALGO_SOCKET};
    algo_counts ret = f->once;
    int lag = f->works && segments > 1 ? 2 : 1;
    double others = 1 - 1.0 / segments, wire = f->steady.of[ALGO_WIRE] * price->of[ALGO_WIRE];
    double busy = 0;
    for (size_t i = 0; i < SN_COUNT(processor); i++)
        busy += f->steady.of[processor[i]] * price->of[processor[i]];
    if (f->stages > 0)
        ret.of[ALGO_LATENCY] += segments + lag * (f->stages - 1);
    ret.of[ALGO_MESSAGE] += segments * f->messages;
    ret.of[ALGO_SIGNAL] += f->signals ? segments : 0;
    algo_counts_add(&ret, &f->path, 1.0 / segments);
    if (wire >= busy)
        ret.of[ALGO_WIRE] += others * f->steady.of[ALGO_WIRE];
    for (size_t i = 0; i < SN_COUNT(processor) && wire < busy; i++)
        ret.of[processor[i]] += others * f->steady.of[processor[i]];
    return ret;
}

/* The number of segments of least time under `price`. */
static int best_segments(const algo_flow *f, const algo_counts *price, int members)
{
    int best = 1, lag = f->works ? 2 : 1;
    algo_counts counts = flow_counts(f, 1, price);
    double best_ns = algo_ns(&counts, price);
    for (int s = 2; s <= SEGMENTS_MAX && f->bytes / s >= SEGMENT_BYTES; s *= 2) {
        int under_way = SN_MIN(f->stages, (s + lag - 1) / lag);
        int all = f->posts_all > 0 ? f->posts_all : f->posts * f->stages;
        int posts = SN_MIN(under_way * f->posts, all);
        if (posts > ALGO_UNDER_WAY(members) || (double) s * all > POSTS_MAX)
            break;
        counts = flow_counts(f, s, price);
        double ns = algo_ns(&counts, price);
        if (ns < best_ns) {
            best = s;
            best_ns = ns;
        }
    }
    return best;
}

int algo_flow_segments(const algo_flow *f, const sn_algo_group *g)
{
    sn_algo_model none;
    if (g->model == NULL)
        none = sn_algo_model_from(NULL, NULL, 0);
    algo_counts price = algo_prices(g->model != NULL ? g->model : &none);
    return best_segments(f, &price, g->members);
}

void algo_flow_count(const algo_flow *f, const sn_algo_group *g, const sn_algo_model *m,
                     algo_counts *ret)
{
    algo_counts price = algo_prices(m);
    bool same = g->model == NULL || g->model == m;
    int segments = same ? best_segments(f, &price, g->members) : algo_flow_segments(f, g);
    *ret = flow_counts(f, segments, &price);
}
