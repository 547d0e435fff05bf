/* SPDX-License-Identifier: Apache-2.0
 *
 * powersgd — the pieces of Vogels et al., "PowerSGD: practical low-rank gradient compression for
 * distributed optimization", NeurIPS 2019: m ≈ p qᵀ by one step of power iteration, p and q being
 * summed over the members between the pieces. The factors are walked four columns at a time and in
 * blocks of 1,024 of the matrix's columns, transposed, so that the matrix streams through once for
 * every four. */
#include "codec/block.h"

#include <math.h>

enum { COLS = 1024, GROUP = 4, DOTS = 8 };

/* Columns [group, group + GROUP) of the rows [at, at + n) of q, as rows; zeros where there is
 * none. */
INLINE void turn(const float *q, int64_t at, int n, int rank, int group, float qt[GROUP][COLS])
{
    memset(qt, 0, sizeof(float[GROUP][COLS]));
    for (int r = 0; r < GROUP && group + r < rank; r++)
        for (int j = 0; j < n; j++)
            qt[r][j] = q[(at + j) * rank + group + r];
}

typedef struct sums {
    vf a[GROUP][PARTS];
} sums;

INLINE void add_products(sums *s, const float *x, float qt[GROUP][COLS], int j)
{
    for (int k = 0; k < PARTS; k++) {
        vf v, q;
        memcpy(&v, x + k * PART, sizeof(v));
        for (int r = 0; r < GROUP; r++) {
            memcpy(&q, qt[r] + j + k * PART, sizeof(q));
            s->a[r][k] += v * q;
        }
    }
}

/* sum[0 … GROUP) = row · qt, in 16 lanes that a fixed tree adds up. */
INLINE void row_times(const float *row, int n, float qt[GROUP][COLS], float *sum)
{
    sums s = {0};
    int j = 0;
    for (; j + LANES <= n; j += LANES)
        add_products(&s, row + j, qt, j);
    if (j < n) {
        float rest[LANES] = {0};
        memcpy(rest, row + j, (size_t) (n - j) * sizeof(*rest));
        add_products(&s, rest, qt, j);
    }
    for (int r = 0; r < GROUP; r++)
        sum[r] = add_lanes(s.a[r]);
}

static void lowrank_p(const float *m, int64_t rows, int64_t cols, int rank, const float *q,
                      float *p)
{
    memset(p, 0, (size_t) (rows * rank) * sizeof(*p));
    for (int group = 0; group < rank; group += GROUP) {
        for (int64_t at = 0; at < cols; at += COLS) {
            int n = (int) SN_MIN(COLS, cols - at), width = SN_MIN(GROUP, rank - group);
            float qt[GROUP][COLS], sum[GROUP];
            turn(q, at, n, rank, group, qt);
            for (int64_t i = 0; i < rows; i++) {
                row_times(m + i * cols + at, n, qt, sum);
                for (int r = 0; r < width; r++)
                    p[i * rank + group + r] += sum[r];
            }
        }
    }
}

static void lowrank_q(const float *m, int64_t rows, int64_t cols, int rank, const float *p,
                      float *q)
{
    for (int group = 0; group < rank; group += GROUP) {
        int width = SN_MIN(GROUP, rank - group);
        for (int64_t at = 0; at < cols; at += COLS) {
            int n = (int) SN_MIN(COLS, cols - at);
            float qt[GROUP][COLS] = {0};
            for (int64_t i = 0; i < rows; i++) {
                const float *restrict row = m + i * cols + at;
                float f[GROUP] = {0};
                memcpy(f, p + i * rank + group, (size_t) width * sizeof(*f));
                for (int j = 0; j < n; j++) {
                    qt[0][j] += row[j] * f[0];
                    qt[1][j] += row[j] * f[1];
                    qt[2][j] += row[j] * f[2];
                    qt[3][j] += row[j] * f[3];
                }
            }
            for (int j = 0; j < n; j++)
                for (int r = 0; r < width; r++)
                    q[(at + j) * rank + group + r] = qt[r][j];
        }
    }
}

static void lowrank_m(const float *p, const float *q, int64_t rows, int64_t cols, int rank,
                      float *m)
{
    for (int group = 0; group < rank; group += GROUP) {
        int width = SN_MIN(GROUP, rank - group);
        for (int64_t at = 0; at < cols; at += COLS) {
            int n = (int) SN_MIN(COLS, cols - at);
            float qt[GROUP][COLS];
            turn(q, at, n, rank, group, qt);
            for (int64_t i = 0; i < rows; i++) {
                float *restrict row = m + i * cols + at, f[GROUP] = {0}, part[COLS];
                memcpy(f, p + i * rank + group, (size_t) width * sizeof(*f));
                for (int j = 0; j < n; j++)
                    part[j] =
                        ((qt[0][j] * f[0] + qt[1][j] * f[1]) + qt[2][j] * f[2]) + qt[3][j] * f[3];
                give(row, part, n, group > 0);
            }
        }
    }
}

/* ---- orthonormal: in double, so that f32 columns come out exact to their last bits ---- */

static double dot(const float *a, const float *b, int64_t rows, int rank)
{
    double lane[DOTS] = {0};
    int64_t i = 0;
    for (; i + DOTS <= rows; i += DOTS)
        for (int l = 0; l < DOTS; l++)
            lane[l] += (double) a[(i + l) * rank] * (double) b[(i + l) * rank];
    for (int l = 0; i < rows; i++, l++)
        lane[l] += (double) a[i * rank] * (double) b[i * rank];
    for (int half = DOTS / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

/* Takes what lies along the columns before `c` out of column c; returns its length then. */
static double take_out(float *p, int64_t rows, int rank, int c)
{
    for (int turns = 0; turns < 2; turns++) {
        for (int b = 0; b < c; b++) {
            double d = dot(p + b, p + c, rows, rank);
            for (int64_t i = 0; i < rows; i++)
                p[i * rank + c] = (float) ((double) p[i * rank + c] - d * (double) p[i * rank + b]);
        }
    }
    return sqrt(dot(p + c, p + c, rows, rank));
}

static void draw(float *p, int64_t rows, int rank, int c, int attempt)
{
    for (int64_t i = 0; i < rows; i++)
        p[i * rank + c] =
            (float) (sn_hash_uniform(7 + (uint64_t) attempt, (uint64_t) c, (uint64_t) i) - 0.5);
}

/* What is left of a column that depends on those before it is rounding; NaN is more. */
static bool gone(double after, double before)
{
    return isfinite(before) && after <= 1e-6 * before;
}

static void orthonormal(float *p, int64_t rows, int rank)
{
    for (int c = 0; c < rank; c++) {
        double before = sqrt(dot(p + c, p + c, rows, rank)), after = take_out(p, rows, rank, c);
        for (int attempt = 0; gone(after, before) && attempt < 3; attempt++) {
            draw(p, rows, rank, c, attempt);
            before = sqrt((double) rows);
            after = c < rows ? take_out(p, rows, rank, c) : 0;
        }
        double scale = !isfinite(after) ? NAN : gone(after, before) ? 0 : 1 / after;
        for (int64_t i = 0; i < rows; i++)
            p[i * rank + c] = (float) ((double) p[i * rank + c] * scale);
    }
}

/* ---- the row ---- */

static int64_t bytes(const sn_codec *c, int64_t n)
{
    int64_t side = (int64_t) ceil(sqrt((double) n));
    return SN_MIN(4 * n, 2 * side * c->rank * 4);
}

static sn_status parse(const char *text, sn_codec *c)
{
    int64_t rank;
    if (!sn_str_to_int(text, &rank) || rank < 1 || rank > SN_CODEC_RANK_MAX)
        return sn_fail(SN_EINVAL,
                       "powersgd needs a rank from 1 to %d, as in powersgd:4, not '%.40s'",
                       SN_CODEC_RANK_MAX, text);
    c->rank = (int) rank;
    return SN_OK;
}

const sn_codec_row CODEC_HERE(codec_powersgd) = {
    .name = "powersgd",
    .form = "powersgd:4",
    .help = "matrices as the product of two factors of the given rank; wants feedback",
    .kind = SN_CODEC_POWERSGD,
    .feedback = true,
    .parse = parse,
    .bytes = bytes,
};

const codec_lowrank CODEC_HERE(codec_lowrank) = {lowrank_p, lowrank_q, lowrank_m, orthonormal};
