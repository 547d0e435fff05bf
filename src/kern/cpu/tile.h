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

#endif
