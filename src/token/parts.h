/* SPDX-License-Identifier: Apache-2.0
 *
 * parts — what the files of token share. Private.
 *
 *   words.c   where GPT-2 cuts a text into words      table.c  tokens, merges, the pairs' table
 *   encode.c  merges applied to a word                train.c  merges found in a text
 *   read.c, write.c  the files                        letters.c  bytes as printable characters */
#ifndef SN_TOKEN_PARTS_H
#define SN_TOKEN_PARTS_H

#include "token/token.h"

/* ---- words.c ---- */
#define TOKEN_WORD_MAX 65536
/* Bytes of the first word of text[0 … n), n > 0. */
int64_t token_word(const uint8_t *text, int64_t n);

/* ---- letters.c: GPT-2's printable stand-ins for bytes ---- */
uint32_t token_letter(uint8_t byte);    /* code point */
int token_letter_byte(uint32_t letter); /* -1: none */
uint8_t token_byte_in_order(int rank);  /* the rank-th byte, by stand-in */
/* The bytes that a token's name stands for, or −1 when one of its characters stands for none. */
int64_t token_name_bytes(const char *name, size_t n, uint8_t *out);
void token_name_add(sn_str *out, const uint8_t *bytes, int64_t n);

/* ---- table.c ---- */
typedef struct token_pair {
    int32_t left, right, id; /* id: of what they become; rank: place in the list */
} token_pair;

typedef struct token_entry {
    const uint8_t *text;
    int32_t bytes; /* 0: no such token */
    bool special;
} token_entry;

typedef struct token_known { /* a word met before and its ids */
    uint8_t bytes, ids;      /* bytes 0: empty */
    uint8_t word[22];
    int32_t id[10];
} token_known;

_Static_assert(sizeof(token_known) == 64, "one cache line");

#define TOKEN_KNOWN 16384

typedef struct token_scratch { /* for words beyond a few bytes; grown once */
    int32_t *id, *next, *before;
    uint64_t *heap;
    int64_t cap, heap_len, heap_cap;
} token_scratch;

struct sn_token {
    sn_arena *arena;
    int64_t vocab, merges, slots; /* slots: of the pairs' table, a power of two */
    token_entry *entry;           /* [vocab] */
    token_pair *merge;            /* [merges], by rank */
    int32_t *slot;                /* [slots]: rank, or −1 */
    int32_t byte_id[256];
    token_known *known;
    token_scratch scratch;
};

/* A tokenizer with room for so many tokens and merges; no tokens yet. */
sn_token *token_create(int64_t vocab, int64_t merges);
void token_set(sn_token *t, int64_t id, const uint8_t *text, int64_t bytes, bool special);
/* False: the pair has a rank already. */
bool token_add_merge(sn_token *t, int32_t left, int32_t right, int32_t id);
int32_t token_rank(const sn_token *t, int32_t left, int32_t right); /* −1: none */
/* Once all is set: every byte has a token? */
sn_status token_finish(sn_token *t, const char *name);

#endif
