/* SPDX-License-Identifier: Apache-2.0
 *
 * lowrank — PowerSGD (Vogels et al., "PowerSGD: Practical low-rank gradient compression for
 * distributed optimization", NeurIPS 2019): a matrix M travels as P Qᵀ of a given rank.
 *
 *   M_h   the sum of host h, plus what it still owes
 *   IN    all_reduce in the host
 *   LANE  P = Σ M_h Q ▸ orthonormal columns
 *   LANE2 Q = Σ M_hᵀ P
 *   OUT   broadcast of P and Q in the host; everybody has P Qᵀ ≈ Σ M_h; host h owes M_h − P Qᵀ /
 *   hosts
 *
 * Matrices are dealt out to the relays of a host in turn. What lies between matrices (gains,
 * biases) travels as it is, behind the P of relay 0.
 *
 *   factors   | P of relay 0 · plain elements | Q of relay 0 | P of relay 1 | Q of relay 1 | … */
#include "compress/compress_private.h"

#include <math.h>
#include <string.h>

#include "os/os.h"

#define DRAW_SEED 20190531

int64_t lowrank_plain(const sn_compress_opts *o)
{
    int64_t n = o->count;
    for (int k = 0; k < o->matrices; k++)
        n -= o->matrix[k].rows * o->matrix[k].cols;
    return n;
}

static int relay_of(const compress_map *m, const sn_compress_opts *o, int k)
{
    return (o->first_relay + k) % m->relays;
}

int64_t lowrank_lay_out(const compress_map *m, const sn_compress_opts *o, lowrank_part *part,
                        lowrank_matrix *matrix)
{
    int64_t at = 0, rank = o->codec.rank;
    for (int r = 0; r < m->relays; r++) {
        lowrank_part own = {.at = at};
        for (int k = 0; k < o->matrices; k++)
            if (relay_of(m, o, k) == r) {
                if (matrix)
                    matrix[k] = (lowrank_matrix){.of = o->matrix[k], .relay = r, .p = at + own.p};
                own.p += o->matrix[k].rows * rank;
            }
        own.p += r == 0 ? lowrank_plain(o) : 0;
        for (int k = 0; k < o->matrices; k++)
            if (relay_of(m, o, k) == r) {
                if (matrix)
                    matrix[k].q = at + own.p + own.q;
                own.q += o->matrix[k].cols * rank;
            }
        if (part)
            part[r] = own;
        at += own.p + own.q;
    }
    return at;
}

/* My relay's part; NULL: I am none. */
static const lowrank_part *my_part(const sn_compress *z)
{
    int place = z->g->map.local[z->g->map.me];
    return place < z->g->map.relays ? &z->part[place] : NULL;
}

/* Where the plain elements lie: behind the P of relay 0's matrices. */
static float *plain_of(const sn_compress *z)
{
    const lowrank_part *p = &z->part[0];
    return z->factor + p->at + p->p - lowrank_plain(&z->opts);
}

/* Copy what lies between the matrices, there or back. */
static void move_plain(sn_compress *z, bool back)
{
    float *packed = plain_of(z), *vector = z->run.in;
    int64_t at = 0;
    for (int k = 0; k <= z->opts.matrices; k++) {
        bool last = k == z->opts.matrices;
        const sn_compress_matrix *x = last ? NULL : &z->opts.matrix[k];
        int64_t n = (last ? z->opts.count : x->at) - at;
        memcpy(back ? vector + at : packed, back ? packed : vector + at,
               (size_t) n * sizeof(float));
        packed += n;
        at = last ? at : x->at + x->rows * x->cols;
    }
}

void lowrank_draw(const sn_compress *z, const lowrank_matrix *k)
{
    float *q = z->factor + k->q;
    for (int64_t i = 0; i < k->of.cols * z->opts.codec.rank; i++)
        q[i] = (float) sn_hash_normal(DRAW_SEED, (uint64_t) k->of.at, (uint64_t) i);
}

/* ---- the stages ---- */

static int lowrank_calls(const sn_compress *z, int stage)
{
    if (stage == STAGE_IN)
        return 1;
    if (stage == STAGE_OUT)
        return z->g->map.relays;
    const lowrank_part *part = my_part(z);
    return part && (stage == STAGE_LANE ? part->p : part->q) > 0;
}

static void lowrank_call(sn_compress *z, int stage, int i, sn_coll_call *ret)
{
    const lowrank_part *part = my_part(z);
    float *data = z->run.in;
    ret->op = SN_ALL_REDUCE;
    ret->red = SN_SUM;
    ret->dtype = SN_F32;
    ret->count = z->opts.count;
    if (stage == STAGE_OUT) {
        ret->op = SN_BROADCAST;
        ret->root = i;
        data = z->factor + z->part[i].at;
        ret->count = z->part[i].p + z->part[i].q;
    } else if (stage != STAGE_IN) {
        data = z->factor + part->at + (stage == STAGE_LANE ? 0 : part->p);
        ret->count = stage == STAGE_LANE ? part->p : part->q;
    }
    ret->in = ret->out = data;
}

/* What another split owed for elements that travel as they are is paid at once. */
static void add_owed(sn_compress *z)
{
    float *packed = plain_of(z);
    for (int64_t i = 0; i < lowrank_plain(&z->opts); i++) {
        packed[i] += z->plain_owed[i];
        z->plain_owed[i] = 0;
    }
}

static bool mine(const sn_compress *z, const lowrank_matrix *k)
{
    return k->relay == z->g->map.local[z->g->map.me];
}

static void begin_p(sn_compress *z)
{
    for (int i = 0; i < z->opts.matrices; i++) {
        const lowrank_matrix *k = &z->matrix[i];
        int64_t n = k->of.rows * k->of.cols;
        if (!mine(z, k))
            continue;
        for (int64_t j = 0; j < n; j++)
            k->residual[j] += z->run.in[k->of.at + j];
        sn_codec_lowrank_p(k->residual, k->of.rows, k->of.cols, z->opts.codec.rank,
                           z->factor + k->q, z->factor + k->p);
    }
    if (z->plain_owed) {
        move_plain(z, false);
        add_owed(z);
    }
}

static void begin_q(sn_compress *z)
{
    for (int i = 0; i < z->opts.matrices; i++) {
        const lowrank_matrix *k = &z->matrix[i];
        if (!mine(z, k))
            continue;
        sn_codec_orthonormal(z->factor + k->p, k->of.rows, z->opts.codec.rank);
        sn_codec_lowrank_q(k->residual, k->of.rows, k->of.cols, z->opts.codec.rank,
                           z->factor + k->p, z->factor + k->q);
    }
}

static void lowrank_before(sn_compress *z, int stage)
{
    sn_time began = sn_now();
    if (my_part(z) && stage == STAGE_LANE)
        begin_p(z);
    if (my_part(z) && stage == STAGE_LANE2)
        begin_q(z);
    z->g->stats.codec_ns += sn_now() - began;
}

/* ---- the end ---- */

/* A column of Q that is zero would stay so for ever, and one that is not finite too. */
static void renew(sn_compress *z, const lowrank_matrix *k, bool *ret_finite)
{
    int rank = z->opts.codec.rank;
    float *q = z->factor + k->q;
    *ret_finite = true;
    for (int c = 0; c < rank; c++) {
        double norm = 0;
        for (int64_t j = 0; j < k->of.cols; j++)
            norm += (double) q[j * rank + c] * (double) q[j * rank + c];
        *ret_finite = *ret_finite && isfinite(norm);
        for (int64_t j = 0; j < k->of.cols && !(norm > 0 && isfinite(norm)); j++)
            q[j * rank + c] =
                (float) sn_hash_normal(DRAW_SEED, (uint64_t) (k->of.at + c), (uint64_t) j);
    }
}

/* The rows of the matrix that this member needs: all of mine, else those of my block. */
static void rows_of(const sn_compress *z, const lowrank_matrix *k, int64_t *ret_from,
                    int64_t *ret_to)
{
    int64_t from = z->g->map.me * z->size.block, to = from + z->size.block;
    *ret_from = 0;
    *ret_to = k->of.rows;
    if (z->run.whole || mine(z, k))
        return;
    *ret_from = SN_MAX(0, (from - k->of.at) / k->of.cols);
    *ret_to = SN_MIN(k->of.rows, (to - k->of.at + k->of.cols - 1) / k->of.cols);
}

static void restore(sn_compress *z, const lowrank_matrix *k)
{
    int64_t from, to, rank = z->opts.codec.rank, cols = k->of.cols;
    float *m = z->run.in + k->of.at;
    rows_of(z, k, &from, &to);
    if (to > from)
        sn_codec_lowrank_m(z->factor + k->p + from * rank, z->factor + k->q, to - from, cols,
                           (int) rank, m + from * cols);
    if (!mine(z, k))
        return;
    bool finite;
    float share = 1.0f / (float) z->g->map.hosts;
    renew(z, k, &finite);
    for (int64_t i = 0; i < k->of.rows * cols; i++)
        k->residual[i] = finite ? k->residual[i] - m[i] * share : 0;
}

static void count_lowrank(sn_compress *z)
{
    const compress_map *m = &z->g->map;
    const lowrank_part *part = my_part(z);
    double away = m->hosts - 1, halves = z->run.whole ? 2 : 1;
    z->g->stats.plain_bytes += (uint64_t) (halves * away * (double) z->size.block * sizeof(float));
    if (part)
        z->g->stats.coded_bytes +=
            (uint64_t) (2 * away / m->hosts * (double) (part->p + part->q) * sizeof(float));
}

static sn_status lowrank_after(sn_compress *z, int stage)
{
    const compress_run *r = &z->run;
    if (stage != STAGE_OUT)
        return SN_OK;
    sn_time began = sn_now();
    move_plain(z, true);
    for (int k = 0; k < z->opts.matrices; k++)
        restore(z, &z->matrix[k]);
    float *from = r->whole ? r->in : r->in + z->g->map.me * z->size.block;
    int64_t n = r->whole ? z->opts.count : z->size.block;
    if (r->out != from)
        memcpy(r->out, from, (size_t) n * sizeof(float));
    for (int64_t i = 0; r->red == SN_AVG && i < n; i++)
        r->out[i] /= (float) z->g->map.n;
    z->g->stats.codec_ns += sn_now() - began;
    count_lowrank(z);
    return SN_OK;
}

const compress_half compress_lowrank = {
    .name = "reduce_scatter",
    .calls = lowrank_calls,
    .call = lowrank_call,
    .before = lowrank_before,
    .after = lowrank_after,
};
