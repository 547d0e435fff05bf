/* SPDX-License-Identifier: Apache-2.0
 *
 * select — the k-th largest magnitude of n numbers, exactly, in O(n) and without memory.
 *
 * Magnitudes are compared as bits (NaN is above infinity). A histogram over 4,096 bins from `low`
 * on finds the bin with the k-th; histograms of finer bins inside it, of width 1 in the end, find
 * the number. A sample says from where the first one should begin, so that it meets few numbers
 * more than k; if the guess was wrong, it begins at 0. So the guess costs or saves time and
 * changes nothing else. */
#ifndef SN_CODEC_SELECT_H
#define SN_CODEC_SELECT_H

#include "codec/block.h"

#include <math.h>

enum { SELECT_BINS = 4096, SELECT_SAMPLE = 4096 };

typedef struct cutoff {
    uint32_t bits; /* of the k-th largest magnitude */
    int64_t above; /* how many are larger */
} cutoff;

typedef struct bins {
    uint32_t low;
    int shift;
    int64_t count[SELECT_BINS], over; /* over: beyond the last bin */
} bins;

INLINE void bins_clear(bins *b, uint32_t low, int shift)
{
    memset(b, 0, sizeof(*b));
    b->low = low;
    b->shift = shift;
}

INLINE void bins_add1(bins *b, float y)
{
    uint32_t at = ((bits_of(y) & 0x7fffffffu) - b->low) >> b->shift;
    if (at < SELECT_BINS)
        b->count[at]++;
    else
        b->over++;
}

/* With a good guess nearly all are below `low` and cost a sixteenth of a comparison. */
INLINE void bins_add(bins *b, const float *y, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (uint32_t hit = at_least(y + i, b->low); hit; hit &= hit - 1)
            bins_add1(b, y[i + __builtin_ctz(hit)]);
    for (; i < n; i++)
        if ((bits_of(y[i]) & 0x7fffffffu) >= b->low)
            bins_add1(b, y[i]);
}

/* The bin with the k-th largest; false if it is not in one. *ret_above: how many are larger than
 * all of the bin. */
INLINE bool bins_find(const bins *b, int64_t k, uint32_t *ret_low, int64_t *ret_above)
{
    int64_t above = b->over;
    if (above >= k)
        return false;
    for (int at = SELECT_BINS - 1; at >= 0; at--) {
        if (above + b->count[at] >= k) {
            *ret_low = b->low + ((uint32_t) at << b->shift);
            *ret_above = above;
            return true;
        }
        above += b->count[at];
    }
    return false;
}

/* From a bin of 2^shift magnitudes from `low` on down to one magnitude. What is beyond the bin is
 * counted too, so `above` needs no sum over levels. */
INLINE cutoff select_within(bins *b, const float *y, int64_t n, int64_t k, uint32_t low, int shift,
                            int64_t above)
{
    while (shift > 0) {
        shift = shift > 12 ? shift - 12 : 0;
        bins_clear(b, low, shift);
        bins_add(b, y, n);
        bins_find(b, k, &low, &above);
    }
    return (cutoff){low, above};
}

INLINE cutoff select_from_nothing(bins *b, const float *y, int64_t n, int64_t k)
{
    return select_within(b, y, n, k, 0, 31, 0);
}

/* A bound that, most likely, little more than k of the n exceed; 0 when it is not worth it. The
 * sample's k-th is moved by four standard deviations. */
INLINE uint32_t select_guess(bins *b, const float *sample, int64_t samples, int64_t n, int64_t k)
{
    double hits = (double) k * (double) samples / (double) n;
    int64_t want = (int64_t) (hits + 4 * sqrt(hits) + 4);
    if (want >= samples)
        return 0;
    return select_from_nothing(b, sample, samples, want).bits;
}

#endif
