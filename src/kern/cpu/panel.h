/* SPDX-License-Identifier: Apache-2.0
 *
 * panel — the inner loop of all products: PANEL_ROWS × PANEL_COLS sums stay in registers while k
 * runs over packed operands.
 *
 *                 b  k × PANEL_COLS, a row of it at each k
 *                 ┌──────────────┐
 *   a   rows × k  │ · · b[k] · · │   c[m][·] = Σ_k a[m][k] · b[k][·]  (+ init[m][·])
 *   ┌──────────┐  └──────────────┘
 *   │ a[m] · · │  ┌──────────────┐   a in lines:   [k / 16][row][16]   from rows of A
 *   │          │  │  c: 14 × 32  │   a in columns: [k][16]             from columns of A
 *   └──────────┘  └──────────────┘
 *
 * In AVX-512 fourteen rows of two vectors leave one register for A and two for B, and 16 loads
 * feed 28 multiply–adds. `a` in lines lies in the first-level cache; `b`, and `a` in columns,
 * stream from the second, asked for one block of 16 k ahead. k is padded with zeros to whole blocks
 * on both sides. While a tile computes it asks the memory for what comes after it: the next tile
 * of c, the rows of A that are packed next.
 * Sources: Goto & van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS
 * 34(3), 2008; Van Zee & van de Geijn, "BLIS", ACM TOMS 41(3), 2015. */
#ifndef SN_KERN_PANEL_H
#define SN_KERN_PANEL_H

#define PANEL_VECS 2
#define PANEL_COLS (PANEL_VECS * LANES)
#define BLOCK_K 16
/* A panel of few rows is computed by the smallest of three loops that is tall enough. */
#define PANEL_TALL(rows)                                                                           \
    ((rows) > PANEL_MID ? PANEL_ROWS : (rows) > PANEL_LOW ? PANEL_MID : PANEL_LOW)

typedef struct panel {
    const float *a, *b;
    int64_t blocks; /* of 16 k */
    int64_t a_next; /* in lines: from the end of a row's block to its next one */
    float *c;
    int64_t c_step;
    int64_t second; /* from the first vector of a row of c to the second; LANES where it is dense */
    const float *init; /* NULL: 0. A bias has init_step 0; c itself accumulates. */
    int64_t init_step;
    int rows, cols; /* valid: 1 … PANEL_ROWS, 1 … PANEL_COLS */
    /* A line asked for in each block: of rows ask_c_step apart, and along two other ways. */
    const float *ask_c;
    int64_t ask_c_step;
    const float *ask[2];
    int64_t ask_step;
} panel;

#define PANEL_INLINE static inline __attribute__((always_inline))

PANEL_INLINE void ask_line(const float *p)
{
    __builtin_prefetch(p, 0, 2); /* into the second level: the first is full */
}

PANEL_INLINE void panel_store_whole(const panel *p, int tall, int vecs,
                                    vf acc[PANEL_ROWS][PANEL_VECS])
{
    const float *init = p->init;
    float *c = p->c;
    if (init) {
#pragma GCC unroll 14
        for (int m = 0; m < tall; m++, init += p->init_step)
#pragma GCC unroll 2
            for (int v = 0; v < vecs; v++)
                acc[m][v] += v_load(init + v * LANES);
    }
#pragma GCC unroll 14
    for (int m = 0; m < tall; m++, c += p->c_step)
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++)
            v_store(c + v * p->second, acc[m][v]);
}

/* The start value is added at the end: read at the beginning, it would wait for the stores of the
 * tile before whenever their addresses agree in the low 12 bits. */
PANEL_INLINE void panel_store(const panel *p, int tall, int vecs, vf acc[PANEL_ROWS][PANEL_VECS])
{
    if (p->rows == tall && p->cols == vecs * LANES) {
        panel_store_whole(p, tall, vecs, acc);
        return;
    }
#pragma GCC unroll 14
    for (int m = 0; m < tall; m++) {
        if (m >= p->rows)
            return;
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++) {
            int64_t left = p->cols - v * LANES;
            if (left <= 0)
                continue;
            vf sum = acc[m][v];
            if (p->init)
                sum += v_get(p->init + m * p->init_step + v * LANES, left);
            v_put(p->c + m * p->c_step + v * p->second, sum, left);
        }
    }
}

PANEL_INLINE void panel_fixed(const panel *p, int tall, int vecs, bool columns)
{
    vf acc[PANEL_ROWS][PANEL_VECS];
    const float *a = p->a, *b = p->b, *ask_c = p->ask_c, *ask0 = p->ask[0], *ask1 = p->ask[1];
#pragma GCC unroll 14
    for (int m = 0; m < tall; m++)
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++)
            acc[m][v] = v_set(0);
    for (int64_t i = 0; i < p->blocks; i++) {
        for (int kk = 0; kk < BLOCK_K; kk++) {
            vf row[PANEL_VECS];
#pragma GCC unroll 2
            for (int v = 0; v < vecs; v++) {
                row[v] = v_load(b + v * LANES);
                if (v * LANES % 16 == 0)
                    __builtin_prefetch(b + BLOCK_K * PANEL_COLS + v * LANES, 0, 3);
            }
            if (columns)
                __builtin_prefetch(a + BLOCK_K * BLOCK_K, 0, 3);
#pragma GCC unroll 14
            for (int m = 0; m < tall; m++) {
                vf x = v_set(a[columns ? m : m * BLOCK_K]);
#pragma GCC unroll 2
                for (int v = 0; v < vecs; v++)
                    acc[m][v] = v_fma(x, row[v], acc[m][v]);
            }
            a += columns ? BLOCK_K : 1;
            b += PANEL_COLS;
        }
        a += columns ? 0 : p->a_next;
        ask_line(ask_c);
        ask_line(ask_c + 16);
        ask_line(ask0);
        ask_line(ask1);
        ask_c += i < PANEL_ROWS ? p->ask_c_step : 0;
        ask0 += p->ask_step;
        ask1 += p->ask_step;
    }
    panel_store(p, tall, vecs, acc);
}

static void panel_lines(const panel *p)
{
    if (p->rows <= PANEL_LOW)
        panel_fixed(p, PANEL_LOW, PANEL_VECS, false);
    else if (p->rows <= PANEL_MID)
        panel_fixed(p, PANEL_MID, PANEL_VECS, false);
    else if (p->cols <= LANES)
        panel_fixed(p, PANEL_ROWS, 1, false);
    else
        panel_fixed(p, PANEL_ROWS, PANEL_VECS, false);
}

static void panel_columns(const panel *p)
{
    if (p->rows <= PANEL_LOW)
        panel_fixed(p, PANEL_LOW, PANEL_VECS, true);
    else if (p->rows <= PANEL_MID)
        panel_fixed(p, PANEL_MID, PANEL_VECS, true);
    else
        panel_fixed(p, PANEL_ROWS, PANEL_VECS, true);
}

/* ---- packing ---- */

/* Rows of A, k floats each, `step` apart, into lines, times `scale`; zeros after k and `rows`. */
static void pack_lines(const float *from, int64_t step, int rows, int64_t k, float scale, float *to)
{
    int tall = PANEL_TALL(rows);
    for (int64_t at = 0; at < k; at += BLOCK_K)
        for (int m = 0; m < tall; m++, to += BLOCK_K)
            for (int64_t c = 0; c < BLOCK_K; c += LANES) {
                int64_t left = m < rows ? k - at - c : 0;
                vf x = left > 0 ? v_get(from + m * step + at + c, left) : v_set(0);
                v_store(to + c, x * v_set(scale));
            }
}

/* `cols` columns of A, one after the other in each of k rows `step` apart, into panels of
 * PANEL_ROWS columns: [panel][k][16]. The last two of the 16 belong to the next panel. */
static void pack_columns(const float *from, int64_t step, int64_t cols, int64_t k, float *to)
{
    int64_t size = SN_ALIGN_UP(k, BLOCK_K) * BLOCK_K;
    for (int64_t at = 0; at < k; at++, from += step, to += BLOCK_K) {
        float *line = to;
        for (int64_t m = 0; m < cols; m += PANEL_ROWS, line += size)
            for (int64_t c = 0; c < BLOCK_K; c += LANES)
                v_store(line + c, m + c < cols ? v_get(from + m + c, cols - m - c) : v_set(0));
    }
    for (int64_t m = 0; m < cols; m += PANEL_ROWS, to += size)
        memset(to, 0, (size_t) (size - k * BLOCK_K) * sizeof *to);
}

/* k rows of B `step` apart, `cols` floats of each, into panels of PANEL_COLS, times `scale`. */
static void pack_rows_of_b(const float *from, int64_t step, int64_t k, int64_t cols, float scale,
                           float *to)
{
    int64_t blocks = SN_ALIGN_UP(k, BLOCK_K);
    for (int64_t j = 0; j < cols; j += PANEL_COLS, to += blocks * PANEL_COLS) {
        for (int64_t at = 0; at < k; at++)
            for (int64_t c = 0; c < PANEL_COLS; c += LANES) {
                int64_t left = cols - j - c;
                vf x = left > 0 ? v_get(from + at * step + j + c, left) : v_set(0);
                v_store(to + at * PANEL_COLS + c, x * v_set(scale));
            }
        memset(to + k * PANEL_COLS, 0, (size_t) ((blocks - k) * PANEL_COLS) * sizeof *to);
    }
}

/* `cols` ≤ LANES rows of k floats, `step` apart, become LANES columns of rows `to_step` apart. */
static void pack_strip(const float *from, int64_t step, int64_t k, int64_t cols, float *to,
                       int64_t to_step)
{
    for (int64_t at = 0; at < k; at += LANES) {
        vf square[LANES];
#pragma GCC unroll 16
        for (int64_t r = 0; r < LANES; r++)
            square[r] = r < cols ? v_get(from + r * step + at, k - at) : v_set(0);
        v_transpose(square);
#pragma GCC unroll 16
        for (int64_t c = 0; c < LANES; c++) {
            if (c >= k - at)
                break;
            v_store(to + (at + c) * to_step, square[c]);
        }
    }
}

/* `cols` columns of B that lie as rows of k floats, `step` apart, into panels of PANEL_COLS. */
static void pack_columns_of_b(const float *from, int64_t step, int64_t k, int64_t cols, float *to)
{
    int64_t size = SN_ALIGN_UP(k, BLOCK_K) * PANEL_COLS;
    for (int64_t j = 0; j < cols; j += PANEL_COLS, to += size) {
        for (int64_t v = 0; v < PANEL_COLS; v += LANES)
            pack_strip(from + (j + v) * step, step, k, SN_MIN(LANES, cols - j - v), to + v,
                       PANEL_COLS);
        memset(to + k * PANEL_COLS, 0, (size_t) (size - k * PANEL_COLS) * sizeof *to);
    }
}

#endif
