/* SPDX-License-Identifier: Apache-2.0
 *
 * The k-ary fat tree as numbers: k pods of k/2 edge and k/2 aggregation switches, (k/2)^2 core
 * switches, k^3/4 hosts. A port is a directed link, named by the end that sends:
 *
 *   [0, n)    host h → its edge switch              [n, 2n)   edge → host h
 *   [2n, 3n)  edge e → aggregation a of its pod     [3n, 4n)  aggregation a → edge e
 *   [4n, 5n)  aggregation a → core c                [5n, 6n)  core c → aggregation a
 *
 * Each kind has n = k^3/4 of them, which is what makes a fat tree non-blocking.
 * Source: Al-Fares et al., "A scalable, commodity data center network architecture", SIGCOMM
 * 2008. */
#include "private.h"

roce_tree roce_tree_of(int k)
{
    int hosts = k * k * k / 4;
    return (roce_tree){.k = k, .hosts = hosts, .ports = 6 * hosts};
}

int roce_tree_path(const roce_tree *t, int src, int dst, uint64_t hash, int32_t ret[ROCE_HOPS_MAX])
{
    int half = t->k / 2, n = t->hosts, hops = 0;
    int from = src / half, to = dst / half; /* edge switches; `half` hosts each, `half` a pod */
    int a = (int) (hash % (uint64_t) half), c = (int) ((hash >> 32) % (uint64_t) half);
    ret[hops++] = src;
    if (from != to) {
        ret[hops++] = 2 * n + from * half + a;
        if (from / half != to / half) {
            ret[hops++] = 4 * n + (from / half * half + a) * half + c;
            ret[hops++] = 5 * n + (to / half * half + a) * half + c;
        }
        ret[hops++] = 3 * n + to * half + a;
    }
    ret[hops++] = n + dst;
    return hops;
}

int roce_tree_switches(const roce_tree *t)
{
    return t->k * t->k + t->k * t->k / 4;
}

int roce_tree_switch(const roce_tree *t, int port)
{
    int half = t->k / 2, n = t->hosts, edges = t->k * half, at = port % n;
    int pod = at / (half * half);
    switch (port / n) {
    case 1:
    case 2:
        return at / half;
    case 3: /* at = edge * half + a */
        return edges + pod * half + at % half;
    case 4: /* at = aggregation * half + c */
        return edges + at / half;
    case 5: /* core c of the a-th group: at = (pod * half + a) * half + c */
        return 2 * edges + at / half % half * half + at % half;
    default:
        return -1;
    }
}

/* Kinds come in pairs of opposite directions with equal numbers. */
int roce_tree_far_switch(const roce_tree *t, int port)
{
    int back = (port / t->hosts ^ 1) * t->hosts + port % t->hosts;
    return roce_tree_switch(t, back);
}
