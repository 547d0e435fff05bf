/* SPDX-License-Identifier: Apache-2.0
 *
 * dense — the halves of codecs that code a block by itself.
 *
 *   compress_reduce   IN    uniform: hosts × reduce_scatter, each leaves my lane's block of one
 *                           host else: all_reduce of the whole grid
 *                     LANE  encode what other hosts own ▸ all_to_all ▸ mine + the decoded in host
 *                     order
 *                     OUT   else: broadcast of the host's blocks
 *   compress_gather   IN    else: all_gather of the host's codes
 *                     LANE  all_gather of codes between hosts
 *                     OUT   uniform: all_gather of what the lanes got; else: broadcast of it */
#include "compress/compress_private.h"

#include <math.h>
#include <string.h>

#include "os/os.h"

/* ---- reducing ---- */

static float *grid_of(const sn_compress *z)
{
    return z->grid ? z->grid : z->run.in;
}

/* What my relay has of host h's blocks. */
float *compress_part_of(const sn_compress *z, int h)
{
    const compress_map *m = &z->g->map;
    int64_t at = m->uniform ? (int64_t) h * m->most + m->local[m->me] : (int64_t) h * m->most;
    return grid_of(z) + at * z->size.block;
}

static void pack(sn_compress *z)
{
    const compress_map *m = &z->g->map;
    memset(z->grid, 0, z->size.grid_bytes);
    for (int i = 0; i < m->n; i++)
        if (compress_length(z, i) > 0)
            memcpy(z->grid + ((int64_t) m->host[i] * m->most + m->local[i]) * z->size.block,
                   z->run.in + i * z->size.block, (size_t) compress_length(z, i) * sizeof(float));
}

static int reduce_calls(const sn_compress *z, int stage)
{
    const compress_map *m = &z->g->map;
    if (stage == STAGE_IN)
        return m->uniform ? m->hosts : 1;
    if (stage == STAGE_LANE)
        return compress_map_relay(m);
    return stage == STAGE_OUT && !m->uniform;
}

static void reduce_call(sn_compress *z, int stage, int i, sn_coll_call *ret)
{
    const compress_map *m = &z->g->map;
    if (stage == STAGE_LANE) {
        ret->op = SN_ALL_TO_ALL;
        ret->dtype = SN_U8;
        ret->count = (int64_t) z->size.reduce_code;
        ret->in = z->sent;
        ret->out = z->got;
        return;
    }
    ret->red = SN_SUM;
    ret->dtype = SN_F32;
    if (stage == STAGE_OUT) {
        ret->op = SN_BROADCAST;
        ret->count = z->size.span;
        ret->in = ret->out = z->sum;
    } else if (m->uniform) {
        float *row = grid_of(z) + (int64_t) i * m->most * z->size.block;
        ret->op = SN_REDUCE_SCATTER;
        ret->count = z->size.block;
        ret->in = row;
        ret->out = row + m->local[m->me] * z->size.block;
    } else {
        ret->op = SN_ALL_REDUCE;
        ret->count = (int64_t) m->hosts * m->most * z->size.block;
        ret->in = ret->out = z->grid;
    }
}

static float *row_of(float *all, const sn_compress *z, int h)
{
    return all ? all + (int64_t) h * z->size.span : NULL;
}

/* Block number i of those that my relay handles for host h: whose it is; -1: nobody's. */
static int member_of(const sn_compress *z, int h, int i)
{
    const compress_map *m = &z->g->map;
    return m->member[h * m->most + (m->uniform ? m->local[m->me] : i)];
}

static int blocks_of(const sn_compress *z)
{
    return z->g->map.uniform ? 1 : z->g->map.most;
}

static void encode_host(sn_compress *z, int h)
{
    float *owed = row_of(z->residual, z, h), *velocity = row_of(z->velocity, z, h);
    uint8_t *code = z->sent + (uint64_t) h * z->size.reduce_code;
    for (int i = 0; i < blocks_of(z); i++) {
        int64_t at = i * z->size.block;
        int member = member_of(z, h, i);
        if (member >= 0)
            compress_encode(z, member, compress_part_of(z, h) + at, owed ? owed + at : NULL,
                            velocity ? velocity + at : NULL, code + (uint64_t) i * z->size.code);
    }
}

static void encode_others(sn_compress *z)
{
    const compress_map *m = &z->g->map;
    sn_time began = sn_now();
    for (int h = 0; h < m->hosts; h++)
        if (h != m->host[m->me])
            encode_host(z, h);
    z->g->stats.codec_ns += sn_now() - began;
}

static void reduce_before(sn_compress *z, int stage)
{
    if (stage == STAGE_IN && z->grid)
        pack(z);
    if (stage == STAGE_LANE && compress_map_relay(&z->g->map))
        encode_others(z);
}

/* Mine as it is, then what the other hosts sent, in their order. */
static sn_status add_up(sn_compress *z, float *to)
{
    const compress_map *m = &z->g->map;
    const float *mine = compress_part_of(z, m->host[m->me]);
    sn_time began = sn_now();
    if (to != mine)
        memcpy(to, mine, (size_t) z->size.span * sizeof(float));
    for (int h = 0; h < m->hosts; h++)
        for (int i = 0; h != m->host[m->me] && i < blocks_of(z); i++) {
            int member = member_of(z, m->host[m->me], i);
            const uint8_t *code = z->got + (uint64_t) h * z->size.reduce_code;
            if (member >= 0)
                SN_TRY(compress_decode(z, member, code + (uint64_t) i * z->size.code, true,
                                       to + i * z->size.block));
        }
    z->g->stats.codec_ns += sn_now() - began;
    z->g->stats.coded_bytes += (uint64_t) (m->hosts - 1) * z->size.reduce_code;
    return SN_OK;
}

void compress_divide(const sn_compress *z, float *x, int64_t n)
{
    for (int64_t i = 0; z->run.red == SN_AVG && i < n; i++)
        x[i] /= (float) z->g->map.n;
}

static sn_status reduce_after(sn_compress *z, int stage)
{
    const compress_map *m = &z->g->map;
    float *out = z->run.out;
    if (stage == STAGE_LANE && compress_map_relay(m))
        SN_TRY(add_up(z, m->uniform ? out : z->sum));
    if (stage != STAGE_OUT)
        return SN_OK;
    if (!m->uniform)
        memmove(out, z->sum + m->local[m->me] * z->size.block,
                (size_t) z->size.block * sizeof(float));
    compress_divide(z, out, z->size.block);
    z->g->stats.plain_bytes += (uint64_t) (m->hosts - 1) * (uint64_t) z->size.block * sizeof(float);
    return SN_OK;
}

const compress_half compress_reduce = {
    .name = "reduce_scatter",
    .calls = reduce_calls,
    .call = reduce_call,
    .before = reduce_before,
    .after = reduce_after,
};

/* ---- gathering ---- */

/* Where the codes of my host are before they travel. */
static uint8_t *home_codes(const sn_compress *z)
{
    return z->g->map.uniform ? z->code : z->row;
}

static int gather_calls(const sn_compress *z, int stage)
{
    const compress_map *m = &z->g->map;
    if (stage == STAGE_IN)
        return !m->uniform;
    if (stage == STAGE_LANE)
        return compress_map_relay(m);
    return stage == STAGE_OUT;
}

static void gather_call(sn_compress *z, int stage, int i, sn_coll_call *ret)
{
    const compress_map *m = &z->g->map;
    int64_t code = (int64_t) z->size.code;
    ret->dtype = SN_U8;
    ret->op = SN_ALL_GATHER;
    ret->count = code;
    if (stage == STAGE_IN) {
        ret->in = z->code;
        ret->out = z->row;
    } else if (stage == STAGE_LANE) {
        ret->in = home_codes(z);
        ret->out = m->uniform ? z->row : z->codes;
        ret->count = m->uniform ? code : code * m->most;
    } else if (m->uniform) {
        ret->in = z->row;
        ret->out = z->codes;
        ret->count = code * m->hosts;
    } else {
        ret->op = SN_BROADCAST;
        ret->in = ret->out = z->codes;
        ret->count = code * m->most * m->hosts;
    }
}

static const uint8_t *code_of(const sn_compress *z, int i)
{
    const compress_map *m = &z->g->map;
    uint64_t at = m->uniform ? (uint64_t) m->local[i] * (uint64_t) m->hosts + (uint64_t) m->host[i]
                             : (uint64_t) m->host[i] * (uint64_t) m->most + (uint64_t) m->local[i];
    bool lane_only = m->uniform && m->most == 1;
    return (lane_only ? z->row : z->codes) + at * z->size.code;
}

/* What my block has that the others have not seen. */
static void encode_change(sn_compress *z)
{
    const compress_run *r = &z->run;
    sn_time began = sn_now();
    const float *x = r->mine;
    if (!r->whole) {
        const float *seen = r->seen + z->g->map.me * z->size.block;
        for (int64_t i = 0; i < z->size.block; i++)
            z->change[i] = r->mine[i] - seen[i];
        x = z->change;
    }
    compress_encode(z, z->g->map.me, x, r->whole ? z->back : NULL, NULL, z->code);
    z->g->stats.codec_ns += sn_now() - began;
}

static void gather_before(sn_compress *z, int stage)
{
    const compress_map *m = &z->g->map;
    if (stage != STAGE_IN)
        return;
    encode_change(z);
    if (!m->uniform && m->size[m->host[m->me]] == 1)
        memcpy(z->row, z->code, z->size.code);
}

static void count_gather(sn_compress *z)
{
    const compress_map *m = &z->g->map;
    int64_t home = m->size[m->host[m->me]];
    double away = (double) (m->n - home) * (double) z->size.block * sizeof(float);
    z->g->stats.plain_bytes += (uint64_t) (away / (double) home);
    if (compress_map_relay(m))
        z->g->stats.coded_bytes +=
            z->size.code * (uint64_t) (m->hosts - 1) * (uint64_t) (m->uniform ? 1 : m->most);
}

static sn_status gather_after(sn_compress *z, int stage)
{
    if (stage != STAGE_OUT)
        return SN_OK;
    sn_time began = sn_now();
    for (int i = 0; i < z->g->map.n; i++)
        SN_TRY(
            compress_decode(z, i, code_of(z, i), !z->run.whole, z->run.seen + i * z->size.block));
    z->g->stats.codec_ns += sn_now() - began;
    count_gather(z);
    return SN_OK;
}

const compress_half compress_gather = {
    .name = "all_gather",
    .calls = gather_calls,
    .call = gather_call,
    .before = gather_before,
    .after = gather_after,
};
