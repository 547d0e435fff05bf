/* SPDX-License-Identifier: Apache-2.0
 * Fused attention, forward and backward. One (batch, head) at a time is packed into contiguous
 * memory: its rows in qkv[T,B,H,3,E] lie far apart and would fall into the same cache sets.
 *
 *   forward, for blocks of QUERIES rows:   S = Q·Kᵀ up to the diagonal → P = exp(S − max) → O = P·V
 *   backward, the same blocks:             P = exp(Q·Kᵀ − lse), dP = dO·Vᵀ, dS = P∘(dP −
 * rowsum(dO∘O)), dQ = dS·K, dK += dSᵀ·Q, dV += Pᵀ·dO
 *
 * A block holds whole score rows, so softmax needs no rescaling; memory is QUERIES·T, never T².
 * Keys beyond the diagonal of a block are not computed. Source of the recomputation: Dao et al.,
 * "FlashAttention", NeurIPS 2022. */

#define QUERIES 48 /* a multiple of TILE_ROWS */

typedef struct heads {
    int64_t t, e, wide; /* wide: e in whole vectors */
    int64_t keys;       /* t in whole panels */
    int64_t pitch;      /* of a score row: its lines spread over the cache sets */
    int64_t step, o_step;
    bool causal;
    float scale;
    float *q, *k, *v, *kt, *vt, *grad; /* packed [T][wide]; kt, vt in panels [E][TILE_COLS] */
    float *dq, *dk, *dv;               /* [T][wide] */
    float *s, *ds;                     /* [QUERIES][keys] */
} heads;

static size_t heads_carve(heads *h, const sn_kernel *k, float *work)
{
    const kern_dims *d = &k->d;
    *h = (heads){.t = d->t,
                 .e = d->e,
                 .wide = SN_ALIGN_UP(d->e, LANES),
                 .keys = SN_ALIGN_UP(d->t, TILE_COLS),
                 .pitch = SN_ALIGN_UP(d->t, TILE_COLS) + 16,
                 .step = d->b * d->h * 3 * d->e,
                 .o_step = d->b * d->h * d->e,
                 .causal = k->spec.attr.i[0] != 0,
                 .scale = (float) k->spec.attr.f[0]};
    int64_t rows = h->t * h->wide, panels = h->keys * h->e, scores = QUERIES * h->pitch;
    bool grad = k->spec.op == SN_OP_ATTENTION_GRAD;
    float **part[] = {&h->q,  &h->v,  &h->kt, &h->s,  &h->k, &h->grad,
                      &h->vt, &h->dq, &h->dk, &h->dv, &h->ds};
    int64_t size[] = {rows, rows, panels, scores, rows, rows, panels, rows, rows, rows, scores};
    size_t floats = 0;
    for (int i = 0; i < (grad ? 11 : 4); i++) {
        *part[i] = work ? work + floats : NULL;
        floats += (size_t) SN_ALIGN_UP(size[i], 16) + 16; /* a tile by columns reads six ahead */
    }
    return floats;
}

static sn_status attention_prepare(sn_kernel *k)
{
    heads h;
    k->work_bytes = heads_carve(&h, k, NULL) * sizeof(float);
    return SN_OK;
}

/* Rows `step` apart become rows `wide` apart, times `scale`, zero up to `wide`. */
static void pack_rows(const heads *h, const float *from, int64_t step, float scale, float *to)
{
    for (int64_t t = 0; t < h->t; t++)
        for (int64_t c = 0; c < h->wide; c += LANES)
            v_store(to + t * h->wide + c, v_get(from + t * step + c, h->e - c) * v_set(scale));
}

static void unpack_rows(const heads *h, const float *from, int64_t step, float scale, float *to)
{
    for (int64_t t = 0; t < h->t; t++)
        for (int64_t c = 0; c < h->e; c += LANES)
            v_put(to + t * step + c, v_load(from + t * h->wide + c) * v_set(scale), h->e - c);
}

/* [T][E] rows become panels of TILE_COLS keys: [panel][E][TILE_COLS]. */
static void pack_keys(const heads *h, const float *from, int64_t step, float *to)
{
    for (int64_t j = 0; j < h->keys; j += TILE_COLS) {
        for (int64_t v = 0; v < TILE_COLS; v += LANES)
            pack_strip(from + (j + v) * step, step, h->e, h->t - j - v, to + j * h->e + v,
                       TILE_COLS);
    }
}

/* Keys that rows [i, i + n) may see. */
static int64_t visible(const heads *h, int64_t i, int64_t n)
{
    return h->causal ? i + n : h->t;
}

/* s[QUERIES][pitch] = a[i …][E] · panelsᵀ; each tile stops at its own diagonal. */
static void scores(const heads *h, const float *a, const float *panels, int64_t i, int64_t n,
                   float *s)
{
    for (int64_t j = 0; j < visible(h, i, n); j += TILE_COLS) {
        tile_args t = {.a_step = h->wide,
                       .b = panels + j * h->e,
                       .b_step = TILE_COLS,
                       .c_step = h->pitch,
                       .k = h->e};
        int64_t first = h->causal && j > i ? (j - i) / TILE_ROWS * TILE_ROWS : 0;
        for (int64_t m = first; m < n; m += TILE_ROWS) {
            t.a = a + (i + m) * h->wide;
            t.c = s + m * h->pitch + j;
            t.rows = (int) SN_MIN(n - m, TILE_ROWS);
            t.cols = (int) SN_MIN(visible(h, i + m, t.rows) - j, TILE_COLS);
            tile_by_rows(&t);
        }
    }
}

/* c[n][wide] = p[n][pitch] · rows[keys][wide]; each tile stops at its own diagonal. */
static void weigh(const heads *h, const float *p, const float *rows, int64_t i, int64_t n, float *c,
                  int64_t c_step, int64_t cols)
{
    for (int64_t m = 0; m < n; m += TILE_ROWS) {
        int64_t tall = SN_MIN(n - m, TILE_ROWS);
        tile_args t = {.a = p + m * h->pitch,
                       .a_step = h->pitch,
                       .b_step = h->wide,
                       .c_step = c_step,
                       .k = visible(h, i + m, tall),
                       .rows = (int) tall};
        for (int64_t e = 0; e < cols; e += TILE_COLS) {
            t.b = rows + e;
            t.c = c + m * c_step + e;
            t.cols = (int) SN_MIN(cols - e, TILE_COLS);
            tile_by_rows(&t);
        }
    }
}

/* Zeros after the n keys of a row, as far as the tiles of its neighbours read. */
static void clear_beyond(float *s, int64_t n)
{
    for (int64_t j = SN_ALIGN_UP(n, LANES); j < n + TILE_ROWS; j += LANES)
        v_store(s + j, v_set(0));
}

/* One score row becomes exp(s − max). Returns the sum. */
static float softmax_row(float *s, int64_t n, float *ret_max)
{
    vf top = v_set(-INFINITY), sum = v_set(0);
    for (int64_t j = 0; j < n; j += LANES)
        top = v_max(top, v_keep(v_load(s + j), n - j, v_set(-INFINITY)));
    float max = v_top(top);
    for (int64_t j = 0; j < n; j += LANES) {
        vf p = v_keep(v_exp(v_load(s + j) - v_set(max)), n - j, v_set(0));
        v_store(s + j, p);
        sum += p;
    }
    clear_beyond(s, n);
    *ret_max = max;
    return v_sum(sum);
}

static void attend_block(const heads *h, int64_t i, int64_t n, float *o, float *lse)
{
    float inverse[QUERIES];
    scores(h, h->q, h->kt, i, n, h->s);
    for (int64_t m = 0; m < n; m++) {
        float max, sum = softmax_row(h->s + m * h->pitch, visible(h, i + m, 1), &max);
        lse[i + m] = max + logf(sum);
        inverse[m] = 1 / sum;
    }
    weigh(h, h->s, h->v, i, n, o + i * h->o_step, h->o_step, h->e);
    for (int64_t m = 0; m < n; m++) {
        float *row = o + (i + m) * h->o_step;
        for (int64_t c = 0; c < h->e; c += LANES)
            v_put(row + c, v_get(row + c, h->e - c) * v_set(inverse[m]), h->e - c);
    }
}

/* The next head's rows lie beside this one's, a page or more apart from each other: ask for them
 * while this head computes. */
static void ask(const float *from, int64_t step, int64_t rows, int64_t floats)
{
    for (int64_t t = 0; t < rows; t++)
        for (int64_t c = 0; c < floats; c += 16)
            __builtin_prefetch(from + t * step + c, 0, 2);
}

static void ask_to_write(const float *from, int64_t step, int64_t rows, int64_t floats)
{
    for (int64_t t = 0; t < rows; t++)
        for (int64_t c = 0; c < floats; c += 16)
            __builtin_prefetch(from + t * step + c, 1, 2);
}

KERNEL(attention)
{
    heads h;
    heads_carve(&h, k, work);
    const float *qkv = in[0];
    float *o = out[0], *lse = out[1];
    for (int64_t bh = 0; bh < k->d.b * k->d.h; bh++) {
        const float *head = qkv + bh * 3 * h.e;
        pack_rows(&h, head, h.step, h.scale, h.q);
        pack_keys(&h, head + h.e, h.step, h.kt);
        pack_rows(&h, head + 2 * h.e, h.step, 1, h.v);
        for (int64_t i = 0; i < h.t; i += QUERIES) {
            int64_t n = SN_MIN(h.t - i, QUERIES);
            if (bh + 1 < k->d.b * k->d.h)
                ask(head + 3 * h.e + i * h.step, h.step, n, 3 * h.e);
            attend_block(&h, i, n, o + bh * h.e, lse + bh * h.t);
        }
    }
    return SN_OK;
}

/* s and dP of a row become P and dS. */
static void grad_row(float *s, float *dp, int64_t n, float lse, float delta)
{
    for (int64_t j = 0; j < n; j += LANES) {
        vf p = v_keep(v_exp(v_load(s + j) - v_set(lse)), n - j, v_set(0));
        vf d = v_keep(v_load(dp + j), n - j, v_set(0));
        v_store(s + j, p);
        v_store(dp + j, p * (d - v_set(delta)));
    }
    clear_beyond(s, n);
    clear_beyond(dp, n);
}

/* c[keys][wide] += p[n][pitch]ᵀ · rows[i …][wide]. */
static void spread(const heads *h, const float *p, const float *rows, int64_t i, int64_t n,
                   float *c)
{
    int64_t keys = visible(h, i, n);
    for (int64_t j = 0; j < keys; j += TILE_ROWS) {
        /* Queries before key j have zeros there: start at the first that sees it. */
        int64_t skip = h->causal && j > i ? j - i : 0;
        tile_args t = {.a = p + skip * h->pitch + j,
                       .a_step = h->pitch,
                       .b_step = h->wide,
                       .c_step = h->wide,
                       .init_step = h->wide,
                       .k = n - skip,
                       .rows = (int) SN_MIN(keys - j, TILE_ROWS)};
        for (int64_t e = 0; e < h->wide; e += TILE_COLS) {
            t.b = rows + (i + skip) * h->wide + e;
            t.c = c + j * h->wide + e;
            t.init = t.c;
            t.cols = (int) SN_MIN(h->wide - e, TILE_COLS);
            tile_by_columns(&t);
        }
    }
}

static void grad_block(const heads *h, int64_t i, int64_t n, const float *o, const float *lse)
{
    scores(h, h->q, h->kt, i, n, h->s);
    scores(h, h->grad, h->vt, i, n, h->ds);
    for (int64_t m = 0; m < n; m++) {
        vf dot = v_set(0);
        for (int64_t c = 0; c < h->e; c += LANES)
            dot = v_fma(v_get(o + (i + m) * h->o_step + c, h->e - c),
                        v_load(h->grad + (i + m) * h->wide + c), dot);
        grad_row(h->s + m * h->pitch, h->ds + m * h->pitch, visible(h, i + m, 1), lse[i + m],
                 v_sum(dot));
    }
    weigh(h, h->ds, h->k, i, n, h->dq + i * h->wide, h->wide, h->wide);
    spread(h, h->ds, h->q, i, n, h->dk);
    spread(h, h->s, h->grad, i, n, h->dv);
}

KERNEL(attention_grad)
{
    heads h;
    heads_carve(&h, k, work);
    const float *grad = in[0], *qkv = in[1], *o = in[2], *lse = in[3];
    float *dqkv = out[0];
    for (int64_t bh = 0; bh < k->d.b * k->d.h; bh++) {
        const float *head = qkv + bh * 3 * h.e;
        float *dhead = dqkv + bh * 3 * h.e;
        pack_rows(&h, head, h.step, h.scale, h.q);
        pack_rows(&h, head + h.e, h.step, 1, h.k);
        pack_rows(&h, grad + bh * h.e, h.o_step, 1, h.grad);
        pack_keys(&h, head + h.e, h.step, h.kt);
        pack_keys(&h, head + 2 * h.e, h.step, h.vt);
        memset(h.dk, 0, (size_t) (h.t * h.wide) * sizeof(float));
        memset(h.dv, 0, (size_t) (h.t * h.wide) * sizeof(float));
        for (int64_t i = 0; i < h.t; i += QUERIES) {
            int64_t n = SN_MIN(h.t - i, QUERIES);
            ask_to_write(dhead + i * h.step, h.step, n, 3 * h.e);
            if (bh + 1 < k->d.b * k->d.h) {
                ask(head + 3 * h.e + i * h.step, h.step, n, 3 * h.e);
                ask(grad + (bh + 1) * h.e + i * h.o_step, h.o_step, n, h.e);
                ask(o + (bh + 1) * h.e + i * h.o_step, h.o_step, n, h.e);
            }
            grad_block(&h, i, n, o + bh * h.e, lse + bh * h.t);
        }
        unpack_rows(&h, h.dq, h.step, h.scale, dhead);
        unpack_rows(&h, h.dk, h.step, 1, dhead + h.e);
        unpack_rows(&h, h.dv, h.step, 1, dhead + 2 * h.e);
    }
    return SN_OK;
}
