/* SPDX-License-Identifier: Apache-2.0
 *
 * pieces — a block's code: the codes of the pieces of segments that lie in it, one after the other.
 *
 *   vector    | segment 0        |pad| segment 1  | segment 2              |
 *   blocks    |           0            |           1           |     2     |
 *   pieces    |       0          |   | 1 |   2    |     3      |     4     | */
#include "compress/compress_private.h"

#include <string.h>

#define CODE_ALIGN 8 /* of a piece's code */

static uint64_t pass_bytes(const sn_codec *c, int64_t n)
{
    return SN_ALIGN_UP((uint64_t) sn_codec_bytes(c, n), (uint64_t) CODE_ALIGN);
}

/* The codec of a piece that begins with element `at` of its segment. */
static sn_codec codec_at(const sn_compress_segment *s, int64_t at)
{
    sn_codec c = s->codec;
    if (c.cols > 0)
        c.phase = (c.phase + at) % c.cols;
    return c;
}

static int passes_of(const sn_compress_segment *s)
{
    return SN_MAX(1, s->passes);
}

uint64_t compress_cut(const sn_compress_opts *o, int64_t block, int n, int *first,
                      compress_piece *piece)
{
    sn_compress_segment all = {.count = o->count, .codec = o->codec};
    uint64_t longest = 0;
    int count = 0, segments = o->segments ? o->segments : 1;
    for (int b = 0; b < n; b++) {
        uint64_t code = 0;
        if (first)
            first[b] = count;
        for (int s = 0; s < segments; s++) {
            const sn_compress_segment *of = o->segments ? &o->segment[s] : &all;
            int64_t from = SN_MAX(of->at, b * block);
            int64_t to = SN_MIN(of->at + of->count, (b + 1) * block);
            if (to <= from)
                continue;
            sn_codec codec = codec_at(of, from - of->at);
            uint64_t bytes = pass_bytes(&codec, to - from);
            if (piece)
                piece[count] =
                    (compress_piece){from - b * block, to - from, of, codec, code, bytes};
            code += bytes * (uint64_t) passes_of(of);
            count++;
        }
        longest = SN_MAX(longest, code);
    }
    if (first)
        first[n] = count;
    return longest;
}

int64_t compress_length(const sn_compress *z, int i)
{
    int64_t left = z->opts.count - i * z->size.block;
    return SN_MAX(0, SN_MIN(left, z->size.block));
}

/* A code of x, then of what it left, and so on. owed NULL: what is left in the end is forgotten. */
static void encode_piece(sn_compress *z, const compress_piece *p, const float *x, float *owed,
                         float *velocity, uint8_t *code)
{
    int passes = passes_of(p->of);
    if (passes > 1 && !owed) {
        owed = z->left;
        memset(owed, 0, (size_t) p->count * sizeof(float));
    }
    for (int k = 0; k < passes; k++)
        sn_codec_encode(&p->codec, k ? z->zeros : x, owed, k ? NULL : velocity, z->opts.momentum,
                        p->count, code + (uint64_t) k * p->bytes);
}

void compress_encode(sn_compress *z, int member, const float *x, float *owed, float *velocity,
                     uint8_t *code)
{
    for (int i = z->first[member]; i < z->first[member + 1]; i++) {
        const compress_piece *p = &z->piece[i];
        bool moves = velocity && p->codec.kind == SN_CODEC_TOPK;
        encode_piece(z, p, x + p->at, owed ? owed + p->at : NULL, moves ? velocity + p->at : NULL,
                     code + p->code);
    }
}

sn_status compress_decode(const sn_compress *z, int member, const uint8_t *code, bool add,
                          float *to)
{
    if (!add && compress_length(z, member) > 0)
        memset(to, 0, (size_t) compress_length(z, member) * sizeof(float));
    for (int i = z->first[member]; i < z->first[member + 1]; i++) {
        const compress_piece *p = &z->piece[i];
        int64_t bytes = sn_codec_bytes(&p->codec, p->count);
        for (int k = 0; k < passes_of(p->of); k++)
            SN_TRY(sn_codec_decode(&p->codec, code + p->code + (uint64_t) k * p->bytes, bytes,
                                   p->count, add || k, to + p->at));
    }
    return SN_OK;
}
