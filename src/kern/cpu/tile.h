/* SPDX-License-Identifier: Apache-2.0
 *
 * tile — the inner loop of attention's products: 6 rows × TILE_COLS columns of C stay in registers
 * while k runs.
 *
 *             B  k × cols, each row contiguous, zero-padded to whole vectors
 *             ┌──────────────┐
 *   A  6 × k  │ · · b[k] · · │      C[m][·] = Σ_k A[m][k] · B[k][·] + init[m][·]
 *   ┌──────┐  └──────────────┘
 *   │ a[m] │  ┌──────────────┐      A by rows: A[m][k] = a[m·a_step + k]
 *   │      │  │  C: 6 × 64   │      A by columns: A[m][k] = a[m + k·a_step]
 *   └──────┘  └──────────────┘
 *
 * A tile of fewer rows computes its last row several times and stores it once; A by columns reads
 * six values whatever `rows` is. Six rows leave registers for B and A in all three widths, and two
 * loads feed four multiply–adds. Source: Van Zee & van de Geijn, "BLIS", ACM TOMS 41(3), 2015. */
#ifndef SN_KERN_TILE_H
#define SN_KERN_TILE_H

#define TILE_ROWS 6
#define TILE_COLS (TILE_VECS * LANES)

typedef struct tile_args {
    const float *a;
    int64_t a_step;
    const float *b;
    int64_t b_step; /* floats from one k to the next */
    float *c;
    int64_t c_step;
    const float *init; /* NULL: 0. A bias has init_step 0; C itself accumulates. */
    int64_t init_step;
    int64_t k;
    int rows, cols; /* valid: 1 … 6, 1 … TILE_COLS */
} tile_args;

#define TILE_INLINE static inline __attribute__((always_inline))

/* The start value is added at the end: read at the beginning, it would wait for the stores of the
 * tile before whenever their addresses agree in the low 12 bits. */
TILE_INLINE void tile_store(const tile_args *t, int vecs, vf acc[TILE_ROWS][TILE_VECS])
{
#pragma GCC unroll 6
    for (int m = 0; m < TILE_ROWS; m++) {
        if (m >= t->rows)
            return;
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++) {
            int64_t left = t->cols - v * LANES;
            vf sum = acc[m][v];
            if (t->init)
                sum += v_get(t->init + m * t->init_step + v * LANES, left);
            v_put(t->c + m * t->c_step + v * LANES, sum, left);
        }
    }
}

TILE_INLINE void tile_fixed(const tile_args *t, int vecs, bool by_columns)
{
    vf acc[TILE_ROWS][TILE_VECS];
    const float *a[TILE_ROWS], *b = t->b;
    int64_t a_step = by_columns ? t->a_step : 1, b_step = t->b_step;
#pragma GCC unroll 6
    for (int m = 0; m < TILE_ROWS; m++)
        a[m] = by_columns ? t->a : t->a + (m < t->rows ? m : t->rows - 1) * t->a_step;
#pragma GCC unroll 6
    for (int m = 0; m < TILE_ROWS; m++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            acc[m][v] = v_set(0);
    for (int64_t k = 0, at = 0; k < t->k; k++, at += a_step, b += b_step) {
        vf col[TILE_VECS];
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            col[v] = v_load(b + v * LANES);
#pragma GCC unroll 6
        for (int m = 0; m < TILE_ROWS; m++) {
            vf row = v_set(a[m][by_columns ? at + m : at]);
#pragma GCC unroll 4
            for (int v = 0; v < vecs; v++)
                acc[m][v] = v_fma(row, col[v], acc[m][v]);
        }
    }
    tile_store(t, vecs, acc);
}

static void tile_by_rows(const tile_args *t)
{
    switch ((t->cols + LANES - 1) / LANES) {
    case 1:
        tile_fixed(t, 1, false);
        break;
    case 2:
        tile_fixed(t, 2, false);
        break;
#if TILE_VECS > 2
    case 3:
        tile_fixed(t, 3, false);
        break;
    case 4:
        tile_fixed(t, 4, false);
        break;
#endif
    }
}

static void tile_by_columns(const tile_args *t)
{
    switch ((t->cols + LANES - 1) / LANES) {
    case 1:
        tile_fixed(t, 1, true);
        break;
    case 2:
        tile_fixed(t, 2, true);
        break;
#if TILE_VECS > 2
    case 3:
        tile_fixed(t, 3, true);
        break;
    case 4:
        tile_fixed(t, 4, true);
        break;
#endif
    }
}

/* dst[c][r] = src[r][c] for `rows` × `cols`; src rows are src_step apart, dst rows dst_step. 4 × 4
 * blocks in registers, the rest one by one. */
typedef float quad __attribute__((vector_size(16)));

static inline quad quad_load(const float *p)
{
    quad q;
    memcpy(&q, p, sizeof q);
    return q;
}

static inline void transpose_4x4(const float *src, int64_t src_step, float *dst, int64_t dst_step)
{
    quad a = quad_load(src), b = quad_load(src + src_step);
    quad c = quad_load(src + 2 * src_step), d = quad_load(src + 3 * src_step);
    quad ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5),
         ab1 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    quad cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5),
         cd1 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    quad out[4] = {__builtin_shufflevector(ab0, cd0, 0, 1, 4, 5),
                   __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7),
                   __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5),
                   __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7)};
    for (int i = 0; i < 4; i++)
        memcpy(dst + i * dst_step, &out[i], sizeof out[i]);
}

static void transpose(const float *src, int64_t src_step, float *dst, int64_t dst_step,
                      int64_t rows, int64_t cols)
{
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        int64_t c = 0;
        for (; c + 4 <= cols; c += 4)
            transpose_4x4(src + r * src_step + c, src_step, dst + c * dst_step + r, dst_step);
        for (; c < cols; c++)
            for (int i = 0; i < 4; i++)
                dst[c * dst_step + r + i] = src[(r + i) * src_step + c];
    }
    for (; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            dst[c * dst_step + r] = src[r * src_step + c];
}

#endif
