/* SPDX-License-Identifier: Apache-2.0
 *
 * encode — merges applied to words.
 *
 *   word met before? ─ yes ─ its ids
 *                    └ no ── up to SHORT bytes: look for the lowest rank again after each merge
 *                            longer: a heap of (rank, place), so that n bytes cost n log n
 *
 * Both merge, one at a time, the leftmost pair of the lowest rank. */
#include "token/parts.h"

#include <stdlib.h>
#include <string.h>

#define SHORT 32

/* ---- short words ---- */

static int merge_short(const sn_token *t, int32_t *id, int n)
{
    int32_t rank[SHORT];
    for (int i = 0; i + 1 < n; i++)
        rank[i] = token_rank(t, id[i], id[i + 1]);
    for (;;) {
        int best = -1;
        for (int i = 0; i + 1 < n; i++)
            if (rank[i] >= 0 && (best < 0 || rank[i] < rank[best]))
                best = i;
        if (best < 0)
            return n;
        id[best] = t->merge[rank[best]].id;
        n--;
        memmove(id + best + 1, id + best + 2, (size_t) (n - best - 1) * sizeof *id);
        memmove(rank + best, rank + best + 1, (size_t) (n - best) * sizeof *rank);
        if (best > 0)
            rank[best - 1] = token_rank(t, id[best - 1], id[best]);
        if (best + 1 < n)
            rank[best] = token_rank(t, id[best], id[best + 1]);
    }
}

/* ---- long ones ---- */

static void make_room(token_scratch *s, int64_t n)
{
    if (n <= s->cap)
        return;
    free(s->id);
    s->cap = SN_MAX(n, 1024);
    s->id = sn_alloc((size_t) s->cap * 3 * sizeof *s->id);
    s->next = s->id + s->cap;
    s->before = s->next + s->cap;
}

static void push(token_scratch *s, uint64_t item)
{
    if (s->heap_len == s->heap_cap) {
        s->heap_cap = SN_MAX(1024, 2 * s->heap_cap);
        s->heap = sn_realloc(s->heap, (size_t) s->heap_cap * sizeof *s->heap);
    }
    int64_t i = s->heap_len++;
    for (; i > 0 && s->heap[(i - 1) / 2] > item; i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = item;
}

static uint64_t pop(token_scratch *s)
{
    uint64_t top = s->heap[0], item = s->heap[--s->heap_len];
    int64_t i = 0;
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child >= s->heap_len)
            break;
        child += child + 1 < s->heap_len && s->heap[child + 1] < s->heap[child];
        if (s->heap[child] >= item)
            break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = item;
    return top;
}

static int32_t rank_at(const sn_token *t, int32_t at)
{
    const token_scratch *s = &t->scratch;
    return s->id[at] >= 0 && s->next[at] >= 0 ? token_rank(t, s->id[at], s->id[s->next[at]]) : -1;
}

static void offer(sn_token *t, int32_t at)
{
    int32_t rank = at >= 0 ? rank_at(t, at) : -1;
    if (rank >= 0)
        push(&t->scratch, (uint64_t) rank << 32 | (uint32_t) at);
}

/* The ids of scratch.id[0 … n), merged in place; returns how many are left. */
static int64_t merge_long(sn_token *t, int64_t n)
{
    token_scratch *s = &t->scratch;
    for (int32_t i = 0; i < n; i++) {
        s->next[i] = i + 1 < n ? i + 1 : -1;
        s->before[i] = i - 1;
    }
    for (int32_t i = 0; i < n; i++)
        offer(t, i);
    while (s->heap_len > 0) {
        uint64_t item = pop(s);
        int32_t at = (int32_t) (uint32_t) item, rank = (int32_t) (item >> 32);
        if (rank_at(t, at) != rank)
            continue; /* one of the two was merged meanwhile */
        int32_t gone = s->next[at];
        s->id[at] = t->merge[rank].id;
        s->id[gone] = -1;
        s->next[at] = s->next[gone];
        if (s->next[at] >= 0)
            s->before[s->next[at]] = at;
        offer(t, at);
        offer(t, s->before[at]);
    }
    int64_t left = 0;
    for (int64_t i = 0; i < n; i++)
        if (s->id[i] >= 0)
            s->id[left++] = s->id[i];
    return left;
}

/* ---- words ---- */

static token_known *known_place(sn_token *t, const uint8_t *word, int64_t n)
{
    uint64_t a = 0, b = 0, c = 0;
    memcpy(&a, word, (size_t) SN_MIN(n, 8));
    if (n > 8)
        memcpy(&b, word + 8, (size_t) SN_MIN(n - 8, 8));
    if (n > 16)
        memcpy(&c, word + 16, (size_t) (n - 16));
    uint64_t h =
        (a ^ (b << 21 | b >> 43) ^ (c << 42 | c >> 22) ^ (uint64_t) n << 56) * 0x9e3779b97f4a7c15u;
    return &t->known[(h ^ h >> 29) >> 20 & (TOKEN_KNOWN - 1)];
}

static void encode_word(sn_token *t, const uint8_t *word, int64_t n, sn_token_emit emit, void *ctx)
{
    token_known *k = n <= (int64_t) sizeof k->word ? known_place(t, word, n) : NULL;
    if (k && k->bytes == n && !memcmp(k->word, word, (size_t) n)) {
        emit(ctx, k->id, k->ids);
        return;
    }
    int32_t few[SHORT], *id = few;
    int64_t count;
    if (n > SHORT) {
        make_room(&t->scratch, n);
        id = t->scratch.id;
    }
    for (int64_t i = 0; i < n; i++)
        id[i] = t->byte_id[word[i]];
    count = n > SHORT ? merge_long(t, n) : merge_short(t, few, (int) n);
    emit(ctx, id, count);
    if (k && count <= (int64_t) SN_COUNT(k->id)) {
        k->bytes = (uint8_t) n;
        k->ids = (uint8_t) count;
        memcpy(k->word, word, (size_t) n);
        memcpy(k->id, id, (size_t) count * sizeof *id);
    }
}

void sn_token_encode(sn_token *t, const uint8_t *text, int64_t bytes, sn_token_emit emit, void *ctx)
{
    for (int64_t at = 0; at < bytes;) {
        int64_t n = token_word(text + at, bytes - at);
        encode_word(t, text + at, n, emit, ctx);
        at += n;
    }
}
