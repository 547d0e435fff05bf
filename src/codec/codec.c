/* SPDX-License-Identifier: Apache-2.0
 *
 * codec — names to codecs and back, and the front of every call: the variant of this processor, in
 * IEEE's mode of computing. */
#include "codec/private.h"
#include "fold/fold.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int sn_codec_rows(const sn_codec_row *const **ret)
{
    *ret = codec_variant_here()->row;
    return SN_CODEC_KINDS;
}

static const sn_codec_row *row_of(const sn_codec *c)
{
    SN_ASSERT((unsigned) c->kind < SN_CODEC_KINDS);
    return codec_variant_here()->row[c->kind];
}

#define CALM UINT32_MAX /* no mode of the processor */

static uint32_t enter(void)
{
    return sn_fold_strange() ? sn_fold_calm() : CALM;
}

static void leave(uint32_t mode)
{
    if (mode != CALM)
        sn_fold_restore(mode);
}

/* ---- words ---- */

static sn_status unknown(const char *text)
{
    const sn_codec_row *const *row;
    char all[256] = "";
    size_t used = 0;
    for (int i = 0, n = sn_codec_rows(&row); i < n; i++)
        used +=
            (size_t) snprintf(all + used, sizeof(all) - used, "%s%s", i ? ", " : "", row[i]->form);
    return sn_fail(SN_EINVAL, "no codec '%.40s'; there are %s", text, all);
}

static sn_status parse(const char *text, sn_codec *ret)
{
    const sn_codec_row *const *row;
    size_t name = strcspn(text, ":");
    const char *argument = text[name] == ':' ? text + name + 1 : NULL;
    for (int i = 0, n = sn_codec_rows(&row); i < n; i++) {
        sn_codec c = {.kind = row[i]->kind};
        if (strlen(row[i]->name) != name || strncmp(text, row[i]->name, name) != 0)
            continue;
        if (argument && !row[i]->parse)
            return sn_fail(SN_EINVAL, "codec %s takes nothing after its name, not ':%.40s'",
                           row[i]->name, argument);
        if (row[i]->parse)
            SN_TRY(row[i]->parse(argument ? argument : "", &c));
        *ret = c;
        return SN_OK;
    }
    return unknown(text);
}

sn_status sn_codec_parse(const char *text, sn_codec *ret)
{
    uint32_t mode = enter();
    sn_status status = parse(text, ret);
    leave(mode);
    return status;
}

/* Digits by whole numbers: what a program has set for its decimal point does not matter. */
static int fraction(double keep, char *out, size_t size)
{
    int millionths = (int) llrint(keep * 1e6), digits = 6;
    if (millionths % 1000000 == 0)
        return snprintf(out, size, "%d", millionths / 1000000);
    int rest = millionths % 1000000;
    for (; rest % 10 == 0; digits--)
        rest /= 10;
    return snprintf(out, size, "%d.%0*d", millionths / 1000000, digits, rest);
}

void sn_codec_text(const sn_codec *c, char out[32])
{
    const char *name = row_of(c)->name;
    char keep[16];
    uint32_t mode = enter();
    if (c->kind == SN_CODEC_POWERSGD) {
        snprintf(out, 32, "%s:%d", name, c->rank);
    } else if (c->kind == SN_CODEC_TOPK) {
        fraction(SN_MIN(SN_MAX(c->keep, 1e-6), 1), keep, sizeof(keep));
        snprintf(out, 32, "%s:%s%s", name, keep,
                 c->inner == SN_CODEC_INT8   ? "+int8"
                 : c->inner == SN_CODEC_INT4 ? "+int4"
                                             : "");
    } else {
        snprintf(out, 32, "%s", name);
    }
    leave(mode);
}

bool sn_codec_feedback(const sn_codec *c)
{
    return row_of(c)->feedback;
}

/* ---- bytes ---- */

int64_t sn_codec_bytes(const sn_codec *c, int64_t n)
{
    if (n <= 0)
        return 0;
    uint32_t mode = enter();
    int64_t bytes = row_of(c)->bytes(c, n);
    leave(mode);
    return bytes;
}

void sn_codec_encode(const sn_codec *c, const float *x, float *residual, float *momentum,
                     double beta, int64_t n, void *code)
{
    sn_codec_in in = {.x = x, .residual = residual, .momentum = momentum, .beta = beta, .n = n};
    SN_ASSERT(row_of(c)->encode != NULL);
    uint32_t mode = enter();
    if (n > 0)
        row_of(c)->encode(c, &in, code);
    leave(mode);
}

sn_status sn_codec_decode(const sn_codec *c, const void *code, int64_t bytes, int64_t n, bool add,
                          float *out)
{
    const sn_codec_row *row = row_of(c);
    if (!row->decode)
        return sn_fail(SN_ENOTSUP, "%s is an operation on matrices: it has no code", row->name);
    int64_t want = sn_codec_bytes(c, n);
    if (bytes != want)
        return sn_fail(SN_ECORRUPT, "%s code of %lld elements has %lld bytes, not %lld", row->name,
                       (long long) n, (long long) want, (long long) bytes);
    uint32_t mode = enter();
    sn_status status = n > 0 ? row->decode(c, code, n, add, out) : SN_OK;
    leave(mode);
    return status;
}

/* ---- PowerSGD ---- */

void sn_codec_lowrank_p(const float *m, int64_t rows, int64_t cols, int rank, const float *q,
                        float *p)
{
    uint32_t mode = enter();
    codec_variant_here()->lowrank->p(m, rows, cols, rank, q, p);
    leave(mode);
}

void sn_codec_lowrank_q(const float *m, int64_t rows, int64_t cols, int rank, const float *p,
                        float *q)
{
    uint32_t mode = enter();
    codec_variant_here()->lowrank->q(m, rows, cols, rank, p, q);
    leave(mode);
}

void sn_codec_lowrank_m(const float *p, const float *q, int64_t rows, int64_t cols, int rank,
                        float *m)
{
    uint32_t mode = enter();
    codec_variant_here()->lowrank->m(p, q, rows, cols, rank, m);
    leave(mode);
}

void sn_codec_orthonormal(float *p, int64_t rows, int rank)
{
    uint32_t mode = enter();
    codec_variant_here()->lowrank->orthonormal(p, rows, rank);
    leave(mode);
}

/* ---- does it pay? ---- */

double sn_codec_seconds(const sn_codec *c, int64_t n, double link_bytes_per_s,
                        double codec_bytes_per_s)
{
    if (n <= 0)
        return 0;
    double coding = c->kind == SN_CODEC_NONE ? 0 : 4 * (double) n / codec_bytes_per_s;
    return (double) sn_codec_bytes(c, n) / link_bytes_per_s + coding;
}
