/* SPDX-License-Identifier: Apache-2.0
 * Pools whose channels go side by side. The gradient of averages is the oracle's. */

/* The part of a window at place o along dimension j that is inside: [*ret_from, *ret_to). */
static void inside(const kern_window *w, int j, int64_t o, int64_t *ret_from, int64_t *ret_to)
{
    int64_t at = o * w->stride[j] - w->before[j], d = w->dilation[j];
    *ret_from = at < 0 ? (-at + d - 1) / d : 0;
    *ret_to = SN_MIN(w->size[j], (w->in[j] - at + d - 1) / d);
}

/* The larger of a and b, a NaN before both: v_max takes its second when one is a NaN. */
static inline vf v_larger(vf a, vf b)
{
    return v_max(a, b) * v_set(0.5f) + v_max(b, a) * v_set(0.5f);
}

/* The maximum of a window for channels [c, c + left). */
static vf max_window(const kern_window *w, const float *x, const int64_t o[3], int64_t c,
                     int64_t left)
{
    int64_t from[3], to[3];
    vf top = v_set(-INFINITY);
    for (int j = 0; j < 3; j++)
        inside(w, j, o[j], &from[j], &to[j]);
    for (int64_t a = from[0]; a < to[0]; a++)
        for (int64_t b = from[1]; b < to[1]; b++)
            for (int64_t e = from[2]; e < to[2]; e++) {
                int64_t p0 = o[0] * w->stride[0] - w->before[0] + a * w->dilation[0];
                int64_t p1 = o[1] * w->stride[1] - w->before[1] + b * w->dilation[1];
                int64_t p2 = o[2] * w->stride[2] - w->before[2] + e * w->dilation[2];
                int64_t at = ((p0 * w->in[1] + p1) * w->in[2] + p2) * w->c + c;
                top = v_larger(top, v_get(x + at, left));
            }
    return top;
}

KERNEL(max_pool)
{
    const kern_window *w = &k->d.w;
    float *y = out[0];
    for (int64_t n = 0; n < w->n; n++) {
        const float *x = (const float *) in[0] + n * w->in_count * w->c;
        for (int64_t at = 0; at < w->out_count; at++, y += w->c) {
            int64_t o[3] = {at / (w->out[1] * w->out[2]), at / w->out[2] % w->out[1],
                            at % w->out[2]};
            for (int64_t c = 0; c < w->c; c += LANES)
                v_put(y + c, max_window(w, x, o, c, w->c - c), w->c - c);
        }
    }
    return SN_OK;
}

/* A window's places that are inside: where each one's channels begin, in the oracle's order. */
static int64_t places_of(const kern_window *w, int64_t at, int64_t *ret)
{
    int64_t o[3] = {at / (w->out[1] * w->out[2]), at / w->out[2] % w->out[1], at % w->out[2]};
    int64_t from[3], to[3], count = 0;
    for (int j = 0; j < 3; j++)
        inside(w, j, o[j], &from[j], &to[j]);
    for (int64_t a = from[0]; a < to[0]; a++)
        for (int64_t b = from[1]; b < to[1]; b++)
            for (int64_t e = from[2]; e < to[2]; e++) {
                int64_t p0 = o[0] * w->stride[0] - w->before[0] + a * w->dilation[0];
                int64_t p1 = o[1] * w->stride[1] - w->before[1] + b * w->dilation[1];
                int64_t p2 = o[2] * w->stride[2] - w->before[2] + e * w->dilation[2];
                ret[count++] = ((p0 * w->in[1] + p1) * w->in[2] + p2) * w->c;
            }
    return count;
}

/* 1 where v is a NaN, else 0. */
static inline vf v_nan(vf v)
{
    vf beyond = v_select_lt(v, v_set(INFINITY), v_set(0), v_set(1));
    return v_select_lt(v_set(0), v, v_set(0), beyond);
}

/* Which of the places holds the maximum: the first of equal ones, a NaN before all others. */
static inline vf largest_of(const float *x, const int64_t *place, int64_t places, int64_t left)
{
    vf top = v_get(x + place[0], left), nan = v_nan(top), best = v_set(0), zero = v_set(0);
    for (int64_t i = 1; i < places; i++) {
        vf v = v_get(x + place[i], left), is_nan = v_nan(v);
        vf more = v_select_lt(top, v, v_set(1), v_select_lt(nan, is_nan, v_set(1), zero));
        top = v_select_lt(zero, more, v, top);
        nan = v_select_lt(zero, more, is_nan, nan);
        best = v_select_lt(zero, more, v_set((float) i), best);
    }
    return best;
}

/* Scratch: the places of one window. */
static sn_status max_pool_grad_prepare(sn_kernel *k)
{
    int64_t count = k->d.w.size_count, most = 1 << 24; /* a float counts so far */
    k->work_bytes = (size_t) count * sizeof(int64_t);
    return count <= most ? SN_OK
                         : sn_fail(SN_ENOTSUP,
                                   "kernel max_pool_grad: a window has %lld places, at most %lld "
                                   "can be",
                                   (long long) count, (long long) most);
}

KERNEL(max_pool_grad)
{
    const kern_window *w = &k->d.w;
    const float *dy = in[0], *x = in[1];
    float *dx = out[0];
    int64_t *place = work, image = w->in_count * w->c;
    memset(dx, 0, (size_t) (w->n * image) * sizeof *dx);
    for (int64_t n = 0; n < w->n; n++, x += image, dx += image)
        for (int64_t at = 0; at < w->out_count; at++, dy += w->c) {
            int64_t places = places_of(w, at, place);
            for (int64_t c = 0; c < w->c; c += LANES) {
                int64_t left = w->c - c;
                vf best = largest_of(x + c, place, places, left), d = v_get(dy + c, left);
                for (int64_t i = 0; i < places; i++) {
                    vf off = best - v_set((float) i);
                    vf part = v_select_lt(off * off, v_set(0.5f), d, v_set(0));
                    v_put(dx + place[i] + c, v_get(dx + place[i] + c, left) + part, left);
                }
            }
        }
    return SN_OK;
}

KERNEL(mean_pool_grad)
{
    int64_t cols = k->d.cols, inner = k->d.inner;
    vf each = v_set((float) (1 / (double) SN_MAX(inner, 1)));
    float *dx = out[0];
    for (int64_t n = 0; n < k->d.rows; n++) {
        const float *dy = (const float *) in[0] + n * cols;
        for (int64_t s = 0; s < inner; s++, dx += cols)
            for (int64_t c = 0; c < cols; c += LANES)
                v_put(dx + c, v_get(dy + c, cols - c) * each, cols - c);
    }
    return SN_OK;
}

KERNEL(mean_pool)
{
    int64_t cols = k->d.cols, inner = k->d.inner, tall = rows_at_once(cols);
    vf each = v_set((float) (1 / (double) SN_MAX(inner, 1)));
    for (int64_t n = 0; n < k->d.rows; n++) {
        const float *x = (const float *) in[0] + n * inner * cols;
        float *y = (float *) out[0] + n * cols;
        for (int64_t c = 0; c < cols; c += LANES) {
            vf total = v_set(0);
            for (int64_t from = 0; from < inner; from += tall) {
                vf sum = v_set(0);
                for (int64_t s = from; s < SN_MIN(inner, from + tall); s++)
                    sum += v_get(x + s * cols + c, cols - c);
                total += sum;
            }
            v_put(y + c, total * each, cols - c);
        }
    }
    return SN_OK;
}
