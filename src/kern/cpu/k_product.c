/* SPDX-License-Identifier: Apache-2.0
 * Products: C[M,N] (+)= A·B (+ bias), the three forms that a linear layer and its adjoints need.
 *
 *   B packed once, whole:  panel 0 [K][TILE_COLS] | panel 1 | …     zero-padded to whole vectors
 *   for blocks of ROW_BLOCK rows of A             their C stays in the second-level cache
 *     for blocks of K_BLOCK of k                  a panel's block stays in the first-level cache
 *       for panels of B                           C is the start value from the second block on
 *         for tiles of 6 rows
 *
 * The order of each sum depends on the shape alone, so equal inputs give equal bits. */

#define K_BLOCK 128
#define ROW_BLOCK 192

typedef struct product {
    int64_t m, n, k;
    const float *a, *b, *bias;
    int64_t a_step, b_step;
    bool a_columns; /* A is stored [K,M] */
    bool b_rows;    /* B is stored [K,N]; else [N,K] */
    bool add;
    float *c; /* [M,N] */
} product;

static size_t product_panels(int64_t n, int64_t k)
{
    return (size_t) (SN_ALIGN_UP(n, TILE_COLS) * k);
}

static void pack_panel(const product *p, int64_t n0, float *to)
{
    int64_t cols = SN_MIN(p->n - n0, TILE_COLS);
    if (!p->b_rows) {
        if (cols < TILE_COLS)
            memset(to, 0, (size_t) (p->k * TILE_COLS) * sizeof *to);
        transpose(p->b + n0 * p->b_step, p->b_step, to, TILE_COLS, cols, p->k);
        return;
    }
    for (int64_t k = 0; k < p->k; k++)
        for (int64_t c = 0; c < TILE_COLS; c += LANES)
            v_store(to + k * TILE_COLS + c,
                    c < cols ? v_get(p->b + k * p->b_step + n0 + c, cols - c) : v_set(0));
}

/* A block of A by columns becomes [tile][k][6], so that a tile reads one stream. */
static void pack_columns(const product *p, int64_t m0, int64_t rows, int64_t k0, int64_t ks,
                         float *to)
{
    for (int64_t k = 0; k < ks; k++) {
        const float *from = p->a + (k0 + k) * p->a_step + m0;
        for (int64_t m = 0; m < rows; m += TILE_ROWS)
            for (int i = 0; i < TILE_ROWS; i++)
                to[m * ks + k * TILE_ROWS + i] = m + i < rows ? from[m + i] : 0;
    }
}

static void product_block(const product *p, const float *packed, float *packed_a, int64_t m0,
                          int64_t rows, int64_t k0)
{
    int64_t ks = SN_MIN(p->k - k0, K_BLOCK);
    if (p->a_columns)
        pack_columns(p, m0, rows, k0, ks, packed_a);
    for (int64_t n0 = 0; n0 < p->n; n0 += TILE_COLS) {
        float *c = p->c + m0 * p->n + n0;
        tile_args t = {.b = packed + n0 * p->k + k0 * TILE_COLS,
                       .b_step = TILE_COLS,
                       .c_step = p->n,
                       .k = ks,
                       .cols = (int) SN_MIN(p->n - n0, TILE_COLS)};
        bool adds = k0 > 0 || p->add;
        t.init_step = adds ? p->n : 0;
        for (int64_t m = 0; m < rows; m += TILE_ROWS) {
            t.rows = (int) SN_MIN(rows - m, TILE_ROWS);
            t.c = c + m * p->n;
            t.init = adds ? t.c : p->bias ? p->bias + n0 : NULL;
            if (p->a_columns) {
                t.a = packed_a + m * ks;
                t.a_step = TILE_ROWS;
                tile_by_columns(&t);
            } else {
                t.a = p->a + (m0 + m) * p->a_step + k0;
                t.a_step = p->a_step;
                tile_by_rows(&t);
            }
        }
    }
}

static void product_run(const product *p, void *work)
{
    float *packed = work, *packed_a = packed + product_panels(p->n, p->k);
    for (int64_t n0 = 0; n0 < p->n; n0 += TILE_COLS)
        pack_panel(p, n0, packed + n0 * p->k);
    for (int64_t m0 = 0; m0 < p->m; m0 += ROW_BLOCK)
        for (int64_t k0 = 0; k0 < SN_MAX(p->k, 1); k0 += K_BLOCK)
            product_block(p, packed, packed_a, m0, SN_MIN(p->m - m0, ROW_BLOCK), k0);
}

static sn_status product_prepare(sn_kernel *k, int64_t n, int64_t inner)
{
    k->work_bytes = (product_panels(n, inner) + ROW_BLOCK * K_BLOCK) * sizeof(float);
    return SN_OK;
}

static sn_status linear_prepare(sn_kernel *k)
{
    return product_prepare(k, k->d.cols, k->d.inner);
}

static sn_status linear_dx_prepare(sn_kernel *k)
{
    return product_prepare(k, k->d.inner, k->d.cols);
}

static sn_status linear_dw_prepare(sn_kernel *k)
{
    return product_prepare(k, k->d.inner, k->d.rows);
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
