/* SPDX-License-Identifier: Apache-2.0
 * Broadcasting addition and its adjoint: runs along the innermost dimension of the walk, where the
 * smaller operand moves by one or stands still. */

/* Where the smaller operand is after `row` rows of the larger one. */
static int64_t walk_at(const kern_dims *d, int64_t row)
{
    int64_t at = 0;
    for (int w = d->walk - 2; w >= 0; w--) {
        at += row % d->size[w] * d->step[w];
        row /= d->size[w];
    }
    return at;
}

KERNEL(add)
{
    const kern_dims *d = &k->d;
    const float *y = in[1];
    int64_t total = sn_shape_count(k->spec.in[0].shape), n = d->size[d->walk - 1];
    bool moves = d->step[d->walk - 1] != 0;
    for (int64_t r = 0; r * n < total; r++) {
        const float *x = (const float *) in[0] + r * n, *from = y + walk_at(d, r);
        float *z = (float *) out[0] + r * n;
        for (int64_t c = 0; c < n; c += LANES)
            v_put(z + c, v_get(x + c, n - c) + (moves ? v_get(from + c, n - c) : v_set(from[0])),
                  n - c);
    }
    return SN_OK;
}

static float sum_run(const float *x, int64_t n)
{
    vf sum = v_set(0);
    for (int64_t c = 0; c < n; c += LANES)
        sum += v_get(x + c, n - c);
    return v_sum(sum);
}

KERNEL(sum_to)
{
    const kern_dims *d = &k->d;
    const float *x = in[0];
    float *y = out[0];
    int64_t total = sn_shape_count(k->spec.in[0].shape), n = d->size[d->walk - 1];
    bool moves = d->step[d->walk - 1] != 0;
    if (!kern_adds(k, 0))
        memset(y, 0, (size_t) sn_shape_count(k->spec.out[0].shape) * sizeof(float));
    for (int64_t r = 0; r * n < total; r++) {
        float *to = y + walk_at(d, r);
        if (moves)
            add_to(x + r * n, to, n);
        else
            to[0] += sum_run(x + r * n, n);
    }
    return SN_OK;
}
