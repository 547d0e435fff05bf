/* SPDX-License-Identifier: Apache-2.0 */
#include "algo/lanes.h"

bool algo_lanes_fits(const sn_algo_group *g, const sn_algo_call *c)
{
    return !algo_one_host(g) && (!algo_rounds(c) || algo_hosts(g) == 2);
}

bool algo_lanes_small(const sn_algo_call *c)
{
    return 2 * algo_bytes(c) <= SN_ALGO_NOTE_BYTES;
}

algo_lanes algo_lanes_begin(const sn_algo_group *g, const sn_algo_call *c, int me, sn_arena *arena)
{
    algo_lanes t = {.b = algo_build_begin(g, c, me, arena), .m = algo_map_of(g, arena), .me = me};
    t.host = t.m.host[me];
    t.local = t.m.local[me];
    t.size = t.m.size[t.host];
    t.leader = algo_map_member(&t.m, t.host, 0);
    return t;
}

void algo_lanes_end(algo_lanes *t, const char *name, sn_sched *ret)
{
    const sn_algo_call *c = t->b.call;
    bool notes = c->op == SN_ALL_REDUCE && algo_lanes_small(c);
    algo_build_end(&t->b, name, 3, !notes && !algo_one_member_hosts(t->b.group), ret);
}

int algo_lanes_peer(const algo_lanes *t, int h)
{
    return algo_map_member(&t->m, h, t->local);
}

int algo_lanes_speaker(const algo_lanes *t, int h, int local)
{
    return algo_map_member(&t->m, h, local % t->m.size[h]);
}

sn_place *algo_lanes_of_host(algo_lanes *t, sn_buf buf, int64_t at)
{
    sn_place *p = SN_NEW_N(t->b.arena, sn_place, t->size);
    for (int i = 0; i < t->size; i++)
        p[i] = algo_at(algo_map_member(&t->m, t->host, i), buf, at);
    return p;
}

static void all_reduce_small(algo_lanes *t, algo_across across)
{
    int64_t n = t->b.call->count;
    sn_place result = algo_at(t->leader, SN_BUF_NOTE, n), out = algo_at(t->me, SN_BUF_OUT, 0);
    algo_copy(&t->b, algo_at(t->me, SN_BUF_NOTE, 0), algo_at(t->me, SN_BUF_IN, 0), n);
    algo_enter(&t->b);
    if (t->local == 0) {
        algo_reduce(&t->b, &result, 1, algo_lanes_of_host(t, SN_BUF_NOTE, 0), t->size, n, false);
        across(t, result, n);
        algo_signal(&t->b);
    }
    algo_wait(&t->b, t->leader, 2);
    algo_copy(&t->b, out, result, n);
}

void algo_lanes_all_reduce(algo_lanes *t, algo_across across)
{
    if (algo_lanes_small(t->b.call)) {
        all_reduce_small(t, across);
        return;
    }
    int64_t n = t->b.call->count;
    int lanes = t->m.lanes;
    algo_enter(&t->b);
    if (t->local < lanes) {
        algo_range slice = algo_slice(n, lanes, t->local);
        sn_place part = algo_at(t->me, SN_BUF_OUT, slice.at);
        algo_reduce(&t->b, &part, 1, algo_lanes_of_host(t, SN_BUF_IN, slice.at), t->size,
                    slice.count, false);
        across(t, part, slice.count);
    }
    algo_enter(&t->b);
    for (int k = 0; k < lanes; k++) {
        int lane = (t->local + k) % lanes, from = algo_map_member(&t->m, t->host, lane);
        algo_range slice = algo_slice(n, lanes, lane);
        algo_copy(&t->b, algo_at(t->me, SN_BUF_OUT, slice.at), algo_at(from, SN_BUF_OUT, slice.at),
                  slice.count);
    }
    algo_enter(&t->b);
}

void algo_lanes_broadcast(algo_lanes *t, algo_across across)
{
    int64_t n = t->b.call->count;
    int root = t->b.call->root, root_host = t->m.host[root], root_local = t->m.local[root];
    int source = t->host == root_host ? root : algo_lanes_speaker(t, t->host, root_local);
    sn_place out = algo_at(t->me, SN_BUF_OUT, 0);
    algo_enter(&t->b);
    if (t->me == source)
        across(t, out, n);
    algo_signal(&t->b);
    if (t->me != source) {
        algo_wait(&t->b, source, 2);
        algo_copy(&t->b, out, algo_at(source, SN_BUF_OUT, 0), n);
    }
    algo_signal(&t->b);
    if (t->me == source)
        algo_wait(&t->b, SN_ALL, 3);
}

double algo_lanes_part(const sn_algo_group *g, const sn_algo_call *c)
{
    bool whole = c->op != SN_ALL_REDUCE || algo_lanes_small(c);
    return (double) algo_bytes(c) / (whole ? 1 : algo_host_size_min(g));
}

double algo_lanes_ns(const sn_algo_group *g, const sn_algo_call *c, const sn_algo_model *m)
{
    double bytes = (double) algo_bytes(c), part = algo_lanes_part(g, c);
    double most = algo_host_size_max(g);
    if (c->op == SN_BROADCAST)
        return algo_signal_ns(m, 3) + algo_copy_ns(m, most > 1 ? bytes : 0);
    if (algo_lanes_small(c))
        return algo_signal_ns(m, 2) + algo_copy_ns(m, 2 * bytes) +
               algo_reduce_ns(m, (most + 1) * bytes);
    return algo_signal_ns(m, most > 1 ? 3 : 0) + algo_reduce_ns(m, (most + 1) * part) +
           algo_copy_ns(m, bytes - part);
}

/* ---- a power of two ---- */

algo_fold algo_fold_of(int hosts, int host)
{
    algo_fold f = {.power = 1};
    while (f.power * 2 <= hosts)
        f.power *= 2;
    f.extra = hosts - f.power;
    if (host >= 2 * f.extra)
        f.index = host - f.extra;
    else
        f.index = host % 2 == 1 ? host / 2 : -1;
    return f;
}

int algo_fold_host(const algo_fold *f, int index)
{
    return index < f->extra ? 2 * index + 1 : index + f->extra;
}

void algo_lanes_add(algo_lanes *t, int from, sn_place part, int64_t count, bool last)
{
    sn_place came = algo_at(t->me, SN_BUF_TMP, 0);
    sn_place src[2] = {from < t->host ? came : part, from < t->host ? part : came};
    algo_reduce(&t->b, &part, 1, src, 2, count, last);
}

void algo_fold_in(algo_lanes *t, const algo_fold *f, sn_place part, int64_t count)
{
    if (t->host >= 2 * f->extra)
        return;
    if (f->index < 0) {
        algo_send(&t->b, algo_lanes_peer(t, t->host + 1), part, count);
        algo_fence(&t->b);
    } else {
        algo_recv(&t->b, algo_lanes_peer(t, t->host - 1), algo_at(t->me, SN_BUF_TMP, 0), count);
        algo_fence(&t->b);
        algo_lanes_add(t, t->host - 1, part, count, false);
    }
}

void algo_fold_out(algo_lanes *t, const algo_fold *f, sn_place part, int64_t count)
{
    if (t->host >= 2 * f->extra)
        return;
    if (f->index < 0) {
        algo_recv(&t->b, algo_lanes_peer(t, t->host + 1), part, count);
        algo_fence(&t->b);
    } else {
        algo_send(&t->b, algo_lanes_peer(t, t->host - 1), part, count);
    }
}
