/* SPDX-License-Identifier: Apache-2.0
 * Fused attention, forward and backward, one head at a time. Its rows lie far apart in memory and
 * are packed as the panels want them; scores stay where the next product reads them:
 *
 *   forward, for panels of 14 queries:   S = Q·Kᵀ → P = exp(S − max) → O = P·V
 *   backward, likewise:                  P = exp(Q·Kᵀ − lse), dP = dO·Vᵀ,
 *                                        dS = P∘(dP − rowsum(dO∘O)), dQ = dS·K
 *     then, for the keys:                dK = dSᵀ·Q, dV = Pᵀ·dO
 *
 *   scores [key / 16][query][16]:  a panel of queries is A in lines (for ·V, ·K); a block of keys
 *                                  is A in columns (for dSᵀ·, Pᵀ·)
 *
 * A panel of scores lies in the first-level cache and holds whole rows, so softmax needs no
 * rescaling. Keys beyond the diagonal are computed up to whole vectors only and weigh exactly
 * nothing. Source of the recomputation: Dao et al., "FlashAttention", NeurIPS 2022. */

#define KEPT_FLOATS (INT64_C(1) << 16) /* of P and of dS that backward keeps for the keys' part */

/* Rows that are used after this head and lie far apart, a page or more: asked for bit by bit while
 * it computes, four lines of a row with each block of k. */
typedef struct ahead {
    const float *at[8];
    int64_t step[8];
    int64_t streams, rows; /* of each */
    int64_t done;          /* rows of all streams */
} ahead;

typedef struct heads {
    int64_t t, s, e;    /* queries, keys, width */
    int64_t begin;      /* of the queries among the keys */
    int64_t deep, wide; /* e in whole blocks of k, in whole panels */
    int64_t keys;       /* s in whole panels and whole blocks of k */
    int64_t taken;      /* queries whose scores are kept at once */
    int64_t pitch;      /* rows of a block of scores */
    int64_t q_step, k_step, o_step;
    bool causal;
    float scale;
    const int32_t *mask; /* of the batch's keys, mask_step apart; NULL: all are seen */
    int64_t mask_step;
    float *kt, *vt;           /* panels of Kᵀ and Vᵀ */
    float *v, *k, *q, *grad;  /* rows in panels */
    float *q_lines, *g_lines; /* rows in lines */
    float *p, *ds;            /* scores */
    float *o;                 /* of a panel of queries */
    ahead *ahead;             /* NULL: nothing to ask for */
} heads;

/* Floats of scratch, handed out in this order. */
static size_t heads_carve(heads *h, bool grad, float *work)
{
    int64_t lines = SN_ALIGN_UP(h->t, PANEL_ROWS) * h->deep;
    int64_t columns = h->keys * h->deep, rows = h->keys * h->wide, scores = h->keys * h->pitch;
    int64_t queries = SN_ALIGN_UP(h->t, BLOCK_K) * h->wide;
    float **part[] = {&h->kt, &h->v, &h->q_lines, &h->p,       &h->o, &h->vt,
                      &h->k,  &h->q, &h->grad,    &h->g_lines, &h->ds};
    int64_t size[] = {columns, rows,    lines, scores, PANEL_ROWS * h->wide, columns, rows,
                      queries, queries, lines, scores};
    size_t floats = 0;
    for (int i = 0; i < (grad ? 11 : 5); i++) {
        *part[i] = work ? work + floats : NULL;
        floats += (size_t) SN_ALIGN_UP(size[i], 16);
    }
    return floats;
}

/* The sizes that follow from t, s and e. */
static void heads_size(heads *h, bool grad)
{
    int64_t most = PANEL_ROWS * 8; /* whole panels and whole blocks of k */
    h->deep = SN_ALIGN_UP(h->e, BLOCK_K);
    h->wide = SN_ALIGN_UP(h->e, PANEL_COLS);
    h->keys = SN_ALIGN_UP(h->s, 32);
    h->taken = SN_MAX(KEPT_FLOATS / SN_MAX(h->keys, 1) / most, 1) * most;
    if (!grad)
        h->taken = PANEL_ROWS;
    else if (h->taken >= h->t)
        h->taken = SN_ALIGN_UP(h->t, BLOCK_K);
    /* A panel's blocks, PANEL_ROWS lines each, follow one another in the sets of a cache. */
    h->pitch = grad ? SN_ALIGN_UP(h->taken + PANEL_ROWS, 64) + PANEL_ROWS : PANEL_ROWS;
}

static heads heads_of(const sn_kernel *k)
{
    const kern_dims *d = &k->d;
    heads h = {.t = d->t,
               .s = d->t,
               .e = d->e,
               .q_step = d->b * d->h * 3 * d->e,
               .k_step = d->b * d->h * 3 * d->e,
               .o_step = d->b * d->h * d->e,
               .causal = k->spec.attr.i[0] != 0,
               .scale = (float) k->spec.attr.f[0]};
    heads_size(&h, k->spec.op == SN_OP_ATTENTION_GRAD);
    return h;
}

static sn_status attention_prepare(sn_kernel *k)
{
    heads h = heads_of(k);
    k->work_bytes = heads_carve(&h, k->spec.op == SN_OP_ATTENTION_GRAD, NULL) * sizeof(float);
    return SN_OK;
}

/* Keys that queries [i, i + n) may see. */
static int64_t visible(const heads *h, int64_t i, int64_t n)
{
    return h->causal ? SN_MAX(0, SN_MIN(h->s, h->begin + i + n)) : h->s;
}

/* Blocks of 16 keys that hold them. */
static int64_t blocks_seen(const heads *h, int64_t i, int64_t n)
{
    return (visible(h, i, n) + BLOCK_K - 1) / BLOCK_K;
}

/* Let a tile ask for the next rows. */
static void ask_rows(const heads *h, panel *p)
{
    ahead *a = h->ahead;
    int64_t stream = a ? a->done / a->rows : 0;
    if (!a || stream >= a->streams) {
        p->ask_c = p->ask[0] = p->ask[1] = p->a;
        p->ask_c_step = p->ask_step = 0;
        return;
    }
    p->ask_c = a->at[stream] + a->done % a->rows * a->step[stream];
    p->ask[0] = p->ask_c + 32;
    p->ask[1] = p->ask_c + 48;
    p->ask_c_step = p->ask_step = a->step[stream];
    a->done += p->blocks;
}

/* The scores of a panel of queries: `a` in lines against panels of keys. */
static void scores(const heads *h, const float *a, const float *b, int64_t seen, int rows, float *s)
{
    panel p = {.a = a,
               .blocks = h->deep / BLOCK_K,
               .a_next = (PANEL_TALL(rows) - 1) * BLOCK_K,
               .c_step = BLOCK_K,
               .second = LANES < BLOCK_K ? LANES : h->pitch * BLOCK_K,
               .rows = PANEL_TALL(rows)};
    for (int64_t j = 0; j < seen; j += PANEL_COLS) {
        p.b = b + j * h->deep;
        p.c = s + j / BLOCK_K * h->pitch * BLOCK_K + j % BLOCK_K;
        p.cols = seen - j <= LANES && p.rows == PANEL_ROWS ? LANES : PANEL_COLS;
        ask_rows(h, &p);
        panel_lines(&p);
    }
}

/* c[rows][e] = scores · rows of keys in panels. */
static void weigh(const heads *h, const float *s, const float *b, int64_t blocks, int rows,
                  float *c, int64_t c_step)
{
    panel p = {.a = s,
               .blocks = blocks,
               .a_next = (h->pitch - 1) * BLOCK_K,
               .c_step = c_step,
               .second = LANES,
               .rows = rows};
    for (int64_t e = 0; e < h->e; e += PANEL_COLS) {
        p.b = b + e * SN_ALIGN_UP(h->s, BLOCK_K);
        p.c = c + e;
        p.cols = (int) SN_MIN(h->e - e, PANEL_COLS);
        ask_rows(h, &p);
        panel_lines(&p);
    }
}

/* −∞ where a query may not look: beyond its last key, and at masked keys. */
static void hide(const heads *h, int64_t i, int rows, int64_t blocks, float *s)
{
    int64_t first = h->mask ? 0 : visible(h, i, 1) / BLOCK_K;
    for (int64_t block = first; block < blocks; block++) {
        float *row = s + block * h->pitch * BLOCK_K;
        for (int m = 0; m < rows; m++, row += BLOCK_K) {
            int64_t n = visible(h, i + m, 1) - block * BLOCK_K;
            for (int64_t c = 0; c < BLOCK_K && n < BLOCK_K; c += LANES)
                v_store(row + c, v_first(v_load(row + c), SN_MAX(0, SN_MIN(n - c, LANES)),
                                         v_set(-INFINITY)));
            for (int64_t c = 0; c < BLOCK_K && h->mask; c++)
                if (c < n && !h->mask[(block * BLOCK_K + c) * h->mask_step])
                    row[c] = -INFINITY;
        }
    }
}

/* Two score rows become exp(s − max). */
static void softmax_rows(const heads *h, float *s, int64_t blocks, float max[2], float sum[2])
{
    int64_t step = h->pitch * BLOCK_K;
    vf top[2] = {v_set(-INFINITY), v_set(-INFINITY)}, all[2] = {v_set(0), v_set(0)};
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t c = 0; c < BLOCK_K; c += LANES) {
            top[0] = v_max(top[0], v_load(s + b * step + c));
            top[1] = v_max(top[1], v_load(s + b * step + BLOCK_K + c));
        }
    for (int m = 0; m < 2; m++) {
        max[m] = v_top(top[m]);
        top[m] = v_set(max[m] == -INFINITY ? 0 : max[m]); /* a query that sees nothing */
    }
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t c = 0; c < BLOCK_K; c += LANES) {
            float *at = s + b * step + c;
            vf x = v_exp(v_load(at) - top[0]), y = v_exp(v_load(at + BLOCK_K) - top[1]);
            v_store(at, x);
            v_store(at + BLOCK_K, y);
            all[0] += x;
            all[1] += y;
        }
    sum[0] = v_sum(all[0]);
    sum[1] = v_sum(all[1]);
}

static void attend_panel(const heads *h, const float *q, int64_t i, int rows, float *o, float *lse)
{
    int64_t blocks = blocks_seen(h, i, rows);
    float max[PANEL_ROWS + 1], sum[PANEL_ROWS + 1];
    pack_lines(q + i * h->q_step, h->q_step, rows, h->e, h->scale, h->q_lines);
    scores(h, h->q_lines, h->kt, visible(h, i, rows), rows, h->p);
    hide(h, i, rows, blocks, h->p);
    for (int m = 0; m < rows; m += 2)
        softmax_rows(h, h->p + m * BLOCK_K, blocks, max + m, sum + m);
    weigh(h, h->p, h->v, blocks, rows, h->o, h->wide);
    for (int m = 0; m < rows; m++) {
        vf over = v_set(sum[m] == 0 ? 0 : 1 / sum[m]);
        lse[i + m] = max[m] + (sum[m] == 0 ? 0 : logf(sum[m]));
        for (int64_t c = 0; c < h->e; c += LANES)
            v_put(o + (i + m) * h->o_step + c, v_load(h->o + m * h->wide + c) * over, h->e - c);
    }
}

KERNEL(attention)
{
    heads h = heads_of(k);
    heads_carve(&h, false, work);
    const float *qkv = in[0];
    float *o = out[0], *lse = out[1];
    for (int64_t bh = 0; bh < k->d.b * k->d.h; bh++) {
        const float *head = qkv + bh * 3 * h.e, *next = head + 3 * h.e;
        ahead a = {.at = {next, next + h.e, next + 2 * h.e},
                   .step = {h.q_step, h.q_step, h.q_step},
                   .streams = bh + 1 < k->d.b * k->d.h ? 3 : 0,
                   .rows = h.t};
        h.ahead = &a;
        pack_columns_of_b(head + h.e, h.k_step, h.e, h.s, h.kt);
        pack_rows_of_b(head + 2 * h.e, h.k_step, h.s, h.e, 1, h.v);
        for (int64_t i = 0; i < h.t; i += PANEL_ROWS) {
            int rows = (int) SN_MIN(h.t - i, PANEL_ROWS);
            attend_panel(&h, head, i, rows, o + bh * h.e, lse + bh * h.t);
        }
    }
    return SN_OK;
}

/* ---- backward ---- */

/* s and dP of a panel become P and dS; the block after the last is cleared for the keys' part,
 * whose queries begin at a whole block of k. */
static void grad_rows(const heads *h, int tall, int64_t blocks, const float *lse,
                      const float *delta, float *s, float *dp)
{
    int64_t step = h->pitch * BLOCK_K;
    for (int64_t b = 0; b < blocks; b++, s += step, dp += step)
        for (int m = 0; m < tall; m++)
            for (int64_t c = 0; c < BLOCK_K; c += LANES) {
                int64_t at = m * BLOCK_K + c;
                vf p = v_exp(v_load(s + at) - v_set(lse[m]));
                v_store(s + at, p);
                v_store(dp + at, p * (v_load(dp + at) - v_set(delta[m])));
            }
    if (blocks * BLOCK_K < h->keys) {
        memset(s, 0, (size_t) (tall * BLOCK_K) * sizeof *s);
        memset(dp, 0, (size_t) (tall * BLOCK_K) * sizeof *dp);
    }
}

typedef struct head_grad {
    const float *grad, *o, *lse;
    float *dq, *dk, *dv;
    int64_t dq_step, dk_step;
    bool adds; /* dk and dv hold what other heads gave */
} head_grad;

/* Queries [i, i + rows), whose scores lie `at` rows into the kept ones. */
static void grad_panel(const heads *h, const head_grad *g, int64_t i, int64_t at, int rows)
{
    int64_t blocks = blocks_seen(h, i, rows), seen = visible(h, i, rows);
    int tall = PANEL_TALL(rows);
    float lse[PANEL_ROWS], delta[PANEL_ROWS];
    float *p = h->p + at * BLOCK_K, *ds = h->ds + at * BLOCK_K;
    for (int m = 0; m < tall; m++) {
        lse[m] = INFINITY; /* rows that are not there weigh nothing */
        delta[m] = 0;
        if (m >= rows)
            continue;
        const float *o = g->o + (i + m) * h->o_step, *grad = g->grad + (i + m) * h->o_step;
        vf dot = v_set(0);
        for (int64_t c = 0; c < h->e; c += LANES)
            dot = v_fma(v_get(o + c, h->e - c), v_get(grad + c, h->e - c), dot);
        delta[m] = v_sum(dot);
        lse[m] = g->lse[i + m] == -INFINITY ? 0 : g->lse[i + m];
    }
    scores(h, h->q_lines + i * h->deep, h->kt, seen, rows, p);
    scores(h, h->g_lines + i * h->deep, h->vt, seen, rows, ds);
    hide(h, i, rows, blocks, p);
    grad_rows(h, tall, blocks, lse, delta, p, ds);
    weigh(h, ds, h->k, blocks, rows, g->dq + i * g->dq_step, g->dq_step);
}

/* to[keys][e] (+)= scoresᵀ · rows, over the kept queries [i, i + n): dk of dS and q, dv of P and
 * dO. */
static void grad_keys(const heads *h, const float *s, const float *rows, int64_t i, int64_t n,
                      bool adds, float *to, int64_t step)
{
    int64_t queries = SN_ALIGN_UP(h->t, BLOCK_K);
    for (int64_t j = 0; j < h->s; j += PANEL_MID) {
        int64_t block = j / BLOCK_K;
        int64_t first = h->causal ? SN_MAX(0, block * BLOCK_K - h->begin - i) / BLOCK_K : 0;
        first = SN_MIN(first, n / BLOCK_K);
        const float *a = s + (block * h->pitch + first * BLOCK_K) * BLOCK_K + j % BLOCK_K;
        panel p = {.a = a,
                   .blocks = n / BLOCK_K - first,
                   .c_step = step,
                   .second = LANES,
                   .init_step = step,
                   .rows = (int) SN_MIN(h->s - j, PANEL_MID)};
        for (int64_t e = 0; e < h->e; e += PANEL_COLS) {
            p.b = rows + e * queries + (i + first * BLOCK_K) * PANEL_COLS;
            p.c = to + j * step + e;
            p.init = adds ? p.c : NULL;
            p.cols = (int) SN_MIN(h->e - e, PANEL_COLS);
            ask_rows(h, &p);
            panel_columns(&p);
        }
    }
}

/* The kept rows after those of the panels, up to a whole block of k, weigh nothing. */
static void clear_after(const heads *h, int64_t from, int64_t to)
{
    for (int64_t at = from; at < h->keys / BLOCK_K * h->pitch && from < to; at += h->pitch) {
        memset(h->p + at * BLOCK_K, 0, (size_t) ((to - from) * BLOCK_K) * sizeof(float));
        memset(h->ds + at * BLOCK_K, 0, (size_t) ((to - from) * BLOCK_K) * sizeof(float));
    }
}

static void grad_head(const heads *h, const head_grad *g, const float *q)
{
    pack_rows_of_b(q, h->q_step, h->t, h->e, h->scale, h->q);
    pack_rows_of_b(g->grad, h->o_step, h->t, h->e, 1, h->grad);
    for (int64_t i = 0; i < h->t; i += PANEL_ROWS) {
        int rows = (int) SN_MIN(h->t - i, PANEL_ROWS);
        pack_lines(q + i * h->q_step, h->q_step, rows, h->e, h->scale, h->q_lines + i * h->deep);
        pack_lines(g->grad + i * h->o_step, h->o_step, rows, h->e, 1, h->g_lines + i * h->deep);
    }
    for (int64_t i = 0; i < h->t; i += h->taken) {
        int64_t n = SN_MIN(h->t - i, h->taken), whole = SN_ALIGN_UP(n, BLOCK_K), done = 0;
        for (int64_t at = 0; at < n; at += PANEL_ROWS) {
            int rows = (int) SN_MIN(n - at, PANEL_ROWS);
            grad_panel(h, g, i + at, at, rows);
            done = at + PANEL_TALL(rows);
        }
        clear_after(h, done, whole);
        grad_keys(h, h->ds, h->q, i, whole, g->adds || i > 0, g->dk, g->dk_step);
        grad_keys(h, h->p, h->grad, i, whole, g->adds || i > 0, g->dv, g->dk_step);
    }
}

KERNEL(attention_grad)
{
    heads h = heads_of(k);
    heads_carve(&h, true, work);
    const float *grad = in[0], *qkv = in[1], *o = in[2], *lse = in[3];
    float *dqkv = out[0];
    for (int64_t bh = 0; bh < k->d.b * k->d.h; bh++) {
        const float *head = qkv + bh * 3 * h.e;
        float *dhead = dqkv + bh * 3 * h.e;
        const float *next = head + 3 * h.e;
        ahead a = {.at = {dhead, dhead + h.e, dhead + 2 * h.e, next, next + h.e, next + 2 * h.e,
                          grad + (bh + 1) * h.e, o + (bh + 1) * h.e},
                   .step = {h.q_step, h.q_step, h.q_step, h.q_step, h.q_step, h.q_step, h.o_step,
                            h.o_step},
                   .streams = bh + 1 < k->d.b * k->d.h ? 8 : 3,
                   .rows = h.t};
        head_grad g = {.grad = grad + bh * h.e,
                       .o = o + bh * h.e,
                       .lse = lse + bh * h.t,
                       .dq = dhead,
                       .dk = dhead + h.e,
                       .dv = dhead + 2 * h.e,
                       .dq_step = h.q_step,
                       .dk_step = h.k_step};
        h.ahead = &a;
        pack_columns_of_b(head + h.e, h.k_step, h.e, h.s, h.kt);
        pack_columns_of_b(head + 2 * h.e, h.k_step, h.e, h.s, h.vt);
        pack_rows_of_b(head + h.e, h.k_step, h.s, h.e, h.scale, h.k);
        grad_head(&h, &g, head);
    }
    return SN_OK;
}
