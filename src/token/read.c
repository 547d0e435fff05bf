/* SPDX-License-Identifier: Apache-2.0
 *
 * read — tokenizer.json, and vocab.json with merges.txt.
 *
 *   vocab   {"!": 0, …, "Ġthe": 262}   names: a printable character for each byte
 *   merges  "Ġ t" (or ["Ġ", "t"])      by rank; what they become is looked up by its name
 *   added   {"id": 50256, "content": "<|endoftext|>", "special": true}   as it stands
 *
 * A tokenizer whose other parts (normalizer, pre-tokenizer) would cut text differently from what is
 * done here is refused: ids that differ silently would be worse. */
#include "token/parts.h"

#include <jansson.h>
#include <string.h>

typedef struct source {
    const char *name;
    const json_t *vocab; /* name → id */
    const json_t *added; /* list, NULL: none */
    sn_token *token;
} source;

static sn_status odd(const source *s, const char *what)
{
    return sn_fail(SN_ECORRUPT, "%s is not a byte-pair tokenizer: %s", s->name, what);
}

static int64_t id_of(const json_t *v)
{
    json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
    return id >= 0 && id < SN_TOKEN_VOCAB_MAX ? (int64_t) id : -1;
}

/* ---- tokens ---- */

static sn_status size_vocab(const source *s, int64_t *ret)
{
    const char *name;
    json_t *value, *dict = (json_t *) s->vocab;
    int64_t most = -1;
    size_t i;
    json_object_foreach(dict, name, value)
    {
        if (id_of(value) < 0)
            return odd(s, "an id in vocab is not a number from 0 to 16777215");
        most = SN_MAX(most, id_of(value));
    }
    json_array_foreach(s->added, i, value)
    {
        if (id_of(json_object_get(value, "id")) < 0 ||
            !json_is_string(json_object_get(value, "content")))
            return odd(s, "an added token has no id or content");
        most = SN_MAX(most, id_of(json_object_get(value, "id")));
    }
    if (most > 4 * (int64_t) (json_object_size(s->vocab) + json_array_size(s->added)) + 256)
        return odd(s, "most of its ids have no token");
    *ret = most + 1;
    return SN_OK;
}

static bool is_special_name(const char *name)
{
    return !strcmp(name, SN_TOKEN_END);
}

static sn_status set_vocab(const source *s, sn_arena *arena)
{
    const char *name;
    json_t *value, *dict = (json_t *) s->vocab;
    json_object_foreach(dict, name, value)
    {
        size_t n = strlen(name);
        uint8_t *bytes = sn_arena_alloc(arena, n + 1);
        int64_t count = token_name_bytes(name, n, bytes), id = id_of(value);
        bool special = count < 0 || is_special_name(name);
        if (s->token->entry[id].bytes)
            return odd(s, "two tokens have one id");
        if (n == 0)
            return odd(s, "a token is empty");
        if (special) /* no stand-ins: as it stands */
            token_set(s->token, id, (const uint8_t *) name, (int64_t) n, true);
        else
            token_set(s->token, id, bytes, count, false);
    }
    return SN_OK;
}

/* An added token may stand in the vocabulary too; then under the same id. */
static sn_status set_added(const source *s)
{
    size_t i;
    json_t *value, *seen = json_object();
    sn_status status = SN_OK;
    json_array_foreach(s->added, i, value)
    {
        const json_t *content = json_object_get(value, "content");
        const char *text = json_string_value(content);
        size_t n = json_string_length(content);
        int64_t id = id_of(json_object_get(value, "id"));
        const json_t *known = json_object_get(s->vocab, text);
        if (n == 0 || strlen(text) != n)
            status = odd(s, "an added token is empty or holds a NUL");
        else if (known ? id_of(known) != id : s->token->entry[id].bytes != 0)
            status = odd(s, "an added token has another one's id or two");
        else if (json_object_get(seen, text) || json_object_set_new(seen, text, json_true()))
            status = odd(s, "an added token stands there twice");
        if (status < 0)
            break;
        token_set(s->token, id, (const uint8_t *) text, (int64_t) n, true);
    }
    json_decref(seen);
    return status;
}

/* ---- merges ---- */

static sn_status add_merge(source *s, sn_str *both, const char *a, size_t an, const char *b,
                           size_t bn)
{
    sn_str_clear(both);
    sn_str_add_n(both, a, an);
    int64_t left = id_of(json_object_get(s->vocab, sn_str_get(both)));
    sn_str_add_n(both, b, bn);
    int64_t id = id_of(json_object_get(s->vocab, sn_str_get(both)));
    int64_t right = id_of(json_object_get(s->vocab, sn_str_get(both) + an));
    if (left < 0 || right < 0 || id < 0)
        return sn_fail(SN_ECORRUPT, "%s: merge %lld, '%.40s', is of tokens that are not there",
                       s->name, (long long) s->token->merges, sn_str_get(both));
    const token_entry *e = s->token->entry;
    if (e[left].special || e[right].special || e[id].special)
        return odd(s, "a merge has a special token");
    if (!token_add_merge(s->token, (int32_t) left, (int32_t) right, (int32_t) id))
        return sn_fail(SN_ECORRUPT, "%s: merge %lld, '%.40s', stands there twice", s->name,
                       (long long) s->token->merges, sn_str_get(both));
    return SN_OK;
}

static sn_status add_merge_text(source *s, sn_str *both, const char *line, size_t n)
{
    const char *space = memchr(line, ' ', n);
    size_t a = space ? (size_t) (space - line) : 0;
    if (!space || a == 0 || a + 1 >= n || memchr(space + 1, ' ', n - a - 1) || memchr(line, 0, n))
        return sn_fail(SN_ECORRUPT, "%s: merge %lld is not two tokens with a space between",
                       s->name, (long long) s->token->merges);
    return add_merge(s, both, line, a, space + 1, n - a - 1);
}

static sn_status add_merges_list(source *s, const json_t *list, sn_str *both)
{
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item)
    {
        const json_t *a = json_array_get(item, 0), *b = json_array_get(item, 1);
        if (json_is_string(item))
            SN_TRY(add_merge_text(s, both, json_string_value(item), json_string_length(item)));
        else if (json_is_string(a) && json_is_string(b) && json_array_size(item) == 2)
            SN_TRY(add_merge(s, both, json_string_value(a), json_string_length(a),
                             json_string_value(b), json_string_length(b)));
        else
            return odd(s, "a merge is neither a text nor a pair of texts");
    }
    return SN_OK;
}

static size_t line_length(const char *text, size_t bytes)
{
    const char *end = memchr(text, '\n', bytes);
    return end ? (size_t) (end - text) : bytes;
}

static sn_status add_merges_text(source *s, const char *text, size_t bytes, sn_str *both)
{
    for (size_t at = 0; at < bytes;) {
        size_t n = line_length(text + at, bytes - at), used = n + 1;
        if (n && text[at + n - 1] == '\r')
            n--;
        if (n && !(at == 0 && n > 8 && !memcmp(text, "#version", 8)))
            SN_TRY(add_merge_text(s, both, text + at, n));
        at += used;
    }
    return SN_OK;
}

static size_t lines(const char *text, size_t bytes)
{
    size_t n = 1;
    for (size_t i = 0; i < bytes; i++)
        n += text[i] == '\n';
    return n;
}

/* ---- both forms ---- */

/* merges: a list, or NULL: the text. */
static sn_status build(source *s, const json_t *list, const char *text, size_t bytes)
{
    int64_t vocab = 0;
    if (!json_is_object(s->vocab))
        return odd(s, "there is no vocab");
    if (!json_is_array(list) && !text)
        return odd(s, "there are no merges");
    SN_TRY(size_vocab(s, &vocab));
    s->token = token_create(vocab, (int64_t) (text ? lines(text, bytes) : json_array_size(list)));
    sn_arena *arena = sn_arena_create();
    sn_str both = {0};
    sn_status status = set_vocab(s, arena);
    if (status >= 0)
        status = set_added(s);
    if (status >= 0)
        status = text ? add_merges_text(s, text, bytes, &both) : add_merges_list(s, list, &both);
    if (status >= 0)
        status = token_finish(s->token, s->name);
    sn_str_done(&both);
    sn_arena_free(arena);
    return status;
}

static json_t *load(const char *json, size_t bytes, json_error_t *error)
{
    return json_loadb(json, bytes, JSON_REJECT_DUPLICATES, error);
}

static sn_status not_json(const char *name, const json_error_t *error)
{
    return sn_fail(SN_ECORRUPT, "%s:%d: not JSON: %s", name, error->line, error->text);
}

sn_status sn_token_read_pair(const char *vocab, size_t vocab_bytes, const char *merges,
                             size_t merges_bytes, const char *name, sn_token **ret)
{
    json_error_t error;
    json_t *root = load(vocab, vocab_bytes, &error);
    if (!root)
        return not_json(name, &error);
    source s = {.name = name, .vocab = root};
    sn_status status = build(&s, NULL, merges, merges_bytes);
    json_decref(root);
    if (status < 0)
        sn_token_free(s.token);
    else
        *ret = s.token;
    return status;
}

static const char *type_of(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    return type ? type : "?";
}

static bool blank(const json_t *text)
{
    return json_string_length(text) == 0; /* also of what is no string */
}

/* What would make other ids than these rules. */
static sn_status check_kind(const char *name, const json_t *root)
{
    const json_t *model = json_object_get(root, "model"),
                 *cut = json_object_get(root, "pre_tokenizer");
    const json_t *norm = json_object_get(root, "normalizer");
    if (!json_is_object(model))
        return sn_fail(SN_ECORRUPT, "%s is not a tokenizer: it has no model", name);
    if (json_object_get(model, "type") && strcmp(type_of(model), "BPE") != 0)
        return sn_fail(SN_ENOTSUP, "%s is a %.40s tokenizer; byte-level BPE is read", name,
                       type_of(model));
    if (norm && !json_is_null(norm))
        return sn_fail(SN_ENOTSUP,
                       "%s changes text before it cuts it (normalizer %.40s); only "
                       "tokenizers that keep every byte are read",
                       name, type_of(norm));
    if (strcmp(type_of(cut), "ByteLevel") != 0)
        return sn_fail(SN_ENOTSUP, "%s cuts words by %.40s; GPT-2's ByteLevel is read", name,
                       type_of(cut));
    if (json_is_true(json_object_get(cut, "add_prefix_space")) ||
        json_is_false(json_object_get(cut, "use_regex")))
        return sn_fail(SN_ENOTSUP,
                       "%s cuts words otherwise than GPT-2 (add_prefix_space or no "
                       "use_regex)",
                       name);
    if (json_is_true(json_object_get(model, "byte_fallback")) ||
        json_is_true(json_object_get(model, "ignore_merges")) ||
        !blank(json_object_get(model, "end_of_word_suffix")) ||
        !blank(json_object_get(model, "continuing_subword_prefix")))
        return sn_fail(SN_ENOTSUP,
                       "%s merges otherwise than GPT-2 (byte_fallback, ignore_merges "
                       "or parts added to words)",
                       name);
    return SN_OK;
}

sn_status sn_token_read(const char *json, size_t bytes, const char *name, sn_token **ret)
{
    json_error_t error;
    json_t *root = load(json, bytes, &error);
    if (!root)
        return not_json(name, &error);
    const json_t *model = json_object_get(root, "model");
    source s = {.name = name,
                .vocab = json_object_get(model, "vocab"),
                .added = json_object_get(root, "added_tokens")};
    sn_status status = check_kind(name, root);
    if (status >= 0)
        status = build(&s, json_object_get(model, "merges"), NULL, 0);
    json_decref(root);
    if (status < 0)
        sn_token_free(s.token);
    else
        *ret = s.token;
    return status;
}
