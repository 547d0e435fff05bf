/* SPDX-License-Identifier: Apache-2.0
 * Byte-pair encoding against models that do everything the slow way; files there and back; what a
 * file may not hold. */
#include "token/parts.h"

#include <stdlib.h>
#include <string.h>

#include "unit/sn_test.h"

static const char english[] =
    "In the beginning God created the heaven and the earth. And the earth was without form, and "
    "void; and darkness was upon the face of the deep. And the Spirit of God moved upon the face "
    "of the waters. It's 40 days and 40 nights, they'll say; 123456 of them didn't.\n\n  And God "
    "said, Let there be light: and there was light. \xc3\x84\xc3\x96\xc3\x9c\xc3\xa4\xc3\xb6 "
    "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e \xf0\x9f\x98\x80\xf0\x9f\x98\x80 \xff\xfe\x80.";

typedef struct list {
    int32_t id[200000];
    int64_t n;
} list;

static list got, want;

static void collect(void *ctx, const int32_t *id, int64_t count)
{
    list *l = ctx;
    assert_true(l->n + count <= (int64_t) SN_COUNT(l->id));
    memcpy(l->id + l->n, id, (size_t) count * sizeof *id);
    l->n += count;
}

static void assert_says(const char *words)
{
    if (!strstr(sn_errmsg(), words))
        fail_msg("\"%s\" does not say \"%s\"", sn_errmsg(), words);
}

/* ---- words ---- */

static void test_words(void **state)
{
    static const char *const cut[][12] = {
        /* text, then its words */
        {"Hello world", "Hello", " world"},
        {"it's they'll I'd 'tis", "it", "'s", " they", "'ll", " I", "'d", " '", "tis"},
        {"a  b", "a", " ", " b"},
        {"a\n\n b\n", "a", "\n\n", " b", "\n"},
        {"a \n", "a", " \n"},
        {"x=1234;", "x", "=", "1234", ";"},
        {"  ", "  "},
        {" ", " "},
        {" !? 7", " !?", " 7"},
        {"'''s", "'''", "s"},
        {"na\xc3\xafve caf\xc3\xa9", "na\xc3\xafve", " caf\xc3\xa9"},
        {"\xc2\xb2\xc2\xbd \xd9\xa3", "\xc2\xb2\xc2\xbd", " \xd9\xa3"}, /* superscript, digits */
        {"a\xc2\xa0\xe3\x80\x80"
         "b",
         "a", "\xc2\xa0", "\xe3\x80\x80", "b"},
        {"a\xff\xfe"
         "b",
         "a", "\xff\xfe", "b"},
        {"\xe6\x97", "\xe6\x97"}, /* cut off within a character */
    };
    for (size_t c = 0; c < SN_COUNT(cut); c++) {
        const uint8_t *p = (const uint8_t *) cut[c][0];
        int64_t left = (int64_t) strlen(cut[c][0]);
        int w = 1;
        for (; left > 0; w++) {
            int64_t n = token_word(p, left);
            if (!cut[c][w] || n != (int64_t) strlen(cut[c][w]) ||
                memcmp(p, cut[c][w], (size_t) n) != 0)
                fail_msg("case %zu, word %d: '%.*s'", c, w, (int) n, (const char *) p);
            p += n;
            left -= n;
        }
        assert_null(cut[c][w]);
    }
}

static void test_letters(void **state)
{
    assert_int_equal(token_letter(' '), 0x120); /* Ġ */
    assert_int_equal(token_letter('\n'), 0x10a);
    assert_int_equal(token_letter('A'), 'A');
    for (int b = 0; b < 256; b++) {
        assert_int_equal(token_letter_byte(token_letter((uint8_t) b)), b);
        if (b)
            assert_true(token_letter(token_byte_in_order(b)) >
                        token_letter(token_byte_in_order(b - 1)));
    }
    assert_int_equal(token_letter_byte(0x20), -1);
    assert_int_equal(token_letter_byte(0x3000), -1);
}

/* ---- the slow way ---- */

/* Merge what has the lowest rank, leftmost first, looking at everything each time. */
static void naive_word(const sn_token *t, const uint8_t *word, int64_t n, list *out)
{
    int32_t *id = out->id + out->n;
    for (int64_t i = 0; i < n; i++)
        id[i] = t->byte_id[word[i]];
    for (;;) {
        int32_t best = -1;
        int64_t at = 0;
        for (int64_t i = 0; i + 1 < n; i++)
            for (int32_t r = 0; r < t->merges && (best < 0 || r < best); r++)
                if (t->merge[r].left == id[i] && t->merge[r].right == id[i + 1]) {
                    best = r;
                    at = i;
                }
        if (best < 0)
            break;
        id[at] = t->merge[best].id;
        n--;
        memmove(id + at + 1, id + at + 2, (size_t) (n - at - 1) * sizeof *id);
    }
    out->n += n;
}

static void naive_encode(const sn_token *t, const uint8_t *text, int64_t bytes, list *out)
{
    out->n = 0;
    for (int64_t at = 0; at < bytes;) {
        int64_t n = token_word(text + at, bytes - at);
        naive_word(t, text + at, n, out);
        at += n;
    }
}

static void check_text(sn_token *t, const uint8_t *text, int64_t bytes, bool naive)
{
    for (int turn = 0; turn < 2; turn++) { /* the second time words are known */
        got.n = 0;
        sn_token_encode(t, text, bytes, collect, &got);
        int64_t at = 0;
        for (int64_t i = 0; i < got.n; i++) {
            int64_t n;
            const uint8_t *piece = sn_token_text(t, got.id[i], &n);
            assert_false(sn_token_special(t, got.id[i]));
            assert_true(n > 0 && at + n <= bytes);
            assert_memory_equal(piece, text + at, (size_t) n);
            at += n;
        }
        assert_int_equal(at, bytes);
    }
    if (!naive)
        return;
    naive_encode(t, text, bytes, &want);
    assert_int_equal(got.n, want.n);
    assert_memory_equal(got.id, want.id, (size_t) want.n * sizeof *want.id);
}

static sn_token *trained(int64_t vocab)
{
    sn_token *t;
    assert_ok(sn_token_train((const uint8_t *) english, sizeof english - 1, vocab, &t));
    return t;
}

static void test_encode(void **state)
{
    sn_token *t = trained(340);
    check_text(t, (const uint8_t *) english, sizeof english - 1, true);
    got.n = 0;
    sn_token_encode(t, (const uint8_t *) " the", 4, collect, &got);
    assert_int_equal(got.n, 1);
    sn_prng p = {.seed = 7};
    uint8_t text[600];
    for (int turn = 0; turn < 300; turn++) { /* bytes of any kind, and pieces of English */
        int64_t n = 1 + sn_prng_below(&p, sizeof text);
        for (int64_t i = 0; i < n; i++)
            text[i] = (uint8_t) (turn % 3 == 0   ? sn_prng_below(&p, 256)
                                 : turn % 3 == 1 ? english[sn_prng_below(&p, 300)]
                                                 : "ehtn "[sn_prng_below(&p, 5)]);
        check_text(t, text, n, n < 200);
    }
    sn_token_free(t);
}

static void test_long_words(void **state)
{
    sn_token *t = trained(400);
    enum { BYTES = 150000 };
    uint8_t *text = malloc(BYTES);
    sn_prng p = {.seed = 9};
    for (int i = 0; i < BYTES; i++)
        text[i] = (uint8_t) "ethandof"[sn_prng_below(&p, 8)];
    for (int64_t n = 20; n < 300; n += 7)
        check_text(t, text + n, n, true);
    check_text(t, text, BYTES, false); /* in time that is not its square */
    memset(text, ' ', BYTES);
    check_text(t, text, BYTES, false);
    free(text);
    sn_token_free(t);
}

/* ---- training, counting all pairs anew for each merge ---- */

typedef struct slow {
    int32_t id[2048];
    int n, end[512]; /* of each word */
    int words;
} slow;

static bool slow_pair(const slow *s, int at)
{
    for (int w = 0; w < s->words; w++)
        if (s->end[w] == at + 1)
            return false;
    return at + 1 < s->n;
}

static int slow_count(const slow *s, int32_t a, int32_t b)
{
    int n = 0;
    for (int i = 0; i + 1 < s->n; i++)
        n += s->id[i] == a && s->id[i + 1] == b && slow_pair(s, i);
    return n;
}

static token_pair slow_best(const slow *s)
{
    token_pair best = {-1, -1, 0};
    for (int i = 0; i + 1 < s->n; i++) {
        int32_t a = s->id[i], b = s->id[i + 1];
        int count = slow_pair(s, i) ? slow_count(s, a, b) : 0;
        bool smaller = a < best.left || (a == best.left && b < best.right);
        if (count > best.id || (count && count == best.id && smaller))
            best = (token_pair){a, b, count};
    }
    return best;
}

static void slow_merge(slow *s, const token_pair *m)
{
    for (int i = 0; i + 1 < s->n; i++) {
        if (s->id[i] != m->left || s->id[i + 1] != m->right || !slow_pair(s, i))
            continue;
        s->id[i] = m->id;
        memmove(s->id + i + 1, s->id + i + 2, (size_t) (s->n - i - 2) * sizeof *s->id);
        s->n--;
        for (int w = 0; w < s->words; w++)
            s->end[w] -= s->end[w] > i;
    }
}

static void check_training(const uint8_t *text, int64_t bytes, int64_t vocab)
{
    static slow s;
    sn_token *t;
    assert_ok(sn_token_train(text, bytes, vocab, &t));
    s = (slow){.n = (int) bytes};
    for (int64_t at = 0; at < bytes;) {
        at += token_word(text + at, bytes - at);
        s.end[s.words++] = (int) at;
    }
    for (int i = 0; i < s.n; i++)
        s.id[i] = t->byte_id[text[i]];
    for (int64_t r = 0; r < t->merges; r++) {
        token_pair best = slow_best(&s);
        assert_int_equal(t->merge[r].left, best.left);
        assert_int_equal(t->merge[r].right, best.right);
        slow_merge(&s, &t->merge[r]);
    }
    if (sn_token_vocab(t) < vocab) /* ended early: nothing is left to merge */
        assert_int_equal(slow_best(&s).id, 0);
    sn_token_free(t);
}

static void test_train(void **state)
{
    check_training((const uint8_t *) english, sizeof english - 1, 400);
    check_training((const uint8_t *) english, sizeof english - 1, 5000);
    sn_prng p = {.seed = 3};
    uint8_t text[400];
    for (int turn = 0; turn < 20; turn++) {
        int64_t n = 1 + sn_prng_below(&p, sizeof text);
        for (int64_t i = 0; i < n; i++) /* many ways to one token, runs of one letter */
            text[i] = (uint8_t) "aab "[sn_prng_below(&p, 4)];
        check_training(text, n, 257 + sn_prng_below(&p, 60));
    }
    sn_token *t;
    assert_int_equal(sn_token_train(text, 10, 256, &t), SN_EINVAL);
    assert_says("257");
    assert_ok(sn_token_train(text, 0, 300, &t)); /* nothing to learn from */
    assert_int_equal(sn_token_vocab(t), 257);
    assert_true(sn_token_special(t, 256));
    sn_token_free(t);
}

/* ---- files ---- */

static void test_files(void **state)
{
    sn_token *t = trained(400), *again;
    sn_str json = {0}, vocab = {0}, merges = {0}, twice = {0};
    sn_token_write(t, &json);
    assert_ok(sn_token_read(sn_str_get(&json), json.len, "tokenizer.json", &again));
    assert_true(sn_token_fingerprint(again) == sn_token_fingerprint(t));
    sn_token_write(again, &twice);
    assert_string_equal(sn_str_get(&twice), sn_str_get(&json));
    check_text(again, (const uint8_t *) english, sizeof english - 1, true);
    sn_token_free(again);

    sn_token_write_vocab(t, &vocab);
    sn_token_write_merges(t, &merges);
    assert_ok(sn_token_read_pair(sn_str_get(&vocab), vocab.len, sn_str_get(&merges), merges.len,
                                 "vocab.json", &again));
    assert_true(sn_token_fingerprint(again) == sn_token_fingerprint(t));
    sn_token_free(again);
    sn_token *other = trained(401);
    assert_true(sn_token_fingerprint(other) != sn_token_fingerprint(t));
    sn_token_free(other);
    sn_str_done(&json);
    sn_str_done(&twice);
    sn_str_done(&vocab);
    sn_str_done(&merges);
    sn_token_free(t);
}

static void refuse_pair(const char *vocab, const char *merges, const char *why)
{
    sn_token *t;
    if (sn_token_read_pair(vocab, strlen(vocab), merges, strlen(merges), "v", &t) >= 0)
        fail_msg("taken: %.60s, %.60s", vocab, merges);
    assert_says(why);
}

static void refuse(const char *json, const char *why)
{
    sn_token *t;
    if (sn_token_read(json, strlen(json), "t.json", &t) >= 0)
        fail_msg("taken: %.60s", json);
    assert_says(why);
}

static void test_refused(void **state)
{
    refuse("[1", "t.json:1");
    refuse("[]", "has no model");
    refuse("{\"model\": {\"type\": \"WordPiece\"}}", "WordPiece");
    refuse("{\"model\": {\"type\": \"BPE\"}, \"normalizer\": {\"type\": \"NFC\"}}", "NFC");
    refuse("{\"model\": {\"type\": \"BPE\"}, \"pre_tokenizer\": {\"type\": \"Metaspace\"}}",
           "Metaspace");
#define HEAD "{\"pre_tokenizer\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", "
    refuse(HEAD "\"byte_fallback\": true}}", "byte_fallback");
    refuse(HEAD "\"vocab\": 7}}", "no vocab");
    refuse(HEAD "\"vocab\": {}}}", "no merges");
    refuse(HEAD "\"vocab\": {\"a\": -1}, \"merges\": []}}", "id in vocab");
    refuse(HEAD "\"vocab\": {\"a\": 16777216}, \"merges\": []}}", "id in vocab");
    refuse(HEAD "\"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []}}", "two tokens");
    refuse(HEAD "\"vocab\": {\"a\": 0, \"b\": 10000000}, \"merges\": []}}", "no token");
    refuse(HEAD "\"vocab\": {\"a\": 0}, \"merges\": [7]}}", "neither");
    refuse(HEAD "\"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": [\"a b\"]}}", "not there");
    refuse(HEAD "\"vocab\": {\"a\": 0}, \"merges\": []}}", "no token for the byte");
#undef HEAD
#define HEAD "{\"pre_tokenizer\": {\"type\": \"ByteLevel\"}, \"added_tokens\": ["
#define TAIL "], \"model\": {\"vocab\": {\"a\": 0, \"x\": 1}, \"merges\": []}}"
    refuse(HEAD "{\"id\": 7}" TAIL, "no id or content");
    refuse(HEAD "{\"id\": 7, \"content\": \"x\"}" TAIL, "another one's id");
    refuse(HEAD "{\"id\": 1, \"content\": \"z\"}" TAIL, "another one's id");
    refuse(HEAD "{\"id\": 7, \"content\": \"z\"}, {\"id\": 8, \"content\": \"z\"}" TAIL, "twice");
#undef HEAD
#undef TAIL
    refuse_pair("{", "", "v:1");
    refuse_pair("{\"a\": 0, \"a\": 1}", "", "v:1");
    refuse_pair("{\"a\": 0}", "ab\n", "space between");
    refuse_pair("{\"a\": 0}", "a a a\n", "space between");
    refuse_pair("{\"a\": 0, \"aa\": 1}", "#version: 0.2\na a\r\na a\n", "twice");
    refuse_pair("{\"a\": 0, \"\": 1}", "", "empty");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),   cmocka_unit_test(test_letters),
        cmocka_unit_test(test_encode),  cmocka_unit_test(test_long_words),
        cmocka_unit_test(test_train),   cmocka_unit_test(test_files),
        cmocka_unit_test(test_refused),
    };
    return sn_test_run(tests);
}
