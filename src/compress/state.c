/* SPDX-License-Identifier: Apache-2.0
 *
 * state — what a vector owes, named for a checkpoint, and taken over from another split. */
#include "compress/compress_private.h"

static sn_compress_state *add(sn_compress *z, sn_compress_state_kind kind, int64_t at,
                              int64_t count, float *data)
{
    sn_compress_state *s = &z->state[z->states++];
    *s = (sn_compress_state){.kind = kind,
                             .source = z->g->map.host[z->g->map.me],
                             .at = at,
                             .count = count,
                             .data = data};
    return s;
}

/* The pieces of a [hosts][span] array: one for each block that this relay encodes. */
static void add_blocks(sn_compress *z, sn_compress_state_kind kind, float *all)
{
    const compress_map *m = &z->g->map;
    int place = m->local[m->me];
    for (int h = 0; all && h < m->hosts; h++)
        for (int i = 0; i < (m->uniform ? 1 : m->most); i++) {
            int member = m->member[h * m->most + (m->uniform ? place : i)];
            if (member >= 0 && compress_length(z, member) > 0)
                add(z, kind, member * z->size.block, compress_length(z, member),
                    all + h * z->size.span + i * z->size.block);
        }
}

/* What lies between the matrices, in relay 0's hands. */
static void add_between(sn_compress *z)
{
    int64_t at = 0;
    float *owed = z->plain_owed;
    for (int k = 0; owed && k <= z->opts.matrices; k++) {
        bool last = k == z->opts.matrices;
        int64_t n = (last ? z->opts.count : z->opts.matrix[k].at) - at;
        if (n > 0)
            add(z, SN_COMPRESS_OWED, at, n, owed);
        owed += n;
        at += n + (last ? 0 : z->opts.matrix[k].rows * z->opts.matrix[k].cols);
    }
}

static void add_matrices(sn_compress *z)
{
    for (int i = 0; z->factor && i < z->opts.matrices; i++) {
        const lowrank_matrix *k = &z->matrix[i];
        if (!k->residual)
            continue;
        add(z, SN_COMPRESS_OWED, k->of.at, k->of.rows * k->of.cols, k->residual);
        add(z, SN_COMPRESS_FACTOR, k->of.at, k->of.cols * z->opts.codec.rank, z->factor + k->q)
            ->shared = true;
    }
}

void compress_states_make(sn_compress *z)
{
    const compress_map *m = &z->g->map;
    int most = 2 * m->hosts * m->most + 3 * z->opts.matrices + 2;
    z->state = sn_alloc((size_t) most * sizeof(*z->state));
    add_blocks(z, SN_COMPRESS_OWED, z->residual);
    add_blocks(z, SN_COMPRESS_VELOCITY, z->velocity);
    if (z->back && compress_length(z, m->me) > 0)
        add(z, SN_COMPRESS_OWED_BACK, m->me * z->size.block, compress_length(z, m->me), z->back);
    add_between(z);
    add_matrices(z);
}

int sn_compress_states(sn_compress *z, const sn_compress_state **ret)
{
    *ret = z->state;
    return z->states;
}

/* The host that delivers what `source` owed for elements of piece s: the same where there is such a
 * host, but never the owner of a block who sends itself nothing. */
static int heir(const sn_compress *z, const sn_compress_state *s, int source)
{
    const compress_map *m = &z->g->map;
    int h = source % m->hosts;
    if (z->factor || z->size.exchange_bytes)
        return h;
    int owner = m->host[s->at / z->size.block];
    return h == owner ? (h + 1) % m->hosts : h;
}

static bool inherits(const sn_compress *z, const sn_compress_state *s, int source)
{
    if (s->kind == SN_COMPRESS_OWED_BACK || s->kind == SN_COMPRESS_FACTOR)
        return true;
    return heir(z, s, source) == z->g->map.host[z->g->map.me];
}

void sn_compress_take_over(sn_compress *z, sn_compress_state_kind kind, int source, int64_t at,
                           int64_t count, const float *data)
{
    for (int i = 0; i < z->states; i++) {
        const sn_compress_state *s = &z->state[i];
        int64_t from = SN_MAX(at, s->at), to = SN_MIN(at + count, s->at + s->count);
        if (s->kind != kind || !inherits(z, s, source))
            continue;
        for (int64_t k = from; k < to; k++) { /* a zero takes the value bit by bit */
            float *mine = &s->data[k - s->at];
            bool replaces = *mine == 0 || kind == SN_COMPRESS_FACTOR;
            *mine = replaces ? data[k - at] : *mine + data[k - at];
        }
    }
}
