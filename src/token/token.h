/* SPDX-License-Identifier: Apache-2.0
 *
 * token — text as numbers: byte-pair encoding as GPT-2 does it, trained, read, written, applied.
 *
 *   bytes ─ words ("In", " the", " beginning", …) ─ byte symbols ─ merges, lowest rank first ─ ids
 *
 * Invariants
 *  1. Decoding what was encoded gives the same bytes, whatever they are: each of the 256 bytes is a
 *     token, and invalid UTF-8 is a word like any other.
 *  2. Training is a function of (text, vocab): equal counts are decided by the pair's ids.
 *  3. Written files are read back equal, and mean the same to other readers of the GPT-2 form
 *     (tokenizer.json; vocab.json with merges.txt).
 *  4. Whatever a file holds, reading it ends in a tokenizer that keeps 1, or in a sentence.
 * Pure. A tokenizer belongs to one thread at a time (encoding fills its table of known words).
 * Sources: Sennrich, Haddow & Birch, "Neural machine translation of rare words with subword units",
 * ACL 2016; Radford et al., "Language models are unsupervised multitask learners", 2019. */
#ifndef SN_TOKEN_TOKEN_H
#define SN_TOKEN_TOKEN_H

#include "base/base.h"

typedef struct sn_token sn_token;

#define SN_TOKEN_VOCAB_MAX (1 << 24)
#define SN_TOKEN_END "<|endoftext|>"

/* 256 bytes, vocab − 257 merges (fewer when the text gives no more pairs), and the special token
 * SN_TOKEN_END, which is never encoded from text. SN_EINVAL: vocab below 257 or too large. Words
 * longer than 256 bytes are not learnt from. */
sn_status sn_token_train(const uint8_t *text, int64_t bytes, int64_t vocab, sn_token **ret);
/* The text of a tokenizer.json; `name` is for sentences. SN_ENOTSUP: a tokenizer of another kind
 * than byte-level BPE; SN_ECORRUPT: not a tokenizer. */
sn_status sn_token_read(const char *json, size_t bytes, const char *name, sn_token **ret);
/* The texts of vocab.json and merges.txt. */
sn_status sn_token_read_pair(const char *vocab, size_t vocab_bytes, const char *merges,
                             size_t merges_bytes, const char *name, sn_token **ret);
/* A byte is its own id; nothing is merged, nothing is special. */
sn_token *sn_token_bytes(void);
void sn_token_free(sn_token *t);

void sn_token_write(const sn_token *t, sn_str *out);        /* tokenizer.json */
void sn_token_write_vocab(const sn_token *t, sn_str *out);  /* vocab.json */
void sn_token_write_merges(const sn_token *t, sn_str *out); /* merges.txt */

int64_t sn_token_vocab(const sn_token *t);
/* Equal for equal tokenizers. */
uint64_t sn_token_fingerprint(const sn_token *t);

/* Hand the ids of `text` to `emit`, in pieces, in order. A word is cut after 64 KiB. */
typedef void (*sn_token_emit)(void *ctx, const int32_t *id, int64_t count);
void sn_token_encode(sn_token *t, const uint8_t *text, int64_t bytes, sn_token_emit emit,
                     void *ctx);
/* The bytes of a token; none for an id that is not there. */
const uint8_t *sn_token_text(const sn_token *t, int64_t id, int64_t *ret_bytes);
/* Is it one that text never becomes (end of text and the like)? */
bool sn_token_special(const sn_token *t, int64_t id);

#endif
