/* SPDX-License-Identifier: Apache-2.0
 * Batch norm in pieces. Sums over the rows go in blocks that the first-level cache holds, and the
 * blocks' sums into a total: so a sum of a hundred thousand rows keeps its digits in f32. */

static int64_t rows_at_once(int64_t cols)
{
    return SN_MAX(8, SN_MIN(64, 4096 / SN_MAX(cols, 1)));
}

static void clear_unless(bool adds, float *to, int64_t n)
{
    if (!adds)
        memset(to, 0, (size_t) n * sizeof *to);
}

static vf add_in(float *to, vf x, int64_t left)
{
    vf sum = v_get(to, left) + x;
    v_put(to, sum, left);
    return sum;
}

KERNEL(bn_sums)
{
    const float *x = in[0], *shift = kern_given(k, 1) ? in[1] : NULL;
    float *s = out[0];
    int64_t cols = k->d.cols, rows = k->d.rows, tall = rows_at_once(cols);
    clear_unless(kern_adds(k, 0), s, 2 * cols);
    for (int64_t from = 0; from < rows; from += tall)
        for (int64_t c = 0; c < cols; c += LANES) {
            int64_t left = cols - c, to = SN_MIN(rows, from + tall);
            vf sum = v_set(0), square = v_set(0), by = shift ? v_get(shift + c, left) : v_set(0);
            for (int64_t r = from; r < to; r++) {
                vf v = v_get(x + r * cols + c, left) - by;
                sum += v;
                square = v_fma(v, v, square);
            }
            add_in(s + c, sum, left);
            add_in(s + cols + c, square, left);
        }
    return SN_OK;
}

KERNEL(bn_norm)
{
    const float *mean = in[1], *rstd = in[2], *g = in[3], *b = in[4];
    const float *add = kern_given(k, 5) ? in[5] : NULL;
    int64_t cols = k->d.cols;
    bool relu = k->spec.attr.i[0] != 0;
    for (int64_t r = 0; r < k->d.rows; r++) {
        const float *x = (const float *) in[0] + r * cols;
        float *y = (float *) out[0] + r * cols;
        for (int64_t c = 0; c < cols; c += LANES) {
            int64_t left = cols - c;
            vf hat = (v_get(x + c, left) - v_get(mean + c, left)) * v_get(rstd + c, left);
            vf v = v_fma(hat, v_get(g + c, left), v_get(b + c, left));
            if (add)
                v += v_get(add + r * cols + c, left);
            v_put(y + c, relu ? v_select_lt(v, v_set(0), v_set(0), v) : v, left);
        }
    }
    return SN_OK;
}

/* dy where the activation let its input through; y NULL: everywhere. */
static inline vf let_through(const float *dy, const float *y, int64_t left)
{
    vf d = v_get(dy, left);
    return y ? v_select_lt(v_set(0), v_get(y, left), d, v_set(0)) : d;
}

KERNEL(bn_grad_sums)
{
    const float *dy = in[0], *x = in[1], *mean = in[2], *rstd = in[3];
    const float *y = kern_given(k, 4) ? in[4] : NULL;
    float *dg = out[0], *db = out[1], *t = out[2];
    int64_t cols = k->d.cols, rows = k->d.rows, tall = rows_at_once(cols);
    clear_unless(kern_adds(k, 0), dg, cols);
    clear_unless(kern_adds(k, 1), db, cols);
    clear_unless(kern_adds(k, 2), t, 2 * cols);
    for (int64_t from = 0; from < rows; from += tall)
        for (int64_t c = 0; c < cols; c += LANES) {
            int64_t left = cols - c, to = SN_MIN(rows, from + tall);
            vf sum = v_set(0), dot = v_set(0), mu = v_get(mean + c, left);
            for (int64_t r = from; r < to; r++) {
                int64_t at = r * cols + c;
                vf d = let_through(dy + at, y ? y + at : NULL, left);
                sum += d;
                dot = v_fma(d, v_get(x + at, left) - mu, dot);
            }
            dot = dot * v_get(rstd + c, left);
            add_in(dg + c, dot, left);
            add_in(db + c, sum, left);
            add_in(t + c, sum, left);
            add_in(t + cols + c, dot, left);
        }
    return SN_OK;
}

KERNEL(bn_dx)
{
    const float *mean = in[2], *rstd = in[3], *g = in[4];
    const float *t = kern_given(k, 5) ? in[5] : NULL, *y = kern_given(k, 6) ? in[6] : NULL;
    int64_t cols = k->d.cols;
    vf each = v_set((float) (1 / (double) k->spec.attr.i[0]));
    for (int64_t r = 0; r < k->d.rows; r++) {
        const float *dy = (const float *) in[0] + r * cols, *x = (const float *) in[1] + r * cols;
        float *dx = (float *) out[0] + r * cols;
        for (int64_t c = 0; c < cols; c += LANES) {
            int64_t left = cols - c;
            vf d = let_through(dy + c, y ? y + r * cols + c : NULL, left);
            vf rs = v_get(rstd + c, left), hat = (v_get(x + c, left) - v_get(mean + c, left)) * rs;
            if (t)
                d -= (v_get(t + c, left) + hat * v_get(t + cols + c, left)) * each;
            v_put(dx + c, v_get(g + c, left) * rs * d, left);
        }
    }
    return SN_OK;
}
