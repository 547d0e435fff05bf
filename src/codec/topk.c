/* SPDX-License-Identifier: Apache-2.0
 *
 * topk — the k elements of largest magnitude, and where they are; of equal ones those that come
 * first. With a residual the others are sent later (Lin et al., "Deep gradient compression", ICLR
 * 2018; Karimireddy et al., "Error feedback fixes SignSGD", ICML 2019). The places come first
 * (places.h), then the k values as bf16, int8 or int4 would code them. */
#include "codec/places.h"
#include "codec/quant.h"
#include "codec/select.h"

#include <math.h>
#include <stdio.h>

enum { CHUNK = 2048, VALUES = 256 };

#define PARTS 1000000 /* `keep` counts in millionths: exact, and the same on every machine */

static int64_t kept(const sn_codec *c, int64_t n)
{
    double parts = c->keep * PARTS;
    int64_t m = parts >= 1 ? (parts < PARTS ? llrint(parts) : PARTS) : 1;
    int64_t k = n / PARTS * m + n % PARTS * m / PARTS;
    return SN_MIN(SN_MAX(k, 1), n);
}

/* ---- the values ---- */

static int64_t scales(const sn_codec *c, int64_t k)
{
    if (c->inner == SN_CODEC_INT8)
        return blocks(k, INT8_BLOCK);
    return c->inner == SN_CODEC_INT4 ? blocks(k, INT4_BLOCK) : 0;
}

static int64_t values_bytes(const sn_codec *c, int64_t k)
{
    if (c->inner == SN_CODEC_INT8)
        return scales(c, k) * QUANT_SCALE + k;
    return c->inner == SN_CODEC_INT4 ? scales(c, k) * QUANT_SCALE + (k + 1) / 2 : 2 * k;
}

/* Values [first, first + m) of k, m at most VALUES, first a multiple of VALUES. `d` gets what
 * decode will give: not finite where the value is lost. */
static void values_encode(const sn_codec *c, uint8_t *code, int64_t k, int64_t first, int m,
                          float *y, float *d)
{
    int size = c->inner == SN_CODEC_INT4 ? INT4_BLOCK : INT8_BLOCK;
    uint8_t *scale_at = code + first / size * QUANT_SCALE;
    uint8_t *to = code + scales(c, k) * QUANT_SCALE;
    if (c->inner == SN_CODEC_BF16) {
        for (int i = 0; i < m; i++) {
            uint16_t h = sn_f32_to_bf16(y[i]);
            store16(code + 2 * (first + i), h);
            d[i] = sn_bf16_to_f32(h);
        }
        return;
    }
    memset(y + m, 0, (size_t) (VALUES - m) * sizeof(*y));
    for (int at = 0; at < m; at += size, scale_at += QUANT_SCALE) {
        int n = SN_MIN(size, m - at);
        uint16_t scale = quant_scale(largest(y + at, size), size == INT4_BLOCK ? 7 : 127);
        store16(scale_at, scale);
        if (scale == BF16_NAN)
            memset(y + at, 0, (size_t) n * sizeof(*y));
        if (size == INT4_BLOCK) {
            int4_encode(y + at, n, scale, to + (first + at) / 2);
            int4_decode(to + (first + at) / 2, n, scale, d + at);
        } else {
            int8_encode(y + at, n, scale, to + first + at);
            int8_decode(to + first + at, n, scale, d + at);
        }
    }
}

static void values_decode(const sn_codec *c, const uint8_t *code, int64_t k, int64_t first, int m,
                          float *d)
{
    int size = c->inner == SN_CODEC_INT4 ? INT4_BLOCK : INT8_BLOCK;
    const uint8_t *scale_at = code + first / size * QUANT_SCALE;
    const uint8_t *from = code + scales(c, k) * QUANT_SCALE;
    if (c->inner == SN_CODEC_BF16) {
        for (int i = 0; i < m; i++)
            d[i] = sn_bf16_to_f32(load16(code + 2 * (first + i)));
        return;
    }
    for (int at = 0; at < m; at += size, scale_at += QUANT_SCALE) {
        int n = SN_MIN(size, m - at);
        if (size == INT4_BLOCK)
            int4_decode(from + (first + at) / 2, n, load16(scale_at), d + at);
        else
            int8_decode(from + first + at, n, load16(scale_at), d + at);
    }
}

/* ---- what is chosen from: y = x, or the residual with x (or the velocity) added ---- */

INLINE float velocity(const sn_codec_in *in, float beta, int64_t i)
{
    return in->momentum ? beta * in->momentum[i] + in->x[i] : in->x[i];
}

static uint32_t guess(const sn_codec_in *in, float beta, bins *b, int64_t k)
{
    float sample[SELECT_SAMPLE];
    int64_t samples = SN_MIN(SELECT_SAMPLE, in->n / 16);
    if (samples < 64)
        return 0;
    for (int64_t s = 0; s < samples; s++) {
        int64_t i = in->n / samples * s;
        float v = velocity(in, beta, i);
        sample[s] = in->residual ? in->residual[i] + v : v;
    }
    return select_guess(b, sample, samples, in->n, k);
}

static void accumulate(const sn_codec_in *in, float beta, int64_t at, int64_t n)
{
    const float *restrict x = in->x + at;
    float *restrict r = in->residual + at;
    if (in->momentum) {
        float *restrict u = in->momentum + at;
        for (int64_t i = 0; i < n; i++) {
            u[i] = beta * u[i] + x[i];
            r[i] += u[i];
        }
    } else {
        for (int64_t i = 0; i < n; i++)
            r[i] += x[i];
    }
}

/* Adds x to the residual, and counts on the way. */
static cutoff choose(const sn_codec_in *in, float beta, const float *y, int64_t k)
{
    bins b;
    uint32_t low = guess(in, beta, &b, k);
    int shift = low > 0 ? 12 : 19;
    int64_t above;
    bins_clear(&b, low, shift);
    for (int64_t at = 0; at < in->n; at += CHUNK) {
        int64_t n = SN_MIN(CHUNK, in->n - at);
        if (in->residual)
            accumulate(in, beta, at, n);
        bins_add(&b, y + at, n);
    }
    if (bins_find(&b, k, &low, &above))
        return select_within(&b, y, in->n, k, low, shift, above);
    return select_from_nothing(&b, y, in->n, k);
}

/* ---- encode ---- */

typedef struct writer {
    const sn_codec *c;
    const sn_codec_in *in;
    places_out places;
    uint8_t *values;
    int64_t k, done;
    int held;
    int64_t place[VALUES];
    float y[VALUES], d[VALUES];
} writer;

static void flush(writer *w)
{
    values_encode(w->c, w->values, w->k, w->done, w->held, w->y, w->d);
    for (int i = 0; i < w->held; i++) {
        bool whole = (bits_of(w->d[i]) & 0x7fffffffu) < INFINITE;
        if (w->in->residual)
            w->in->residual[w->place[i]] = whole ? w->y[i] - w->d[i] : 0;
        if (w->in->residual && w->in->momentum)
            w->in->momentum[w->place[i]] = 0;
    }
    w->done += w->held;
    w->held = 0;
}

static void put(writer *w, int64_t place, float y)
{
    places_put(&w->places, place);
    w->place[w->held] = place;
    w->y[w->held] = y;
    if (++w->held == VALUES)
        flush(w);
}

static void collect(writer *w, const float *y, int64_t n, cutoff cut)
{
    int64_t equal = w->k - cut.above; /* how many of those at the cut go along */
    for (int64_t i = 0; i < n; i += LANES) {
        float run[LANES];
        int m = (int) SN_MIN(LANES, n - i);
        uint32_t hit = m == LANES ? at_least(y + i, cut.bits) : (1u << m) - 1;
        if (hit == 0)
            continue;
        memcpy(run, y + i, (size_t) m * sizeof(*run)); /* y is the residual: it changes below */
        for (; hit; hit &= hit - 1) {
            int l = __builtin_ctz(hit);
            uint32_t u = bits_of(run[l]) & 0x7fffffffu;
            if (u > cut.bits || (u == cut.bits && equal-- > 0))
                put(w, i + l, run[l]);
        }
    }
    flush(w);
}

/* More than k are not finite: those not sent must not come back for ever. */
static void forget(const sn_codec_in *in)
{
    for (int64_t i = 0; i < in->n && in->residual; i++) {
        if ((bits_of(in->residual[i]) & 0x7fffffffu) < INFINITE)
            continue;
        in->residual[i] = 0;
        if (in->momentum)
            in->momentum[i] = 0;
    }
}

static int64_t bytes(const sn_codec *c, int64_t n)
{
    int64_t k = kept(c, n);
    places p = places_of(n, k);
    return places_bytes(&p) + values_bytes(c, k);
}

static void encode(const sn_codec *c, const sn_codec_in *all, void *code)
{
    sn_codec_in in = *all;
    if (!in.residual)
        in.momentum = NULL;
    writer w = {.c = c, .in = &in, .k = kept(c, in.n)};
    places p = places_of(in.n, w.k);
    const float *y = in.residual ? in.residual : in.x;
    if (in.n == 0)
        return;
    cutoff cut = choose(&in, (float) in.beta, y, w.k);
    w.values = (uint8_t *) code + places_bytes(&p);
    places_begin(&w.places, p, code);
    collect(&w, y, in.n, cut);
    places_end(&w.places);
    if (cut.bits >= INFINITE)
        forget(&in);
}

/* ---- decode ---- */

static sn_status decode(const sn_codec *c, const void *code, int64_t n, bool add, float *out)
{
    int64_t k = kept(c, n);
    places p = places_of(n, k);
    const uint8_t *values = (const uint8_t *) code + places_bytes(&p);
    places_in r;
    if (!places_valid(p, code))
        return sn_fail(SN_ECORRUPT, "top-k code: its places are not %lld rising numbers below %lld",
                       (long long) k, (long long) n);
    if (!add)
        memset(out, 0, (size_t) n * sizeof(*out));
    places_read(&r, p, code);
    for (int64_t first = 0; first < k; first += VALUES) {
        float d[VALUES];
        int m = (int) SN_MIN(VALUES, k - first);
        values_decode(c, values, k, first, m, d);
        for (int i = 0; i < m; i++)
            out[places_next(&r)] += d[i];
    }
    return SN_OK;
}

/* ---- "0.01+int8" ---- */

static sn_status parse(const char *text, sn_codec *c)
{
    const char *plus = strchr(text, '+');
    size_t n = plus ? (size_t) (plus - text) : strlen(text);
    char number[32];
    double keep;
    snprintf(number, sizeof(number), "%.*s", (int) n, text);
    if (n >= sizeof(number) || !sn_str_to_float(number, &keep) || !(keep >= 1e-6 && keep <= 1))
        return sn_fail(SN_EINVAL,
                       "top-k needs the fraction it keeps, 0.000001 to 1, as in "
                       "topk:0.01, not '%.40s'",
                       text);
    c->inner = SN_CODEC_BF16;
    if (plus && strcmp(plus, "+int8") == 0)
        c->inner = SN_CODEC_INT8;
    else if (plus && strcmp(plus, "+int4") == 0)
        c->inner = SN_CODEC_INT4;
    else if (plus && strcmp(plus, "+bf16") != 0)
        return sn_fail(SN_EINVAL, "top-k's values travel as bf16, int8 or int4, not '%.20s'",
                       plus + 1);
    c->keep = (double) llrint(keep * PARTS) / PARTS;
    return SN_OK;
}

const sn_codec_row CODEC_HERE(codec_topk) = {
    .name = "topk",
    .form = "topk:0.01+int8",
    .help = "the given fraction of largest elements; values in bf16 (no suffix), int8 or int4; "
            "wants feedback",
    .kind = SN_CODEC_TOPK,
    .feedback = true,
    .parse = parse,
    .bytes = bytes,
    .encode = encode,
    .decode = decode,
};
