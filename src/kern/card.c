/* SPDX-License-Identifier: Apache-2.0
 * Cards and kernels: opening, preparing once, and the adapter that every run passes through. */
#include "kern/card.h"

#include "os/os.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN 64
#define LARGE_PAGE ((size_t) 2 << 20) /* where a system has them, kernels miss fewer translations */

static bool always(sn_str *ret_why_not)
{
    return true;
}

int sn_card_kinds(const sn_card_kind **ret)
{
    static const sn_card_kind kinds[] = {
        {"cpu", "host processor: oneDNN and own vector kernels", always, kern_cpu_open},
        {"ref", "host processor, plain loops: the oracle", always, kern_ref_open},
    };
    *ret = kinds;
    return SN_COUNT(kinds);
}

sn_status sn_card_open(const char *kind, const sn_card_opts *opts, sn_card **ret)
{
    const sn_card_kind *kinds;
    int n = sn_card_kinds(&kinds);
    sn_card_opts o = opts ? *opts : (sn_card_opts){0};
    if (o.threads < 0 || o.threads > 1024)
        return sn_fail(SN_EINVAL, "card %s: %d threads asked, 1 … 1024 are possible", kind,
                       o.threads);
    if (o.threads == 0)
        o.threads = 1;
    sn_str text = {0};
    for (int i = 0; i < n; i++) {
        if (strcmp(kinds[i].name, kind) == 0) {
            sn_status status = SN_OK;
            if (kinds[i].available(&text))
                status = kinds[i].open(&o, ret);
            else
                status = sn_fail(SN_ENOTSUP, "card %s: %s", kind, sn_str_get(&text));
            sn_str_done(&text);
            return status;
        }
    }
    for (int i = 0; i < n; i++)
        sn_str_printf(&text, "%s%s", i ? ", " : "", kinds[i].name);
    sn_fail(SN_ENOTFOUND, "no card kind '%s'; there are: %s", kind, sn_str_get(&text));
    sn_str_done(&text);
    return SN_ENOTFOUND;
}

static void widen_plain(const uint16_t *in, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = sn_bf16_to_f32(in[i]);
}

static void narrow_plain(const float *in, uint16_t *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = sn_f32_to_bf16(in[i]);
}

static void accumulate_plain(const float *in, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] += in[i];
}

sn_card *kern_card_create(const char *kind, const kern_impl *impl, const sn_card_opts *opts)
{
    sn_card *card = sn_alloc(sizeof *card);
    *card = (sn_card){.kind = kind,
                      .impl = impl,
                      .threads = opts->threads,
                      .widen = widen_plain,
                      .narrow = narrow_plain,
                      .accumulate = accumulate_plain};
    return card;
}

sn_status kern_ref_open(const sn_card_opts *opts, sn_card **ret)
{
    *ret = kern_card_create("ref", kern_ref_impls(), opts);
    return SN_OK;
}

static void kernel_free(sn_kernel *k)
{
    if (k->impl->done)
        k->impl->done(k);
    free(k);
}

void sn_card_close(sn_card *card)
{
    if (!card)
        return;
    while (card->first) {
        sn_kernel *k = card->first;
        card->first = k->next;
        kernel_free(k);
    }
    if (card->close)
        card->close(card);
    free(card->scratch);
    free(card);
}

const char *sn_card_kind_name(const sn_card *card)
{
    return card->kind;
}

uint64_t sn_card_scratch_bytes(const sn_card *card)
{
    return card->scratch_bytes;
}

static sn_shape shape_clean(sn_shape shape)
{
    sn_shape c = {.rank = shape.rank};
    for (int i = 0; i < shape.rank && i < SN_RANK_MAX; i++)
        c.dim[i] = shape.dim[i];
    return c;
}

/* Copy field by field into zeroed memory, so that equal specs are equal bytes, padding included. */
static void spec_normalise(const sn_kernel_spec *s, sn_kernel_spec *c)
{
    memset(c, 0, sizeof *c);
    c->op = s->op;
    memcpy(c->attr.i, s->attr.i, sizeof c->attr.i);
    memcpy(c->attr.f, s->attr.f, sizeof c->attr.f);
    c->attr.shape = shape_clean(s->attr.shape);
    c->attr.begin = s->attr.begin;
    c->ins = s->ins;
    c->outs = s->outs;
    c->accumulate = s->accumulate;
    for (int i = 0; i < s->ins; i++) {
        c->in[i].absent = s->in[i].absent;
        if (!s->in[i].absent) {
            c->in[i].dtype = s->in[i].dtype;
            c->in[i].shape = shape_clean(s->in[i].shape);
        }
    }
    for (int o = 0; o < s->outs; o++) {
        c->out[o].dtype = s->out[o].dtype;
        c->out[o].shape = shape_clean(s->out[o].shape);
    }
}

static bool types_equal(const sn_kernel_spec *s)
{
    for (int i = 0; i < s->ins; i++)
        if (s->in[i].dtype != s->out[0].dtype)
            return false;
    return true;
}

static void adapt(sn_kernel *k, kern_adapt *a, sn_shape shape, size_t *bytes)
{
    *a = (kern_adapt){.offset = *bytes, .count = sn_shape_count(shape), .used = true};
    *bytes += SN_ALIGN_UP((size_t) a->count * sizeof(float), ALIGN);
    k->adapts = true;
}

/* Which operands pass through the scratch, and where they lie in it. */
static void adapters(sn_kernel *k)
{
    const sn_kernel_spec *s = &k->spec;
    const kern_impl *impl = k->impl;
    size_t bytes = 0;
    bool raw = impl->any_type && types_equal(s) && !s->accumulate;
    for (int i = 0; i < s->ins && !raw; i++)
        if (kern_given(k, i) && s->in[i].dtype == SN_BF16 && !(impl->bf16_in >> i & 1))
            adapt(k, &k->in[i], s->in[i].shape, &bytes);
    for (int o = 0; o < s->outs && !raw; o++)
        if ((s->out[o].dtype == SN_BF16 && !(impl->bf16_out >> o & 1)) ||
            (kern_adds(k, o) && !(impl->accumulates >> o & 1)))
            adapt(k, &k->out[o], s->out[o].shape, &bytes);
    k->work_offset = bytes;
}

static sn_status scratch_grow(sn_card *card, size_t bytes)
{
    if (bytes <= card->scratch_bytes)
        return SN_OK;
    size_t page = bytes >= LARGE_PAGE / 2 ? LARGE_PAGE : 4096;
    bytes = SN_ALIGN_UP(bytes, page);
    /* Ask first: a system that overcommits says yes and kills the process when it is touched. */
    uint64_t available = sn_memory_available();
    char *scratch = available == 0 || bytes < available ? aligned_alloc(page, bytes) : NULL;
    char need[32], have[32];
    if (!scratch)
        return sn_fail(SN_ENOMEM, "card %s: a kernel needs %s of scratch, %s are available",
                       card->kind, sn_fmt_bytes(need, (double) bytes),
                       sn_fmt_bytes(have, (double) available));
    sn_memory_prefer_large(scratch, bytes);
    memset(scratch, 0, bytes); /* touched now, so that no run takes a page fault */
    free(card->scratch);
    card->scratch = scratch;
    card->scratch_bytes = bytes;
    return SN_OK;
}

sn_status sn_card_prepare(sn_card *card, const sn_kernel_spec *spec, sn_kernel **ret)
{
    kern_dims d;
    sn_status status = SN_OK;
    SN_TRY(kern_check(spec, &d));
    sn_kernel *k = sn_alloc(sizeof *k);
    spec_normalise(spec, &k->spec);
    for (sn_kernel *old = card->first; old; old = old->next) {
        if (memcmp(&old->spec, &k->spec, sizeof k->spec) == 0) {
            free(k);
            *ret = old;
            return SN_OK;
        }
    }
    k->card = card;
    k->impl = &card->impl[spec->op];
    k->d = d;
    adapters(k);
    if (k->impl->prepare)
        SN_TRY_OR(k->impl->prepare(k), free_kernel);
    SN_TRY_OR(scratch_grow(card, k->work_offset + k->work_bytes), free_kernel);
    k->next = card->first;
    card->first = k;
    *ret = k;
    return SN_OK;
free_kernel:
    kernel_free(k);
    return status;
}

sn_status sn_kernel_run(sn_kernel *k, const void *const *in, void *const *out)
{
    const sn_card *card = k->card;
    if (!k->adapts)
        return k->impl->run(k, in, out, card->scratch + k->work_offset);
    const void *wide_in[SN_OP_IN_MAX];
    void *wide_out[SN_OP_OUT_MAX];
    for (int i = 0; i < k->spec.ins; i++) {
        wide_in[i] = in[i];
        if (k->in[i].used) {
            float *f = (float *) (void *) (card->scratch + k->in[i].offset);
            card->widen(in[i], f, k->in[i].count);
            wide_in[i] = f;
        }
    }
    for (int o = 0; o < k->spec.outs; o++)
        wide_out[o] = k->out[o].used ? card->scratch + k->out[o].offset : out[o];
    SN_TRY(k->impl->run(k, wide_in, wide_out, card->scratch + k->work_offset));
    for (int o = 0; o < k->spec.outs; o++) {
        if (!k->out[o].used)
            continue;
        if (kern_adds(k, o))
            card->accumulate(wide_out[o], out[o], k->out[o].count);
        else
            card->narrow(wide_out[o], out[o], k->out[o].count);
    }
    return SN_OK;
}
