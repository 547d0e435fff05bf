/* SPDX-License-Identifier: Apache-2.0
 *
 * vector — opening and closing a vector, and the calls on it. */
#include "compress/compress_private.h"

#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

static sn_status check_segments(const sn_compress_opts *o)
{
    int64_t at = 0;
    for (int k = 0; k < o->segments; k++) {
        const sn_compress_segment *s = &o->segment[k];
        if (s->at < at || s->count < 0 || s->at > o->count || s->count > o->count - s->at)
            return sn_fail(
                SN_EINVAL,
                "segment %d of %s, %lld elements at %lld, overlaps or reaches beyond %lld", k,
                o->name, (long long) s->count, (long long) s->at, (long long) o->count);
        if (s->codec.kind == SN_CODEC_POWERSGD)
            return sn_fail(SN_EINVAL, "segment %d of %s: powersgd codes matrices", k, o->name);
        at = s->at + s->count;
    }
    return SN_OK;
}

static sn_status check(const compress_map *m, const sn_compress_opts *o)
{
    int64_t at = 0;
    if (o->count < 0)
        return sn_fail(SN_EINVAL, "%s has %lld elements", o->name, (long long) o->count);
    if (!(o->calls & SN_COMPRESS_ALL_REDUCE) && o->count % m->n)
        return sn_fail(SN_EINVAL, "the %lld elements of %s do not divide among %d members",
                       (long long) o->count, o->name, m->n);
    for (int k = 0; k < o->matrices; k++) {
        const sn_compress_matrix *x = &o->matrix[k];
        bool fits = x->at >= at && x->rows > 0 && x->cols > 0 && x->at <= o->count &&
                    x->rows <= (o->count - x->at) / x->cols;
        if (!fits)
            return sn_fail(SN_EINVAL,
                           "matrix %d of %s, %lld x %lld at %lld, overlaps or reaches beyond %lld",
                           k, o->name, (long long) x->rows, (long long) x->cols, (long long) x->at,
                           (long long) o->count);
        at = x->at + x->rows * x->cols;
    }
    SN_TRY(check_segments(o));
    if (o->momentum != 0 && o->codec.kind != SN_CODEC_TOPK)
        return sn_fail(SN_EINVAL, "momentum correction is top-k's: %s has another codec", o->name);
    if (o->momentum < 0 || o->momentum >= 1)
        return sn_fail(SN_EINVAL, "momentum %g of %s is not in [0, 1)", o->momentum, o->name);
    return SN_OK;
}

static sn_status take(sn_compress *z, uint64_t bytes, void *ret)
{
    void *p = NULL;
    if (bytes > 0) {
        SN_TRY(sn_coll_alloc(z->g->coll, bytes, &p));
        memset(p, 0, bytes);
    }
    memcpy(ret, &p, sizeof(p));
    return SN_OK;
}

static sn_status keep(sn_compress *z, int64_t elements, float **ret)
{
    *ret = calloc((size_t) SN_MAX(1, elements), sizeof(float));
    return *ret ? SN_OK
                : sn_fail(SN_ENOMEM, "no memory for %lld numbers that %s owes",
                          (long long) elements, z->opts.name);
}

static bool wants_feedback(const sn_compress *z)
{
    bool wants = false;
    if (z->opts.forget)
        return false;
    for (int k = 0; k < z->opts.segments; k++)
        wants = wants || sn_codec_feedback(&z->opts.segment[k].codec);
    return wants || sn_codec_feedback(&z->opts.codec);
}

/* The pieces of all blocks; without segments the vector is one. */
static void open_pieces(sn_compress *z)
{
    int n = z->g->map.n, segments = SN_MAX(1, z->opts.segments);
    z->segment = sn_alloc((size_t) segments * sizeof(*z->segment));
    z->segment[0] = (sn_compress_segment){.count = z->opts.count, .codec = z->opts.codec};
    if (z->opts.segments)
        memcpy(z->segment, z->opts.segment, (size_t) segments * sizeof(*z->segment));
    z->opts.segment = z->segment;
    z->opts.segments = segments;
    z->first = sn_alloc((size_t) (n + 1) * sizeof(*z->first));
    z->piece = sn_alloc((size_t) (segments + n) * sizeof(*z->piece));
    compress_cut(&z->opts, z->size.block, n, z->first, z->piece);
}

/* Of contributions to a sum, whichever way they go. */
static sn_status open_feedback(sn_compress *z)
{
    const compress_map *m = &z->g->map;
    int64_t elements = m->hosts * z->size.span;
    if (!compress_map_relay(m))
        return SN_OK;
    if (wants_feedback(z))
        SN_TRY(keep(z, elements, &z->residual));
    return z->opts.momentum > 0 ? keep(z, elements, &z->velocity) : SN_OK;
}

static sn_status open_reduce(sn_compress *z)
{
    const compress_sizes *s = &z->size;
    SN_TRY(take(z, s->sum_bytes, &z->sum));
    SN_TRY(take(z, s->reduce_bytes, &z->sent));
    z->got = z->sent + s->reduce_bytes / 2;
    return SN_OK;
}

static sn_status open_exchange(sn_compress *z)
{
    uint64_t hosts = (uint64_t) z->g->map.hosts, of_relay = z->size.code * hosts;
    SN_TRY(take(z, z->size.exchange_bytes, &z->mine));
    z->lane = z->mine + of_relay;
    z->everyone = z->lane + of_relay * hosts;
    return SN_OK;
}

static sn_status open_gather(sn_compress *z)
{
    const compress_map *m = &z->g->map;
    uint64_t row = z->size.code * (uint64_t) (m->uniform ? m->hosts : m->most);
    SN_TRY(take(z, z->size.gather_bytes, &z->code));
    z->row = z->code + z->size.code;
    z->codes = z->row + row;
    bool twice = z->opts.calls & SN_COMPRESS_ALL_REDUCE && z->size.exchange_bytes == 0;
    if (twice && wants_feedback(z))
        SN_TRY(keep(z, z->size.block, &z->back));
    return keep(z, z->size.block, &z->change);
}

static sn_status open_lowrank(sn_compress *z)
{
    const compress_map *m = &z->g->map;
    sn_compress_matrix *own = sn_alloc((size_t) SN_MAX(1, z->opts.matrices) * sizeof(*own));
    if (z->opts.matrices)
        memcpy(own, z->opts.matrix, (size_t) z->opts.matrices * sizeof(*own));
    z->opts.matrix = z->shapes = own;
    z->part = sn_alloc((size_t) m->relays * sizeof(*z->part));
    z->matrix = sn_alloc((size_t) SN_MAX(1, z->opts.matrices) * sizeof(*z->matrix));
    lowrank_lay_out(m, &z->opts, z->part, z->matrix);
    SN_TRY(take(z, z->size.factor_bytes, &z->factor));
    if (m->local[m->me] == 0)
        SN_TRY(keep(z, lowrank_plain(&z->opts), &z->plain_owed));
    for (int i = 0; i < z->opts.matrices; i++) {
        lowrank_matrix *k = &z->matrix[i];
        lowrank_draw(z, k);
        if (k->relay == m->local[m->me])
            SN_TRY(keep(z, k->of.rows * k->of.cols, &k->residual));
    }
    return SN_OK;
}

static bool encodes(const sn_compress *z)
{
    return z->g->map.hosts > 1 && z->opts.codec.kind != SN_CODEC_NONE;
}

static sn_status open_blocks(sn_compress *z)
{
    open_pieces(z);
    SN_TRY(take(z, z->size.grid_bytes, &z->grid));
    if (z->size.reduce_code || z->size.exchange_bytes)
        SN_TRY(open_feedback(z));
    if (z->size.reduce_code)
        SN_TRY(open_reduce(z));
    if (z->size.exchange_bytes)
        SN_TRY(open_exchange(z));
    if (z->size.gather_bytes)
        SN_TRY(open_gather(z));
    SN_TRY(keep(z, z->size.block, &z->left));
    return keep(z, z->size.block, &z->zeros);
}

static sn_status open_parts(sn_compress *z)
{
    const compress_map *m = &z->g->map;
    z->requests = SN_MAX(m->hosts, m->relays);
    z->req = sn_alloc((size_t) z->requests * sizeof(sn_coll_req *));
    if (!encodes(z))
        return SN_OK;
    SN_TRY(z->opts.codec.kind == SN_CODEC_POWERSGD ? open_lowrank(z) : open_blocks(z));
    compress_states_make(z);
    return SN_OK;
}

sn_status sn_compress_open(sn_compress_group *g, const sn_compress_opts *opts, sn_compress **ret)
{
    SN_TRY(check(&g->map, opts));
    sn_compress *z = sn_alloc(sizeof(*z));
    z->g = g;
    z->opts = *opts;
    z->size = compress_sizes_of(&g->map, opts);
    sn_status status = open_parts(z);
    if (status < 0) {
        sn_compress_close(z);
        return status;
    }
    *ret = z;
    return SN_OK;
}

void sn_compress_close(sn_compress *z)
{
    if (!z)
        return;
    for (int k = 0; z->matrix && k < z->opts.matrices; k++)
        free(z->matrix[k].residual);
    free(z->matrix);
    free(z->part);
    free(z->plain_owed);
    free(z->shapes);
    free(z->segment);
    free(z->first);
    free(z->piece);
    free(z->left);
    free(z->zeros);
    free(z->residual);
    free(z->velocity);
    free(z->back);
    free(z->change);
    free(z->state);
    free(z->req);
    free(z);
}

void sn_compress_plain(sn_compress *z, bool plain)
{
    z->plain = plain;
}

/* ---- calls ---- */

static sn_status refuse(const sn_compress *z, unsigned call, sn_red red)
{
    const sn_compress_group *g = z->g;
    if (z->active || z->direct)
        return sn_fail(SN_EINVAL, "%s is under way already: wait for it first", z->opts.name);
    if (g->failed != SN_OK)
        return sn_fail(g->failed, "%s", g->why);
    if (!(z->opts.calls & call))
        return sn_fail(SN_EINVAL, "%s was not opened for this call", z->opts.name);
    if (red != SN_SUM && red != SN_AVG)
        return sn_fail(SN_ENOTSUP, "%s of %s cannot be compressed: sum and avg can",
                       sn_red_name(red), z->opts.name);
    return SN_OK;
}

static bool direct(const sn_compress *z)
{
    return z->plain || !encodes(z);
}

static sn_status post_direct(sn_compress *z, sn_coll_op op, const void *in, void *out,
                             int64_t count)
{
    const compress_map *m = &z->g->map;
    const compress_run *r = &z->run;
    sn_coll_call call = {.op = op,
                         .red = r->red,
                         .dtype = SN_F32,
                         .count = count,
                         .in = in,
                         .out = out,
                         .priority = r->priority};
    sn_status status = sn_coll_post(z->g->all, &call, r->deadline, &z->direct);
    if (status < 0)
        return sn_fail_in(status, "%s", z->opts.name);
    if (status != SN_OK)
        return status;
    z->status = SN_PENDING;
    uint64_t halves = op == SN_ALL_REDUCE ? 2 : 1;
    uint64_t away = halves * (uint64_t) (m->hosts - 1) * (uint64_t) z->size.block * sizeof(float);
    z->g->stats.plain_bytes += away;
    z->g->stats.coded_bytes += away;
    return SN_OK;
}

sn_status sn_compress_reduce_scatter(sn_compress *z, float *in, float *out, sn_red red,
                                     int priority, sn_time deadline)
{
    SN_TRY(refuse(z, SN_COMPRESS_REDUCE_SCATTER, red));
    z->run = (compress_run){
        .in = in, .out = out, .red = red, .priority = priority, .deadline = deadline};
    if (direct(z))
        return post_direct(z, SN_REDUCE_SCATTER, in, out, z->size.block);
    compress_start(z, z->factor ? &compress_lowrank : &compress_reduce, NULL);
    return SN_OK;
}

sn_status sn_compress_all_gather(sn_compress *z, const float *mine, float *seen, int priority,
                                 sn_time deadline)
{
    SN_TRY(refuse(z, SN_COMPRESS_ALL_GATHER, SN_SUM));
    z->run = (compress_run){
        .mine = mine, .seen = seen, .red = SN_SUM, .priority = priority, .deadline = deadline};
    if (direct(z))
        return post_direct(z, SN_ALL_GATHER, mine, seen, z->size.block);
    if (z->factor)
        return sn_fail(SN_ENOTSUP, "%s: powersgd codes sums; take another codec to gather",
                       z->opts.name);
    compress_start(z, &compress_gather, NULL);
    return SN_OK;
}

sn_status sn_compress_all_reduce(sn_compress *z, float *data, sn_red red, int priority,
                                 sn_time deadline)
{
    SN_TRY(refuse(z, SN_COMPRESS_ALL_REDUCE, red));
    z->run = (compress_run){.in = data,
                            .out = z->factor ? data : z->sum,
                            .mine = z->sum,
                            .seen = data,
                            .whole = true,
                            .red = red,
                            .priority = priority,
                            .deadline = deadline};
    if (direct(z))
        return post_direct(z, SN_ALL_REDUCE, data, data, z->opts.count);
    if (z->factor)
        compress_start(z, &compress_lowrank, NULL);
    else if (z->size.exchange_bytes)
        compress_start(z, &compress_exchange, NULL);
    else
        compress_start(z, &compress_reduce, &compress_gather);
    return SN_OK;
}
