/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange — all_reduce between two hosts: everybody gets both codes and adds them up. The sum is
 * not coded again, and no more bytes travel than by reducing and gathering; of H hosts it would be
 * H/2 times as many.
 *
 *   IN    hosts × reduce_scatter, each leaves my lane's block of one host
 *   LANE  encode all of them ▸ all_gather of codes between hosts
 *   OUT   all_gather in the host of what the lanes got ▸ decode, add up in host order */
#include "compress/compress_private.h"

#include <string.h>

#include "os/os.h"

bool compress_exchanges(const compress_map *m, const sn_compress_opts *o)
{
    return (o->calls & SN_COMPRESS_ALL_REDUCE) && m->uniform && m->hosts == 2 &&
           o->codec.kind != SN_CODEC_NONE && o->codec.kind != SN_CODEC_POWERSGD;
}

/* The codes of one relay: a block for each host. */
static uint64_t codes_of_relay(const sn_compress *z)
{
    return z->size.code * (uint64_t) z->g->map.hosts;
}

static int exchange_calls(const sn_compress *z, int stage)
{
    return stage == STAGE_IN ? z->g->map.hosts : stage == STAGE_LANE || stage == STAGE_OUT;
}

static void exchange_call(sn_compress *z, int stage, int i, sn_coll_call *ret)
{
    if (stage == STAGE_IN) {
        compress_reduce.call(z, stage, i, ret);
        return;
    }
    uint64_t bytes = codes_of_relay(z);
    ret->op = SN_ALL_GATHER;
    ret->dtype = SN_U8;
    ret->in = stage == STAGE_LANE ? z->mine : z->lane;
    ret->out = stage == STAGE_LANE ? z->lane : z->everyone;
    ret->count = (int64_t) (stage == STAGE_LANE ? bytes : bytes * (uint64_t) z->g->map.hosts);
}

static void encode_all(sn_compress *z)
{
    const compress_map *m = &z->g->map;
    sn_time began = sn_now();
    for (int h = 0; h < m->hosts; h++) {
        int member = m->member[h * m->most + m->local[m->me]];
        int64_t at = (int64_t) h * z->size.span;
        compress_encode(z, member, compress_part_of(z, h), z->residual ? z->residual + at : NULL,
                        z->velocity ? z->velocity + at : NULL,
                        z->mine + (uint64_t) h * z->size.code);
    }
    z->g->stats.codec_ns += sn_now() - began;
}

static void exchange_before(sn_compress *z, int stage)
{
    if (stage == STAGE_IN)
        compress_reduce.before(z, stage);
    if (stage == STAGE_LANE)
        encode_all(z);
}

/* What host `from` had for the block of member i. */
static const uint8_t *code_of(const sn_compress *z, int i, int from)
{
    const compress_map *m = &z->g->map;
    const uint8_t *codes = m->most == 1 ? z->lane : z->everyone;
    uint64_t relay = (uint64_t) m->local[i] * (uint64_t) m->hosts + (uint64_t) from;
    return codes + relay * codes_of_relay(z) + (uint64_t) m->host[i] * z->size.code;
}

static sn_status exchange_after(sn_compress *z, int stage)
{
    const compress_map *m = &z->g->map;
    if (stage != STAGE_OUT)
        return SN_OK;
    sn_time began = sn_now();
    for (int i = 0; i < m->n; i++) {
        float *to = z->run.seen + i * z->size.block;
        for (int from = 0; from < m->hosts; from++)
            SN_TRY(compress_decode(z, i, code_of(z, i, from), from > 0, to));
        compress_divide(z, to, compress_length(z, i));
    }
    z->g->stats.codec_ns += sn_now() - began;
    z->g->stats.coded_bytes += (uint64_t) (m->hosts - 1) * codes_of_relay(z);
    z->g->stats.plain_bytes +=
        2 * (uint64_t) (m->hosts - 1) * (uint64_t) z->size.block * sizeof(float);
    return SN_OK;
}

const compress_half compress_exchange = {
    .name = "all_reduce",
    .calls = exchange_calls,
    .call = exchange_call,
    .before = exchange_before,
    .after = exchange_after,
};
