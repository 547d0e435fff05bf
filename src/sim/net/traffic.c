/* SPDX-License-Identifier: Apache-2.0
 *
 * Who sends what to whom, and when: Poisson arrivals of flows and of bursts, drawn from the seed
 * before the run, so that every controller meets the same traffic. */
#include "private.h"

#include <math.h>
#include <stdlib.h>

/* Flow sizes of the web search cluster of the DCTCP paper, in the table form that published
 * simulators use; between two rows sizes are uniform. */
static const struct {
    double bytes, below;
} websearch[] = {{1e3, 0},     {10e3, 0.15}, {20e3, 0.20},  {30e3, 0.30},
                 {50e3, 0.40}, {80e3, 0.53}, {200e3, 0.60}, {1e6, 0.70},
                 {2e6, 0.80},  {5e6, 0.90},  {10e6, 0.97},  {30e6, 1}};

enum { INCAST_SENDERS = 8 };
static const double incast_bytes = 256e3, all_to_all_bytes = 64e3, ring_bytes = 1e6;

typedef struct maker {
    const sn_roce_opts *o;
    int hosts;
    sn_prng random;
    sn_roce_flow *flow;
    int n, cap;
} maker;

static double websearch_mean(void)
{
    double sum = 0;
    for (size_t i = 1; i < SN_COUNT(websearch); i++)
        sum += (websearch[i].below - websearch[i - 1].below) *
               (websearch[i].bytes + websearch[i - 1].bytes) / 2;
    return sum;
}

static double websearch_draw(maker *m)
{
    double u = sn_prng_uniform(&m->random);
    size_t i = 1;
    while (i + 1 < SN_COUNT(websearch) && websearch[i].below < u)
        i++;
    double span = websearch[i].below - websearch[i - 1].below;
    return websearch[i - 1].bytes +
           (u - websearch[i - 1].below) / span * (websearch[i].bytes - websearch[i - 1].bytes);
}

static sn_status add(maker *m, double at_ns, int src, int dst, double bytes)
{
    if (m->n == m->cap) {
        int cap = m->cap ? 2 * m->cap : 1024;
        sn_roce_flow *more = realloc(m->flow, (size_t) cap * sizeof(*more));
        if (!more)
            return sn_fail(SN_ENOMEM, "no memory for the traffic's %d flows", cap);
        m->flow = more, m->cap = cap;
    }
    m->flow[m->n++] = (sn_roce_flow){src, dst, (int64_t) bytes, at_ns, -1};
    return SN_OK;
}

static int other(maker *m, int than)
{
    int h = (int) sn_prng_below(&m->random, m->hosts - 1);
    return h + (h >= than);
}

static sn_status one_websearch(maker *m, double at)
{
    int src = (int) sn_prng_below(&m->random, m->hosts);
    return add(m, at, src, other(m, src), websearch_draw(m));
}

static int senders(const maker *m)
{
    return SN_MIN(INCAST_SENDERS, m->hosts - 1);
}

static sn_status one_incast(maker *m, double at)
{
    int dst = (int) sn_prng_below(&m->random, m->hosts);
    int first = (int) sn_prng_below(&m->random, m->hosts - 1);
    for (int i = 0; i < senders(m); i++) /* neighbours in the list: no host twice */
        SN_TRY(add(m, at, (dst + 1 + (first + i) % (m->hosts - 1)) % m->hosts, dst, incast_bytes));
    return SN_OK;
}

static sn_status one_all_to_all(maker *m, double at)
{
    int src = (int) sn_prng_below(&m->random, m->hosts);
    for (int i = 1; i < m->hosts; i++)
        SN_TRY(add(m, at, src, (src + i) % m->hosts, all_to_all_bytes));
    return SN_OK;
}

static sn_status one_ring(maker *m, double at)
{
    int src = (int) sn_prng_below(&m->random, m->hosts);
    return add(m, at, src, (src + 1) % m->hosts, ring_bytes);
}

/* Arrivals that come to `load` of all hosts' links: `bytes` each. */
static sn_status poisson(maker *m, double load, double bytes, sn_status (*one)(maker *, double))
{
    const sn_roce_opts *o = m->o;
    double wire = bytes * (1 + (double) ROCE_HEADER_BYTES / o->mtu_bytes);
    double mean_ns = wire * 8 / (load * m->hosts * o->link_bps) * 1e9;
    for (double at = 0;;) {
        at -= mean_ns * log1p(-sn_prng_uniform(&m->random));
        if (at >= o->duration_ms * 1e6)
            return SN_OK;
        SN_TRY(one(m, at));
    }
}

static int by_start(const void *x, const void *y)
{
    const sn_roce_flow *a = x, *b = y;
    if (a->start_ns != b->start_ns)
        return a->start_ns < b->start_ns ? -1 : 1;
    return a->src != b->src ? (a->src > b->src) - (a->src < b->src)
                            : (a->dst > b->dst) - (a->dst < b->dst);
}

sn_status roce_traffic_make(const sn_roce_opts *o, int hosts, sn_roce_flow **ret, int *ret_n)
{
    static const double share[SN_ROCE_TRAFFICS][4] = {[SN_ROCE_WEBSEARCH] = {1, 0, 0, 0},
                                                      [SN_ROCE_RING] = {0, 1, 0, 0},
                                                      [SN_ROCE_INCAST] = {0, 0, 1, 0},
                                                      [SN_ROCE_ALL_TO_ALL] = {0, 0, 0, 1},
                                                      [SN_ROCE_MIXED] = {0.6, 0.2, 0.1, 0.1}};
    maker m = {.o = o, .hosts = hosts};
    const struct {
        double bytes;
        sn_status (*one)(maker *, double);
    } kind[4] = {{websearch_mean(), one_websearch},
                 {ring_bytes, one_ring},
                 {senders(&m) * incast_bytes, one_incast},
                 {(hosts - 1) * all_to_all_bytes, one_all_to_all}};
    sn_status status = SN_OK;
    for (int i = 0; i < 4 && status >= 0; i++) {
        m.random = (sn_prng){.seed = sn_hash64(o->seed, 0x7a4f, (uint64_t) i)};
        if (share[o->traffic][i] > 0)
            status = poisson(&m, o->load * share[o->traffic][i], kind[i].bytes, kind[i].one);
    }
    if (status < 0) {
        free(m.flow);
        return status;
    }
    if (m.n)
        qsort(m.flow, (size_t) m.n, sizeof(*m.flow), by_start);
    *ret = m.flow, *ret_n = m.n;
    return SN_OK;
}

const char *sn_roce_traffic_name(sn_roce_traffic traffic)
{
    static const char *const name[SN_ROCE_TRAFFICS] = {[SN_ROCE_WEBSEARCH] = "websearch",
                                                       [SN_ROCE_INCAST] = "incast",
                                                       [SN_ROCE_ALL_TO_ALL] = "all-to-all",
                                                       [SN_ROCE_RING] = "ring",
                                                       [SN_ROCE_MIXED] = "mixed"};
    return name[traffic];
}
