/* SPDX-License-Identifier: Apache-2.0
 *
 * places — k rising numbers below n in about log2(n/k) + 2 bits each, always as many (Elias 1974,
 * Fano 1971): the lower l = floor(log2(n/k)) bits of each lie one after another; the upper parts h
 * are marks in a row of k + (n-1 >> l) bits, the i-th (from 0) at bit h + i. */
#ifndef SN_CODEC_PLACES_H
#define SN_CODEC_PLACES_H

#include "codec/block.h"

typedef struct places {
    int64_t n, k, marks; /* marks: bits of the upper part */
    int low;             /* bits of each lower part */
} places;

INLINE places places_of(int64_t n, int64_t k)
{
    places p = {.n = n, .k = k};
    if (k == 0)
        return p;
    while ((n / k) >> (p.low + 1) > 0)
        p.low++;
    p.marks = k + ((n - 1) >> p.low);
    return p;
}

INLINE int64_t places_low_bytes(const places *p)
{
    return blocks(p->k * p->low, 8);
}

INLINE int64_t places_bytes(const places *p)
{
    return places_low_bytes(p) + blocks(p->marks, 8);
}

/* ---- writing, in rising order ---- */

typedef struct places_out {
    places p;
    uint8_t *low, *marks;
    uint64_t held; /* lower bits that fill no byte yet */
    int bits;
    int64_t i;
} places_out;

INLINE void places_begin(places_out *w, places p, uint8_t *to)
{
    *w = (places_out){.p = p, .low = to, .marks = to + places_low_bytes(&p)};
    memset(w->marks, 0, (size_t) blocks(p.marks, 8));
}

INLINE void places_put(places_out *w, int64_t place)
{
    int64_t mark = (place >> w->p.low) + w->i++;
    w->marks[mark >> 3] |= (uint8_t) (1u << (mark & 7));
    w->held |= ((uint64_t) place & ((UINT64_C(1) << w->p.low) - 1)) << w->bits;
    w->bits += w->p.low;
    for (; w->bits >= 8; w->bits -= 8) {
        *w->low++ = (uint8_t) w->held;
        w->held >>= 8;
    }
}

INLINE void places_end(places_out *w)
{
    if (w->bits > 0)
        *w->low = (uint8_t) w->held;
}

/* ---- reading ---- */

typedef struct places_in {
    places p;
    const uint8_t *low, *marks;
    uint64_t held; /* of the lower parts */
    int bits;
    uint32_t row; /* what is left of the byte of marks before `at` */
    int64_t at, i;
} places_in;

INLINE void places_read(places_in *r, places p, const uint8_t *from)
{
    *r = (places_in){.p = p, .low = from, .marks = from + places_low_bytes(&p)};
}

/* The next place, or -1 if there is none: fewer marks than k. At most k calls. */
INLINE int64_t places_next(places_in *r)
{
    int64_t all = blocks(r->p.marks, 8);
    while (r->row == 0) {
        if (r->at == all)
            return -1;
        r->row = r->marks[r->at++];
    }
    int64_t high = 8 * (r->at - 1) + __builtin_ctz(r->row) - r->i++;
    r->row &= r->row - 1;
    for (; r->bits < r->p.low; r->bits += 8)
        r->held |= (uint64_t) *r->low++ << r->bits;
    int64_t place = high << r->p.low | (int64_t) (r->held & ((UINT64_C(1) << r->p.low) - 1));
    r->held >>= r->p.low;
    r->bits -= r->p.low;
    return place;
}

/* k places that rise and are below n, and no mark and no bit more. */
INLINE bool places_valid(places p, const uint8_t *from)
{
    places_in r;
    int64_t last = -1;
    places_read(&r, p, from);
    for (int64_t i = 0; i < p.k; i++) {
        int64_t place = places_next(&r);
        if (place <= last || place >= p.n)
            return false;
        last = place;
    }
    uint32_t rest = r.row;
    for (int64_t at = r.at; at < blocks(p.marks, 8); at++)
        rest |= r.marks[at];
    return rest == 0 && r.held == 0;
}

#endif
