/* SPDX-License-Identifier: Apache-2.0
 *
 * ngram — the interpolated Witten–Bell model, the baseline that a trained network has to beat.
 *
 *   P(c | h) = (N(h c) + D(h) · P(c | h')) / (N(h) + D(h))     N(h): times h was followed by
 *                                                              anything, D(h): by how many
 *                                                              different bytes, h': h less its
 *                                                              oldest byte; below the empty h:
 * 1/256
 *
 * One hash table per length. The context of length k at a byte is the gram of length k that ends
 * just before it, which was found one byte earlier: so a byte costs `order` look-ups and no more.
 * Source: Witten & Bell, "The zero-frequency problem", IEEE Trans. Inf. Theory 37(4), 1991. */
#include "train/train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ORDER_MAX 8
#define NONE UINT32_MAX

typedef struct gram {
    uint64_t key;
    uint32_t times;    /* N of the gram itself */
    uint32_t followed; /* N as a context */
    uint32_t distinct; /* D as a context */
} gram;

typedef struct table { /* of grams of one length */
    gram *entry;
    uint32_t count, cap;
    uint32_t *slot; /* index into entry, NONE: free; open addressing, at most half full */
    uint32_t mask;
} table;

typedef struct model {
    int order;
    table length[ORDER_MAX + 1]; /* [0] holds the empty context alone */
} model;

static uint32_t place(uint64_t key, uint32_t mask)
{
    return (uint32_t) ((key * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & mask;
}

static uint32_t find(const table *t, uint64_t key, uint32_t *ret_slot)
{
    uint32_t at = place(key, t->mask);
    while (t->slot[at] != NONE && t->entry[t->slot[at]].key != key)
        at = (at + 1) & t->mask;
    *ret_slot = at;
    return t->slot[at];
}

static bool table_grow(table *t)
{
    uint32_t cap = t->cap ? t->cap * 2 : 1024, mask = cap * 2 - 1;
    uint32_t *slot = malloc(((size_t) mask + 1) * sizeof(*slot));
    gram *entry = realloc(t->entry, cap * sizeof(*entry));
    if (entry)
        t->entry = entry;
    if (!slot || !entry) {
        free(slot);
        return false;
    }
    memset(slot, 0xff, ((size_t) mask + 1) * sizeof(*slot));
    for (uint32_t i = 0; i < t->count; i++) {
        uint32_t at = place(t->entry[i].key, mask);
        while (slot[at] != NONE)
            at = (at + 1) & mask;
        slot[at] = i;
    }
    free(t->slot);
    t->slot = slot;
    t->mask = mask;
    t->cap = cap;
    return true;
}

/* The entry of `key`, made if need be; NONE when memory is gone. */
static uint32_t find_or_add(table *t, uint64_t key)
{
    uint32_t at;
    if (t->count == t->cap && !table_grow(t))
        return NONE;
    uint32_t i = find(t, key, &at);
    if (i != NONE)
        return i;
    t->entry[t->count] = (gram){.key = key};
    t->slot[at] = t->count;
    return t->count++;
}

static uint64_t key_mask(int length)
{
    return length == 8 ? UINT64_MAX : (UINT64_C(1) << 8 * length) - 1;
}

static bool learn(model *m, const uint8_t *text, int64_t bytes)
{
    uint32_t before[ORDER_MAX + 1], now[ORDER_MAX + 1];
    now[0] = before[0] = find_or_add(&m->length[0], 0);
    if (now[0] == NONE)
        return false;
    uint64_t key = 0;
    for (int64_t i = 0; i < bytes; i++) {
        key = key << 8 | text[i];
        int longest = (int) SN_MIN(m->order, i + 1);
        for (int k = 1; k <= longest; k++) {
            now[k] = find_or_add(&m->length[k], key & key_mask(k));
            if (now[k] == NONE)
                return false;
            gram *context = &m->length[k - 1].entry[before[k - 1]];
            context->followed++;
            context->distinct += m->length[k].entry[now[k]].times++ == 0;
        }
        memcpy(before, now, sizeof(before));
    }
    return true;
}

/* Sum of -log P over text[1 …), each given what stands before it in `text`. */
static double score(const model *m, const uint8_t *text, int64_t bytes)
{
    double sum = 0;
    uint32_t before[ORDER_MAX + 1] = {0}, now[ORDER_MAX + 1] = {0}, slot;
    uint64_t key = 0;
    for (int64_t i = 0; i < bytes; i++) {
        key = key << 8 | text[i];
        double p = 1.0 / 256;
        for (int k = 1; k <= m->order; k++) {
            now[k] = NONE;
            if (i + 1 < k)
                continue;
            now[k] = find(&m->length[k], key & key_mask(k), &slot);
            if (before[k - 1] == NONE)
                continue;
            const gram *context = &m->length[k - 1].entry[before[k - 1]];
            double times = now[k] == NONE ? 0 : m->length[k].entry[now[k]].times;
            if (context->followed > 0)
                p = (times + context->distinct * p) /
                    ((double) context->followed + context->distinct);
        }
        if (i > 0)
            sum -= log(p);
        memcpy(before, now, sizeof(before));
    }
    return sum;
}

sn_status sn_ngram_loss(const uint8_t *train, int64_t train_bytes, const uint8_t *held,
                        int64_t held_bytes, int order, double *ret_nats_per_byte)
{
    if (order < 1 || order > ORDER_MAX)
        return sn_fail(SN_EINVAL, "n-gram order %d is not between 1 and %d", order, ORDER_MAX);
    if (train_bytes < 1 || held_bytes < 2 || train_bytes >= INT32_MAX)
        return sn_fail(SN_EINVAL, "the n-gram baseline takes texts of 1 byte to 2 GiB, not %lld",
                       (long long) train_bytes);
    model m = {.order = order};
    bool room = true;
    for (int k = 0; k <= order; k++)
        room = room && table_grow(&m.length[k]);
    room = room && learn(&m, train, train_bytes);
    if (room)
        *ret_nats_per_byte = score(&m, held, held_bytes) / (double) (held_bytes - 1);
    for (int k = 0; k <= order; k++) {
        free(m.length[k].entry);
        free(m.length[k].slot);
    }
    return room ? SN_OK
                : sn_fail(SN_ENOMEM, "no memory for an n-gram model of order %d of %lld bytes",
                          order, (long long) train_bytes);
}
