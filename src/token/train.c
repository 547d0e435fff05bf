/* SPDX-License-Identifier: Apache-2.0
 *
 * train — which pairs to merge: again and again the most frequent one.
 *
 *   words with counts ─ pairs with counts and the words they are in ─ heap by (count, smaller ids)
 *      ▲                                                                  │ most frequent
 *      └───────────── rewrite the words it is in; their pairs change ◄────┘
 *
 * A count in the heap may be too high (the pair lost some to a merge): then it is put back. It is
 * never too low, because a merge adds only to pairs with the new token, and those are offered
 * afresh. */
#include "token/parts.h"

#include <stdlib.h>
#include <string.h>

#define WORD_MAX 256 /* longer words are not learnt from */

/* ---- byte strings, each with a number ---- */

typedef struct names {
    const uint8_t **text;
    int32_t *bytes;
    int32_t *slot; /* number or −1 */
    size_t count, cap, slots;
} names;

static size_t names_slot(const names *t, const uint8_t *text, int64_t n)
{
    size_t s = sn_hash_bytes(text, (size_t) n) & (t->slots - 1);
    while (t->slot[s] >= 0 &&
           (t->bytes[t->slot[s]] != n || memcmp(t->text[t->slot[s]], text, (size_t) n) != 0))
        s = (s + 1) & (t->slots - 1);
    return s;
}

static void names_rehash(names *t, size_t slots)
{
    t->slots = slots;
    t->slot = sn_realloc(t->slot, slots * sizeof *t->slot);
    memset(t->slot, 0xff, slots * sizeof *t->slot);
    for (size_t i = 0; i < t->count; i++)
        t->slot[names_slot(t, t->text[i], t->bytes[i])] = (int32_t) i;
}

/* The number of a string, which stays where it is; new ones get the next. */
static int32_t names_add(names *t, const uint8_t *text, int64_t n)
{
    if (2 * (t->count + 1) > t->slots)
        names_rehash(t, SN_MAX(1024, 2 * t->slots));
    size_t s = names_slot(t, text, n);
    if (t->slot[s] >= 0)
        return t->slot[s];
    if (t->count == t->cap) {
        t->cap = SN_MAX(256, 2 * t->cap);
        t->text = sn_realloc(t->text, t->cap * sizeof *t->text);
        t->bytes = sn_realloc(t->bytes, t->cap * sizeof *t->bytes);
    }
    t->text[t->count] = text;
    t->bytes[t->count] = (int32_t) n;
    return t->slot[s] = (int32_t) t->count++;
}

static void names_done(names *t)
{
    free(t->text);
    free(t->bytes);
    free(t->slot);
}

/* ---- the state of training ---- */

typedef struct word {
    int32_t *id;
    int32_t ids;
    int64_t count;
} word;

typedef struct pair {
    int32_t left, right;
    int64_t count;
    int32_t *word; /* those it is or was in, some twice */
    size_t words, cap;
} pair;

typedef struct offer {
    int64_t count;
    int32_t pair;
} offer;

typedef struct trainer {
    sn_arena *arena;
    names words, tokens;
    word *word;
    pair *pair;
    size_t pairs, pair_cap;
    int32_t *slot; /* pair or −1 */
    size_t slots;
    offer *heap;
    size_t heap_len, heap_cap;
    token_pair *merge;
    size_t merges, merge_cap;
} trainer;

static void count_words(trainer *t, const uint8_t *text, int64_t bytes)
{
    size_t cap = 0;
    for (int64_t at = 0; at < bytes;) {
        int64_t n = token_word(text + at, bytes - at);
        if (n <= WORD_MAX) {
            int32_t w = names_add(&t->words, text + at, n);
            if ((size_t) w >= cap) {
                size_t more = SN_MAX(256, 2 * cap);
                t->word = sn_realloc(t->word, more * sizeof *t->word);
                memset(t->word + cap, 0, (more - cap) * sizeof *t->word);
                cap = more;
            }
            t->word[w].count++;
        }
        at += n;
    }
}

static void spell_words(trainer *t)
{
    int32_t id[256];
    for (int i = 0; i < 256; i++)
        id[token_byte_in_order(i)] = i;
    for (size_t w = 0; w < t->words.count; w++) {
        word *x = &t->word[w];
        x->ids = t->words.bytes[w];
        x->id = SN_NEW_N(t->arena, int32_t, x->ids);
        for (int32_t i = 0; i < x->ids; i++)
            x->id[i] = id[t->words.text[w][i]];
    }
}

/* ---- pairs ---- */

static size_t pair_slot(const trainer *t, int32_t left, int32_t right)
{
    uint64_t key = ((uint64_t) (uint32_t) left << 32 | (uint32_t) right) * 0x9e3779b97f4a7c15u;
    size_t s = (key ^ key >> 32) & (t->slots - 1);
    while (t->slot[s] >= 0 &&
           (t->pair[t->slot[s]].left != left || t->pair[t->slot[s]].right != right))
        s = (s + 1) & (t->slots - 1);
    return s;
}

static int32_t pair_of(trainer *t, int32_t left, int32_t right)
{
    if (2 * (t->pairs + 1) > t->slots) {
        t->slots = SN_MAX(4096, 2 * t->slots);
        t->slot = sn_realloc(t->slot, t->slots * sizeof *t->slot);
        memset(t->slot, 0xff, t->slots * sizeof *t->slot);
        for (size_t p = 0; p < t->pairs; p++)
            t->slot[pair_slot(t, t->pair[p].left, t->pair[p].right)] = (int32_t) p;
    }
    size_t s = pair_slot(t, left, right);
    if (t->slot[s] >= 0)
        return t->slot[s];
    if (t->pairs == t->pair_cap) {
        t->pair_cap = SN_MAX(1024, 2 * t->pair_cap);
        t->pair = sn_realloc(t->pair, t->pair_cap * sizeof *t->pair);
    }
    t->pair[t->pairs] = (pair){.left = left, .right = right};
    return t->slot[s] = (int32_t) t->pairs++;
}

static void add_to_pairs(trainer *t, const word *w, int64_t count)
{
    for (int32_t i = 0; i + 1 < w->ids; i++) {
        int32_t p = pair_of(t, w->id[i], w->id[i + 1]); /* may move the pairs */
        t->pair[p].count += count;
    }
}

static void note_word(trainer *t, int32_t p, int32_t w)
{
    pair *x = &t->pair[p];
    if (x->words && x->word[x->words - 1] == w)
        return;
    if (x->words == x->cap) {
        x->cap = SN_MAX(4, 2 * x->cap);
        x->word = sn_realloc(x->word, x->cap * sizeof *x->word);
    }
    x->word[x->words++] = w;
}

/* ---- the heap ---- */

static bool before(const trainer *t, offer a, offer b)
{
    const pair *x = &t->pair[a.pair], *y = &t->pair[b.pair];
    if (a.count != b.count)
        return a.count > b.count;
    return x->left != y->left ? x->left < y->left : x->right < y->right;
}

static void push(trainer *t, int32_t p)
{
    offer item = {t->pair[p].count, p};
    if (item.count <= 0)
        return;
    if (t->heap_len == t->heap_cap) {
        t->heap_cap = SN_MAX(1024, 2 * t->heap_cap);
        t->heap = sn_realloc(t->heap, t->heap_cap * sizeof *t->heap);
    }
    size_t i = t->heap_len++;
    for (; i > 0 && before(t, item, t->heap[(i - 1) / 2]); i = (i - 1) / 2)
        t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = item;
}

static offer pop(trainer *t)
{
    offer top = t->heap[0], item = t->heap[--t->heap_len];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= t->heap_len)
            break;
        child += child + 1 < t->heap_len && before(t, t->heap[child + 1], t->heap[child]);
        if (!before(t, t->heap[child], item))
            break;
        t->heap[i] = t->heap[child];
        i = child;
    }
    t->heap[i] = item;
    return top;
}

/* −1: no pair is left. */
static int32_t most_frequent(trainer *t)
{
    while (t->heap_len) {
        offer o = pop(t);
        if (o.count == t->pair[o.pair].count)
            return o.pair;
        push(t, o.pair);
    }
    return -1;
}

/* ---- merging ---- */

static void rewrite(word *w, int32_t left, int32_t right, int32_t id)
{
    int32_t n = 0;
    for (int32_t i = 0; i < w->ids; i++) {
        bool here = i + 1 < w->ids && w->id[i] == left && w->id[i + 1] == right;
        w->id[n++] = here ? id : w->id[i];
        i += here;
    }
    w->ids = n;
}

static bool holds(const word *w, int32_t left, int32_t right)
{
    for (int32_t i = 0; i + 1 < w->ids; i++)
        if (w->id[i] == left && w->id[i + 1] == right)
            return true;
    return false;
}

static void merge_words(trainer *t, int32_t p, int32_t id)
{
    int32_t left = t->pair[p].left, right = t->pair[p].right;
    int32_t *words = t->pair[p].word;
    size_t n = t->pair[p].words;
    t->pair[p].word = NULL;
    t->pair[p].words = t->pair[p].cap = 0;
    for (size_t i = 0; i < n; i++) {
        word *w = &t->word[words[i]];
        if (!holds(w, left, right))
            continue;
        add_to_pairs(t, w, -w->count);
        rewrite(w, left, right, id);
        add_to_pairs(t, w, w->count);
        for (int32_t k = 0; k + 1 < w->ids; k++)
            if (w->id[k] == id || w->id[k + 1] == id)
                note_word(t, pair_of(t, w->id[k], w->id[k + 1]), words[i]);
    }
    /* Offer what has grown, once it has grown all it will. */
    for (size_t i = 0; i < n; i++) {
        const word *w = &t->word[words[i]];
        for (int32_t k = 0; k + 1 < w->ids; k++)
            if (w->id[k] == id || w->id[k + 1] == id)
                push(t, pair_of(t, w->id[k], w->id[k + 1]));
    }
    free(words);
}

static int32_t token_of(trainer *t, int32_t left, int32_t right)
{
    int32_t a = t->tokens.bytes[left], b = t->tokens.bytes[right];
    uint8_t *text = sn_arena_alloc(t->arena, (size_t) (a + b));
    memcpy(text, t->tokens.text[left], (size_t) a);
    memcpy(text + a, t->tokens.text[right], (size_t) b);
    return names_add(&t->tokens, text, a + b);
}

static void learn(trainer *t, int64_t vocab)
{
    for (size_t w = 0; w < t->words.count; w++) {
        const word *x = &t->word[w];
        add_to_pairs(t, x, x->count);
        for (int32_t i = 0; i + 1 < x->ids; i++)
            note_word(t, pair_of(t, x->id[i], x->id[i + 1]), (int32_t) w);
    }
    for (size_t p = 0; p < t->pairs; p++)
        push(t, (int32_t) p);
    while ((int64_t) t->tokens.count < vocab - 1) {
        int32_t p = most_frequent(t);
        if (p < 0)
            return;
        int32_t id = token_of(t, t->pair[p].left, t->pair[p].right);
        if (t->merges == t->merge_cap) {
            t->merge_cap = SN_MAX(1024, 2 * t->merge_cap);
            t->merge = sn_realloc(t->merge, t->merge_cap * sizeof *t->merge);
        }
        t->merge[t->merges++] = (token_pair){t->pair[p].left, t->pair[p].right, id};
        merge_words(t, p, id);
    }
}

static void trainer_done(trainer *t)
{
    for (size_t p = 0; p < t->pairs; p++)
        free(t->pair[p].word);
    names_done(&t->words);
    names_done(&t->tokens);
    free(t->word);
    free(t->pair);
    free(t->slot);
    free(t->heap);
    free(t->merge);
    sn_arena_free(t->arena);
}

sn_status sn_token_train(const uint8_t *text, int64_t bytes, int64_t vocab, sn_token **ret)
{
    if (vocab < 257 || vocab > SN_TOKEN_VOCAB_MAX)
        return sn_fail(SN_EINVAL,
                       "a vocabulary of %lld tokens: it must be from 257 (the bytes and the end of "
                       "text) to %d",
                       (long long) vocab, SN_TOKEN_VOCAB_MAX);
    trainer t = {.arena = sn_arena_create()};
    for (int i = 0; i < 256; i++) {
        uint8_t byte = token_byte_in_order(i);
        names_add(&t.tokens, sn_arena_copy(t.arena, &byte, 1), 1);
    }
    count_words(&t, text, bytes);
    spell_words(&t);
    learn(&t, vocab);
    sn_token *token = token_create((int64_t) t.tokens.count + 1, (int64_t) t.merges);
    for (size_t i = 0; i < t.tokens.count; i++)
        token_set(token, (int64_t) i, t.tokens.text[i], t.tokens.bytes[i], false);
    const uint8_t *end = (const uint8_t *) SN_TOKEN_END;
    token_set(token, (int64_t) t.tokens.count, end, sizeof SN_TOKEN_END - 1, true);
    for (size_t i = 0; i < t.merges; i++)
        token_add_merge(token, t.merge[i].left, t.merge[i].right, t.merge[i].id);
    trainer_done(&t);
    *ret = token;
    return token_finish(token, "the trained tokenizer");
}
