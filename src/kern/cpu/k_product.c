/* SPDX-License-Identifier: Apache-2.0
 * Products: C[M,N] (+)= A·B (+ bias), the three forms that a linear layer and its adjoints need.
 *
 *   A by rows (linear, linear_dx)                 A by columns (linear_dw)
 *   for groups of 1024 of k: pack B               for blocks of K_BLOCK of k: pack B
 *     for blocks of 192 rows                        for blocks of 1152 rows: pack A
 *       for panels, for blocks of K_BLOCK of k        for panels
 *         for tiles of 6 rows                           for tiles of 6 rows
 *
 * B packed is panel 0 [k][TILE_COLS] | panel 1 | …, zero-padded. A panel's block of K_BLOCK stays
 * in the first-level cache while tiles pass over it; the rest of the inner loops' data in the
 * second. C is read back from the second block of k on. The order of each sum depends on nothing
 * but its length, so equal inputs give equal bits. */

#define K_BLOCK 128
#define K_GROUP 1024
#define ROW_BLOCK 192
#define ROW_BLOCK_COLS 1152 /* when A is by columns: its rows are read as whole streams */

typedef struct product {
    int64_t m, n, k;
    const float *a, *b, *bias;
    int64_t a_step, b_step;
    bool a_columns; /* A is stored [K,M] */
    bool b_rows;    /* B is stored [K,N]; else [N,K] */
    bool add;
    float *c; /* [M,N] */
} product;

/* Floats from one k to the next in a packed block of A: its lines spread over the cache sets. */
static int64_t a_pitch(int64_t m)
{
    return SN_ALIGN_UP(SN_MIN(m, ROW_BLOCK_COLS), 16) + 16;
}

static size_t product_panels(int64_t n, int64_t k)
{
    return (size_t) (SN_ALIGN_UP(n, TILE_COLS) * SN_MIN(k, K_GROUP));
}

static void pack_panel(const product *p, int64_t n0, int64_t k0, int64_t ks, float *to)
{
    int64_t cols = SN_MIN(p->n - n0, TILE_COLS);
    if (!p->b_rows) {
        if (cols < TILE_COLS)
            memset(to, 0, (size_t) (ks * TILE_COLS) * sizeof *to);
        transpose(p->b + n0 * p->b_step + k0, p->b_step, to, TILE_COLS, cols, ks);
        return;
    }
    for (int64_t k = 0; k < ks; k++)
        for (int64_t c = 0; c < TILE_COLS; c += LANES)
            v_store(to + k * TILE_COLS + c,
                    c < cols ? v_get(p->b + (k0 + k) * p->b_step + n0 + c, cols - c) : v_set(0));
}

static void pack_columns(const product *p, int64_t m0, int64_t rows, int64_t k0, int64_t ks,
                         float *to)
{
    int64_t pitch = a_pitch(p->m);
    for (int64_t k = 0; k < ks; k++)
        for (int64_t m = 0; m < rows; m += LANES)
            v_put(to + k * pitch + m, v_get(p->a + (k0 + k) * p->a_step + m0 + m, rows - m),
                  rows - m);
}

/* The part of a product that one pass over the packed B computes: rows [m0, m0 + rows), k in
 * [k0, k0 + ks). */
typedef struct part {
    const float *packed; /* panels of ks rows */
    int64_t m0, rows, k0, ks;
} part;

/* Ask for what the next tile will touch, early enough to come from memory: its rows lie too far
 * apart for the processor to guess. Each part of A is asked for once. */
static void ahead(const product *p, const tile_args *t, int64_t n0)
{
    for (int i = 0; i < TILE_ROWS; i++)
        for (int c = 0; c < t->cols; c += 16)
            __builtin_prefetch(t->c + (TILE_ROWS + i) * t->c_step + c, 1, 2);
    for (int i = 0; i < TILE_ROWS && n0 == 0 && !p->a_columns; i++)
        for (int64_t c = 0; c < t->k; c += 16)
            __builtin_prefetch(t->a + (TILE_ROWS + i) * t->a_step + c, 0, 2);
}

/* The tiles of the panel at column n0, k in [k, k + K_BLOCK). `a` points at their A. */
static void product_panel(const product *p, const part *g, const float *a, int64_t a_step,
                          int64_t k, int64_t n0)
{
    bool adds = k > 0 || p->add;
    tile_args t = {.a_step = a_step,
                   .b = g->packed + n0 * g->ks + (k - g->k0) * TILE_COLS,
                   .b_step = TILE_COLS,
                   .c_step = p->n,
                   .init_step = adds ? p->n : 0,
                   .k = SN_MIN(g->k0 + g->ks - k, K_BLOCK),
                   .cols = (int) SN_MIN(p->n - n0, TILE_COLS)};
    for (int64_t m = 0; m < g->rows; m += TILE_ROWS) {
        t.rows = (int) SN_MIN(g->rows - m, TILE_ROWS);
        t.c = p->c + (g->m0 + m) * p->n + n0;
        t.init = adds ? t.c : p->bias ? p->bias + n0 : NULL;
        t.a = p->a_columns ? a + m : a + m * a_step;
        ahead(p, &t, n0);
        if (p->a_columns)
            tile_by_columns(&t);
        else
            tile_by_rows(&t);
    }
}

static void product_by_columns(const product *p, const part *g, float *packed_a)
{
    pack_columns(p, g->m0, g->rows, g->k0, g->ks, packed_a);
    for (int64_t n0 = 0; n0 < p->n; n0 += TILE_COLS)
        product_panel(p, g, packed_a, a_pitch(p->m), g->k0, n0);
}

static void product_by_rows(const product *p, const part *g)
{
    for (int64_t n0 = 0; n0 < p->n; n0 += TILE_COLS)
        for (int64_t k = g->k0; k < g->k0 + SN_MAX(g->ks, 1); k += K_BLOCK)
            product_panel(p, g, p->a + g->m0 * p->a_step + k, p->a_step, k, n0);
}

/* An empty sum (k = 0) makes one pass as well: C becomes the bias, or zero. */
static void product_run(const product *p, void *work)
{
    float *packed = work, *packed_a = packed + product_panels(p->n, p->k);
    int64_t group = p->a_columns ? K_BLOCK : K_GROUP;
    int64_t block = p->a_columns ? ROW_BLOCK_COLS : ROW_BLOCK;
    for (int64_t k0 = 0; k0 < SN_MAX(p->k, 1); k0 += group) {
        part g = {.packed = packed, .k0 = k0, .ks = SN_MIN(p->k - k0, group)};
        for (int64_t n0 = 0; n0 < p->n; n0 += TILE_COLS)
            pack_panel(p, n0, k0, g.ks, packed + n0 * g.ks);
        for (g.m0 = 0; g.m0 < p->m; g.m0 += block) {
            g.rows = SN_MIN(p->m - g.m0, block);
            if (p->a_columns)
                product_by_columns(p, &g, packed_a);
            else
                product_by_rows(p, &g);
        }
    }
}

static sn_status product_prepare(sn_kernel *k, int64_t n, int64_t inner, int64_t m)
{
    size_t packed_a = m ? (size_t) (a_pitch(m) * K_BLOCK) : 0;
    k->work_bytes = (product_panels(n, inner) + packed_a) * sizeof(float);
    return SN_OK;
}

static sn_status linear_prepare(sn_kernel *k)
{
    return product_prepare(k, k->d.cols, k->d.inner, 0);
}

static sn_status linear_dx_prepare(sn_kernel *k)
{
    return product_prepare(k, k->d.inner, k->d.cols, 0);
}

static sn_status linear_dw_prepare(sn_kernel *k)
{
    return product_prepare(k, k->d.inner, k->d.rows, k->d.cols);
}

KERNEL(linear)
{
    const kern_dims *d = &k->d;
    product p = {.m = d->rows,
                 .n = d->cols,
                 .k = d->inner,
                 .a = in[0],
                 .a_step = d->inner,
                 .b = in[1],
                 .b_step = d->inner,
                 .bias = kern_given(k, 2) ? in[2] : NULL,
                 .c = out[0]};
    product_run(&p, work);
    return SN_OK;
}

KERNEL(linear_dx)
{
    const kern_dims *d = &k->d;
    product p = {.m = d->rows,
                 .n = d->inner,
                 .k = d->cols,
                 .a = in[0],
                 .a_step = d->cols,
                 .b = in[1],
                 .b_step = d->inner,
                 .b_rows = true,
                 .c = out[0]};
    product_run(&p, work);
    return SN_OK;
}

KERNEL(linear_dw)
{
    const kern_dims *d = &k->d;
    product p = {.m = d->cols,
                 .n = d->inner,
                 .k = d->rows,
                 .a = in[0],
                 .a_step = d->cols,
                 .a_columns = true,
                 .b = in[1],
                 .b_step = d->inner,
                 .b_rows = true,
                 .add = kern_adds(k, 0),
                 .c = out[0]};
    product_run(&p, work);
    return SN_OK;
}
