/* SPDX-License-Identifier: Apache-2.0
 *
 * Any text as tokenizer.json, or as vocab.json and merges.txt (with a NUL between): refused with a
 * sentence, or a tokenizer that gives back every byte and is written and read back as the same. */
#include "token/token.h"

#include <stddef.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

typedef struct check {
    const sn_token *token;
    const uint8_t *text;
    int64_t at, bytes;
} check;

static void follow(void *ctx, const int32_t *id, int64_t count)
{
    check *c = ctx;
    for (int64_t i = 0; i < count; i++) {
        int64_t n;
        const uint8_t *piece = sn_token_text(c->token, id[i], &n);
        SN_ASSERT(n > 0 && c->at + n <= c->bytes && !memcmp(piece, c->text + c->at, (size_t) n));
        c->at += n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *text = (const char *) data, *half = bytes ? memchr(text, 0, bytes) : NULL;
    sn_token *token, *again;
    size_t first = half ? (size_t) (half - text) : bytes;
    sn_status status =
        half ? sn_token_read_pair(text, first, half + 1, bytes - first - 1, "fuzz", &token)
             : sn_token_read(text, bytes, "fuzz", &token);
    if (status < 0) {
        SN_ASSERT(*sn_errmsg());
        return 0;
    }
    check c = {.token = token, .text = data, .bytes = (int64_t) bytes};
    sn_token_encode(token, data, c.bytes, follow, &c);
    SN_ASSERT(c.at == c.bytes);
    sn_str out = {0};
    sn_token_write(token, &out);
    SN_ASSERT(sn_token_read(sn_str_get(&out), out.len, "written", &again) >= 0);
    SN_ASSERT(sn_token_vocab(again) <= sn_token_vocab(token));
    sn_token_free(again);
    sn_str_done(&out);
    sn_token_free(token);
    return 0;
}
