/* SPDX-License-Identifier: Apache-2.0
 * Products on one thread: linear and its two adjoints are C[m,n] = A[m,k]·B[k,n], with operands
 * that lie one way or the other:
 *
 *                 A                      B                      C
 *   linear        x  [M,K] in rows       w  [N,K] in columns    y  [M,N] (+ bias)
 *   linear_dx     dy [M,N] in rows       w  [N,K] in rows       dx [M,K]
 *   linear_dw     dy [M,N] in columns    x  [M,K] in rows       dw [N,K]
 *
 * A chunk of B is packed into the second-level cache; panels of rows of A pass by it, each packed
 * into the first-level cache and read from memory once a chunk; C is written where it lies:
 *
 *   for chunks of k and n:  pack B ─▶ for panels of rows:  pack A ─▶ for tiles:  C (+)= A · B
 *
 * The order of a sum depends on the shape alone. Products of few rows, which would wait for the
 * packing, and cards of several threads are oneDNN's (product.c). */

#define PRODUCT_K 512   /* depth of a packed panel of A: 28 KiB of a first-level cache */
#define PRODUCT_GROUP 8 /* panels packed at once when A lies in columns: whole lines of its rows */
#define PRODUCT_ROWS_MIN 48 /* fewer rows of C do not pay for packing B */

#define PACKED_A (PRODUCT_GROUP * PRODUCT_K * BLOCK_K)

typedef struct chunks {
    product_form f;
    int64_t deep, wide; /* of a chunk of B */
    int64_t part;       /* of k that a packed panel of A holds */
} chunks;

static bool own_product(const sn_kernel *k)
{
    product_form f = product_form_of(k);
    bool bias_too = kern_adds(k, 0) && kern_given(k, 2);
    return k->card->threads == 1 && f.m >= PRODUCT_ROWS_MIN && f.n > 0 && f.k > 0 && !bias_too;
}

/* The chunk that moves the fewest bytes: A is read once for each chunk across n, C read and written
 * once for each along k. */
static chunks chunks_of(product_form f)
{
    chunks best = {.f = f};
    double least = INFINITY;
    int64_t n = SN_ALIGN_UP(f.n, PANEL_COLS), k = SN_ALIGN_UP(f.k, BLOCK_K);
    for (int64_t across = 1; across <= n / PANEL_COLS; across++) {
        int64_t wide = SN_ALIGN_UP((n + across - 1) / across, PANEL_COLS);
        int64_t fits = CHUNK_FLOATS / wide / BLOCK_K * BLOCK_K;
        if (f.a_transposed)
            fits = SN_MIN(fits, PRODUCT_K);
        int64_t along = fits > 0 ? (k + fits - 1) / fits : INT64_MAX / 2;
        double moved = (double) f.m * (double) f.k * (double) across +
                       (double) f.m * (double) f.n * 2 * ((double) along - 0.5);
        if (fits == 0 || moved >= least)
            continue;
        least = moved;
        best.wide = wide;
        best.deep = SN_ALIGN_UP((k + along - 1) / along, BLOCK_K);
    }
    int64_t parts = (best.deep + PRODUCT_K - 1) / PRODUCT_K;
    best.part = SN_ALIGN_UP((best.deep + parts - 1) / parts, BLOCK_K);
    return best;
}

static sn_status product_prepare(sn_kernel *k)
{
    if (!own_product(k))
        return cpu_product_prepare(k);
    chunks c = chunks_of(product_form_of(k));
    k->work_bytes = (size_t) (c.deep * c.wide + PACKED_A) * sizeof(float);
    return SN_OK;
}

typedef struct product_run {
    chunks s;
    const float *a, *b, *bias;
    float *c;
    bool adds;
    float *packed_a, *packed_b;
} product_run;

static void pack_b(const product_run *r, int64_t k, int64_t deep, int64_t n, int64_t wide)
{
    const product_form *f = &r->s.f;
    /* Panels of the chunk are cut into parts of k, so that a panel of A walks contiguous memory. */
    float *to = r->packed_b;
    for (int64_t at = 0; at < deep; at += r->s.part) {
        int64_t part = SN_MIN(deep - at, r->s.part);
        if (f->b_transposed)
            pack_columns_of_b(r->b + n * f->k + k + at, f->k, part, wide, to);
        else
            pack_rows_of_b(r->b + (k + at) * f->n + n, f->n, part, wide, 1, to);
        to += SN_ALIGN_UP(part, BLOCK_K) * SN_ALIGN_UP(wide, PANEL_COLS);
    }
}

/* Ask for a share of what is packed of A after this: two ways for each of the tiles until then. */
static void ask_ahead(const product_run *r, panel *p, int64_t m, int64_t k, int64_t tile)
{
    const product_form *f = &r->s.f;
    for (int i = 0; i < 2; i++) {
        int64_t share = 2 * tile + i;
        if (f->a_transposed) {
            p->ask_step = f->m;
            p->ask[i] = r->a + (k + share % 16 * p->blocks) * f->m + m + share / 16 * 16;
        } else {
            p->ask_step = BLOCK_K;
            p->ask[i] = r->a + SN_MIN(m + share, f->m - 1) * f->k + k;
        }
    }
}

/* Rows [m, m + p->rows) of C, columns [n, n + wide), += the products over k …; `tile` counts those
 * since A was packed, `next` is the row of A packed next. */
static void product_rows(const product_run *r, panel *p, int64_t m, int64_t n, int64_t wide,
                         int64_t k, const float *b, int64_t tile, int64_t next)
{
    const product_form *f = &r->s.f;
    bool adds = k > 0 || r->adds;
    for (int64_t j = 0; j < wide; j += PANEL_COLS, b += p->blocks * BLOCK_K * PANEL_COLS) {
        p->b = b;
        p->c = r->c + m * f->n + n + j;
        p->cols = (int) SN_MIN(wide - j, PANEL_COLS);
        p->init = adds ? p->c : r->bias ? r->bias + n + j : NULL;
        p->init_step = adds ? f->n : 0;
        p->ask_c = j + PANEL_COLS < wide ? p->c + PANEL_COLS : r->c + (m + p->rows) * f->n + n;
        ask_ahead(r, p, next, k, tile + j / PANEL_COLS);
        if (f->a_transposed)
            panel_columns(p);
        else
            panel_lines(p);
    }
}

/* A in columns: a group of panels is packed at a time. */
static void chunk_of_columns(const product_run *r, int64_t k, int64_t deep, int64_t n, int64_t wide)
{
    const product_form *f = &r->s.f;
    int64_t tall = PRODUCT_GROUP * PANEL_ROWS, tiles = (wide + PANEL_COLS - 1) / PANEL_COLS;
    panel p = {.blocks = (deep + BLOCK_K - 1) / BLOCK_K,
               .c_step = f->n,
               .second = LANES,
               .ask_c_step = f->n};
    for (int64_t m = 0; m < f->m; m += tall) {
        int64_t cols = SN_MIN(f->m - m, tall);
        pack_columns(r->a + k * f->m + m, f->m, cols, deep, r->packed_a);
        p.a = r->packed_a;
        for (int64_t at = 0, tile = 0; at < cols; at += PANEL_ROWS, tile += tiles) {
            p.rows = (int) SN_MIN(cols - at, PANEL_ROWS);
            product_rows(r, &p, m + at, n, wide, k, r->packed_b, tile, m + tall);
            p.a += p.blocks * BLOCK_K * BLOCK_K;
        }
    }
}

/* A in rows: one panel at a time, as deep as the first-level cache holds. */
static void chunk_of_rows(const product_run *r, int64_t k, int64_t deep, int64_t n, int64_t wide)
{
    const product_form *f = &r->s.f;
    panel p = {.a = r->packed_a, .c_step = f->n, .second = LANES, .ask_c_step = f->n};
    for (int64_t m = 0; m < f->m; m += PANEL_ROWS) {
        const float *b = r->packed_b;
        p.rows = (int) SN_MIN(f->m - m, PANEL_ROWS);
        for (int64_t at = 0; at < deep; at += r->s.part) {
            int64_t part = SN_MIN(deep - at, r->s.part);
            p.blocks = (part + BLOCK_K - 1) / BLOCK_K;
            p.a_next = (PANEL_TALL(p.rows) - 1) * BLOCK_K;
            pack_lines(r->a + m * f->k + k + at, f->k, p.rows, part, 1, r->packed_a);
            product_rows(r, &p, m, n, wide, k + at, b, 0, m + PANEL_ROWS);
            b += p.blocks * BLOCK_K * SN_ALIGN_UP(wide, PANEL_COLS);
        }
    }
}

static void product_chunk(const product_run *r, int64_t k, int64_t deep, int64_t n, int64_t wide)
{
    pack_b(r, k, deep, n, wide);
    if (r->s.f.a_transposed)
        chunk_of_columns(r, k, deep, n, wide);
    else
        chunk_of_rows(r, k, deep, n, wide);
}

KERNEL(product)
{
    if (!own_product(k))
        return cpu_product_run(k, in, out, work);
    product_run r = {.s = chunks_of(product_form_of(k)),
                     .a = in[0],
                     .b = in[1],
                     .bias = kern_given(k, 2) ? in[2] : NULL,
                     .c = out[0],
                     .adds = kern_adds(k, 0) && (k->impl->accumulates & 1),
                     .packed_a = work,
                     .packed_b = (float *) work + PACKED_A};
    const product_form *f = &r.s.f;
    for (int64_t n = 0; n < f->n; n += r.s.wide)
        for (int64_t at = 0; at < f->k; at += r.s.deep)
            product_chunk(&r, at, SN_MIN(f->k - at, r.s.deep), n, SN_MIN(f->n - n, r.s.wide));
    return SN_OK;
}

static bool own_conv(const sn_kernel *k)
{
    return cpu_conv_pointwise(k) && own_product(k);
}

static sn_status conv_prepare(sn_kernel *k)
{
    return own_conv(k) ? product_prepare(k) : cpu_conv_prepare(k);
}

KERNEL(conv)
{
    return own_conv(k) ? product(k, in, out, work) : cpu_conv_run(k, in, out, work);
}
