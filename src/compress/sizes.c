/* SPDX-License-Identifier: Apache-2.0
 *
 * sizes — how much of everything a vector needs. Pure. */
#include "compress/compress_private.h"

#define LINE 64

static uint64_t floats(int64_t n)
{
    return SN_ALIGN_UP((uint64_t) n * sizeof(float), (uint64_t) LINE);
}

/* Codes of my own, of my lane or host, of everybody. */
static uint64_t gather_bytes(const compress_map *m, uint64_t code)
{
    uint64_t row = (uint64_t) (m->uniform ? m->hosts : m->most);
    return code * (1 + row + (uint64_t) m->hosts * (uint64_t) m->most);
}

/* The same of the exchange: for each of them a block of every host. */
static uint64_t exchange_bytes(const compress_map *m, uint64_t code)
{
    uint64_t hosts = (uint64_t) m->hosts;
    return code * hosts * (1 + hosts + hosts * (uint64_t) m->most);
}

compress_sizes compress_sizes_of(const compress_map *m, const sn_compress_opts *o)
{
    compress_sizes s = {.block = (o->count + m->n - 1) / m->n};
    bool exchanges = compress_exchanges(m, o);
    unsigned halves = exchanges ? 0 : SN_COMPRESS_ALL_REDUCE;
    bool reduces = o->calls & (SN_COMPRESS_REDUCE_SCATTER | halves);
    bool gathers = o->calls & (SN_COMPRESS_ALL_GATHER | halves);
    if (m->hosts < 2 || o->codec.kind == SN_CODEC_NONE)
        return s;
    if (o->codec.kind == SN_CODEC_POWERSGD) {
        s.factor_bytes = floats(lowrank_lay_out(m, o, NULL, NULL));
        return s;
    }
    int64_t per_host = s.block * m->most;
    s.span = m->uniform ? s.block : per_host;
    s.pack = !m->natural || s.block * m->n != o->count;
    s.code = SN_ALIGN_UP(compress_cut(o, s.block, m->n, NULL, NULL), (uint64_t) LINE);
    if (reduces) {
        s.reduce_code = s.code * (uint64_t) (m->uniform ? 1 : m->most);
        s.reduce_bytes = 2 * s.reduce_code * (uint64_t) m->hosts;
        s.sum_bytes = !m->uniform || (o->calls & halves) ? floats(s.span) : 0;
    }
    if (reduces || exchanges)
        s.grid_bytes = s.pack ? floats(per_host * m->hosts) : 0;
    if (exchanges)
        s.exchange_bytes = exchange_bytes(m, s.code);
    if (gathers)
        s.gather_bytes = gather_bytes(m, s.code);
    return s;
}

static uint64_t total(const compress_sizes *s)
{
    return s->reduce_bytes + s->gather_bytes + s->exchange_bytes + s->grid_bytes + s->sum_bytes +
           s->factor_bytes;
}

uint64_t sn_compress_arena_bytes(const int *host, int n, int me, const sn_compress_opts *opts)
{
    compress_map m;
    compress_map_make(&m, host, n, me);
    compress_sizes s = compress_sizes_of(&m, opts);
    compress_map_free(&m);
    return total(&s) + 6 * LINE; /* six allocations */
}
