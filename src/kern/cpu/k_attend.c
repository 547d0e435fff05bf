/* SPDX-License-Identifier: Apache-2.0
 * Attention whose keys and values stand by themselves: each key head is packed once and serves its
 * query heads; their gradients add up in its rows. */

static heads attend_heads(const sn_kernel *k)
{
    const kern_dims *d = &k->d;
    heads h = {.t = d->t,
               .s = d->s,
               .e = d->e,
               .begin = k->spec.attr.begin,
               .q_step = d->b * d->g * d->h * d->e,
               .k_step = d->b * d->g * d->e,
               .o_step = d->b * d->g * d->h * d->e,
               .causal = k->spec.attr.i[0] != 0,
               .scale = (float) k->spec.attr.f[0],
               .mask_step = d->b};
    heads_size(&h, k->spec.op == SN_OP_ATTEND_GRAD);
    return h;
}

static sn_status attend_prepare(sn_kernel *k)
{
    heads h = attend_heads(k);
    k->work_bytes = heads_carve(&h, k->spec.op == SN_OP_ATTEND_GRAD, NULL) * sizeof(float);
    return SN_OK;
}

KERNEL(attend)
{
    const kern_dims *d = &k->d;
    heads h = attend_heads(k);
    heads_carve(&h, false, work);
    const float *q = in[0], *key = in[1], *value = in[2];
    const int32_t *mask = kern_given(k, 3) ? in[3] : NULL;
    float *o = out[0], *lse = out[1];
    for (int64_t bg = 0; bg < d->b * d->g; bg++) {
        h.mask = mask ? mask + bg / d->g : NULL;
        pack_columns_of_b(key + bg * h.e, h.k_step, h.e, h.s, h.kt);
        pack_rows_of_b(value + bg * h.e, h.k_step, h.s, h.e, 1, h.v);
        for (int64_t head = bg * d->h; head < (bg + 1) * d->h; head++)
            for (int64_t i = 0; i < h.t; i += PANEL_ROWS)
                attend_panel(&h, q + head * h.e, i, (int) SN_MIN(h.t - i, PANEL_ROWS),
                             o + head * h.e, lse + head * h.t);
    }
    return SN_OK;
}

KERNEL(attend_grad)
{
    const kern_dims *d = &k->d;
    heads h = attend_heads(k);
    heads_carve(&h, true, work);
    const float *grad = in[0], *q = in[1], *key = in[2], *value = in[3], *o = in[4], *lse = in[5];
    const int32_t *mask = kern_given(k, 6) ? in[6] : NULL;
    float *dq = out[0], *dk = out[1], *dv = out[2];
    for (int64_t bg = 0; bg < d->b * d->g; bg++) {
        h.mask = mask ? mask + bg / d->g : NULL;
        pack_columns_of_b(key + bg * h.e, h.k_step, h.e, h.s, h.kt);
        pack_columns_of_b(value + bg * h.e, h.k_step, h.e, h.s, h.vt);
        pack_rows_of_b(key + bg * h.e, h.k_step, h.s, h.e, h.scale, h.k);
        for (int64_t head = bg * d->h; head < (bg + 1) * d->h; head++) {
            head_grad g = {.grad = grad + head * h.e,
                           .o = o + head * h.e,
                           .lse = lse + head * h.t,
                           .dq = dq + head * h.e,
                           .dk = dk + bg * h.e,
                           .dv = dv + bg * h.e,
                           .dq_step = h.q_step,
                           .dk_step = h.k_step,
                           .adds = head > bg * d->h};
            grad_head(&h, &g, q + head * h.e);
        }
    }
    return SN_OK;
}
