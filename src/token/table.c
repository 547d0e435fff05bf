/* SPDX-License-Identifier: Apache-2.0
 *
 * table — the tokens, the merges by rank, and a hash table from a pair of ids to its rank. */
#include "token/parts.h"

#include <stdlib.h>
#include <string.h>

sn_token *token_create(int64_t vocab, int64_t merges)
{
    sn_token *t = sn_alloc(sizeof *t);
    t->arena = sn_arena_create();
    t->vocab = vocab;
    t->entry = SN_NEW_N(t->arena, token_entry, vocab);
    t->merge = SN_NEW_N(t->arena, token_pair, SN_MAX(1, merges));
    for (t->slots = 16; t->slots < 2 * merges; t->slots *= 2)
        continue;
    t->slot = SN_NEW_N(t->arena, int32_t, t->slots);
    memset(t->slot, 0xff, (size_t) t->slots * sizeof *t->slot);
    t->known = SN_NEW_N(t->arena, token_known, TOKEN_KNOWN);
    return t;
}

void sn_token_free(sn_token *t)
{
    if (!t)
        return;
    free(t->scratch.id);
    free(t->scratch.heap);
    sn_arena_free(t->arena);
    free(t);
}

void token_set(sn_token *t, int64_t id, const uint8_t *text, int64_t bytes, bool special)
{
    t->entry[id] = (token_entry){.text = sn_arena_copy(t->arena, text, (size_t) bytes),
                                 .bytes = (int32_t) bytes,
                                 .special = special};
}

static int64_t home(const sn_token *t, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t) (uint32_t) left << 32 | (uint32_t) right;
    key *= 0x9e3779b97f4a7c15u;
    return (int64_t) ((key ^ key >> 32) & (uint64_t) (t->slots - 1));
}

static int64_t slot_of(const sn_token *t, int32_t left, int32_t right)
{
    int64_t s = home(t, left, right);
    while (t->slot[s] >= 0 &&
           (t->merge[t->slot[s]].left != left || t->merge[t->slot[s]].right != right))
        s = (s + 1) & (t->slots - 1);
    return s;
}

int32_t token_rank(const sn_token *t, int32_t left, int32_t right)
{
    return t->slot[slot_of(t, left, right)];
}

bool token_add_merge(sn_token *t, int32_t left, int32_t right, int32_t id)
{
    int64_t s = slot_of(t, left, right);
    if (t->slot[s] >= 0)
        return false;
    t->merge[t->merges] = (token_pair){left, right, id};
    t->slot[s] = (int32_t) t->merges++;
    return true;
}

sn_status token_finish(sn_token *t, const char *name)
{
    memset(t->byte_id, 0xff, sizeof t->byte_id);
    for (int64_t id = t->vocab - 1; id >= 0; id--)
        if (t->entry[id].bytes == 1 && !t->entry[id].special)
            t->byte_id[t->entry[id].text[0]] = (int32_t) id;
    for (int b = 0; b < 256; b++)
        if (t->byte_id[b] < 0)
            return sn_fail(SN_ENOTSUP,
                           "%s has no token for the byte 0x%02x: only byte-level vocabularies, "
                           "which can write any text, are read",
                           name, b);
    return SN_OK;
}

int64_t sn_token_vocab(const sn_token *t)
{
    return t->vocab;
}

const uint8_t *sn_token_text(const sn_token *t, int64_t id, int64_t *ret_bytes)
{
    bool there = id >= 0 && id < t->vocab;
    *ret_bytes = there ? t->entry[id].bytes : 0;
    return there && t->entry[id].bytes ? t->entry[id].text : (const uint8_t *) "";
}

bool sn_token_special(const sn_token *t, int64_t id)
{
    return id >= 0 && id < t->vocab && t->entry[id].special;
}

uint64_t sn_token_fingerprint(const sn_token *t)
{
    uint64_t h = sn_hash64((uint64_t) t->vocab, (uint64_t) t->merges, 0);
    for (int64_t id = 0; id < t->vocab; id++)
        h = sn_hash64(h, sn_hash_bytes(t->entry[id].text, (size_t) t->entry[id].bytes),
                      (uint64_t) t->entry[id].special);
    for (int64_t r = 0; r < t->merges; r++)
        h = sn_hash64(h, (uint64_t) t->merge[r].left << 32 | (uint32_t) t->merge[r].right,
                      (uint64_t) t->merge[r].id);
    return h;
}

sn_token *sn_token_bytes(void)
{
    sn_token *t = token_create(256, 0);
    for (int b = 0; b < 256; b++) {
        uint8_t byte = (uint8_t) b;
        token_set(t, b, &byte, 1, false);
    }
    token_finish(t, "bytes"); /* they are all there */
    return t;
}
