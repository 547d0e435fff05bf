/* SPDX-License-Identifier: Apache-2.0
 *
 * Names, sizes, the bytes themselves (golden: what was sent by one release is read by the next),
 * bytes that nobody encoded, and whether a codec pays. */
#include "unit/codec_cases.h"

#include <stdio.h>

/* ---- names ---- */

static void test_words(void **state)
{
    static const char *const same[] = {
        "none",          "bf16",      "fp8_e4m3",       "fp8_e5m2",       "int8",
        "ternary",       "int4",      "onebit",         "topk:0.01",      "topk:1",
        "topk:0.000001", "topk:0.35", "topk:0.01+int8", "topk:0.1+int4",  "powersgd:1",
        "powersgd:64",   "topk:0.05", "topk:0.999999",  "topk:0.12+int8", "topk:0.00003",
    };
    for (size_t i = 0; i < SN_COUNT(same); i++) {
        char text[32];
        sn_codec c = codec_of(same[i]), again;
        sn_codec_text(&c, text);
        assert_string_equal(text, same[i]);
        again = codec_of(text);
        assert_true(c.kind == again.kind && c.inner == again.inner && c.keep == again.keep &&
                    c.rank == again.rank);
    }
    char text[32];
    sn_codec c = codec_of("topk:1e-2+bf16");
    sn_codec_text(&c, text);
    assert_string_equal(text, "topk:0.01");
}

static void test_wrong_words(void **state)
{
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"", "no codec ''"},
        {"int9", "no codec 'int9'; there are none, bf16"},
        {"topk:0.01,int8", "fraction"},
        {"topk", "fraction"},
        {"topk:", "fraction"},
        {"topk:0", "fraction"},
        {"topk:nan", "fraction"},
        {"topk:-1", "fraction"},
        {"topk:1.01", "fraction"},
        {"topk:1e-9", "fraction"},
        {"topk:0.00000000000000000000000000000000000001", "fraction"},
        {"topk:0.01+", "bf16, int8 or int4"},
        {"topk:0.01+onebit", "bf16, int8 or int4"},
        {"int8:3", "takes nothing"},
        {"int8:", "takes nothing"},
        {"powersgd", "rank from 1 to 64"},
        {"powersgd:0", "rank from 1 to 64"},
        {"powersgd:65", "rank from 1 to 64"},
        {"powersgd:x", "rank from 1 to 64"},
    };
    for (size_t i = 0; i < SN_COUNT(wrong); i++) {
        sn_codec c = {.rank = 77};
        assert_int_equal(sn_codec_parse(wrong[i].text, &c), SN_EINVAL);
        if (!strstr(sn_errmsg(), wrong[i].says))
            fail_msg("'%s': %s", wrong[i].text, sn_errmsg());
        assert_int_equal(c.rank, 77);
    }
}

static void test_rows(void **state)
{
    const sn_codec_row *const *row;
    assert_int_equal(sn_codec_rows(&row), SN_CODEC_KINDS);
    for (int i = 0; i < SN_CODEC_KINDS; i++) {
        sn_codec c = codec_of(row[i]->form);
        assert_int_equal(c.kind, i);
        assert_int_equal(row[i]->kind, i);
        assert_int_equal(sn_codec_feedback(&c), row[i]->feedback);
        assert_true(strlen(row[i]->help) > 8);
    }
}

/* ---- sizes ---- */

static void test_bytes(void **state)
{
    static const struct {
        const char *text;
        int64_t n, bytes;
    } size[] = {
        {"none", 1000, 4000},
        {"bf16", 1000, 2000},
        {"int8", 1000, 1000 + 4 * 2},
        {"int4", 1000, 500 + 16 * 2},
        {"int4", 1, 1 + 2},
        {"fp8_e4m3", 1024, 1024 + 4 * 2},
        {"onebit", 512, 64 + 4},
        {"onebit", 513, 65 + 8},
        {"ternary", 4096, 768 + 2},
        {"ternary", 4097, 769 + 4},
        {"ternary", 11, 3 + 2},
        {"topk:0.01", 100, 1 + 1 + 2}, /* 6 low bits; 1 + 99/64 marks */
        {"topk:0.01", 1 << 20,
         7864 + 3359 + 20970}, /* k = 10,485: 6 bits, k + 16,383 marks, bf16 */
        {"topk:0.001+int4", INT64_C(1) << 33, 0},
        {"powersgd:4", 1 << 20, 2 * 1024 * 4 * 4},
        {"powersgd:4", 9, 4 * 9}, /* never more than the matrix */
    };
    for (size_t i = 0; i < SN_COUNT(size); i++) {
        sn_codec c = codec_of(size[i].text);
        if (size[i].bytes > 0)
            assert_int_equal(sn_codec_bytes(&c, size[i].n), size[i].bytes);
        assert_int_equal(sn_codec_bytes(&c, 0), 0);
        assert_true(sn_codec_bytes(&c, size[i].n) > 0);
    }
    sn_codec c = codec_of("topk:0.001+int4"); /* 8.6e9 elements: about 16 bits for each of 8.6e6 */
    int64_t bytes = sn_codec_bytes(&c, INT64_C(1) << 33);
    assert_true(bytes > 8589934 * 2 * 0.9 && bytes < 8589934 * 2 * 1.1);
}

/* ---- golden bytes, worked out by another program ---- */

static const float vector[] = {1, -2, 0.5f, 3, -0.25f, 0, 7.25f, -6.5f, 0.001f, -0.001f, 100};

static const struct {
    const char *text, *hex;
} golden[] = {
    {"none", "0000803f000000c00000003f00004040000080be000000000000e8400000d0c06f12833a6f1283ba"
             "0000c842"},
    {"bf16", "803f00c0003f404080be0000e840d0c0833a83bac842"},
    {"int8", "4a3f01fd0104000009f800007f"},
    {"int4", "6541100000007000"},
    {"fp8_e4m3", "803e48d04054b8005edd02827c"},
    {"fp8_e5m2", "003b60e45c66d8006bea38b87a"},
    {"onebit", "0cc07f419202"},
    {"ternary", "c842df8702"},
    {"topk:0.3", "0298e840d0c0c842"},
    {"topk:0.46+int8", "0b65024a3ffd0409f87f"},
    {"topk:0.3+int4", "029865417100"},
    {"topk:1", "555515803f00c0003f404080be0000e840d0c0833a83bac842"},
};

static void test_golden(void **state)
{
    enum { N = SN_COUNT(vector) };
    for (size_t i = 0; i < SN_COUNT(golden); i++) {
        sn_codec c = codec_of(golden[i].text);
        uint8_t code[64];
        char hex[129] = "";
        int64_t bytes = sn_codec_bytes(&c, N);
        sn_codec_encode(&c, vector, NULL, NULL, 0, N, code);
        for (int64_t b = 0; b < bytes; b++)
            snprintf(hex + 2 * b, 3, "%02x", code[b]);
        assert_string_equal(hex, golden[i].hex);
    }
}

/* A matrix of 5 rows and 9 columns from its third element on: rows and columns of all sizes. */
static void test_golden_matrix(void **state)
{
    enum { ROWS = 5, COLS = 9, PHASE = 2, SIZE = ROWS * COLS - PHASE };
    sn_codec c = {.kind = SN_CODEC_TERNARY, .cols = COLS, .phase = PHASE};
    uint8_t code[64];
    float x[SIZE];
    char hex[129] = "";
    for (int i = 0; i < SIZE; i++) {
        int at = i + PHASE, row = at / COLS, column = at % COLS;
        x[i] = row == 3 ? 0 : ldexpf((float) ((at * 37) % 19 - 9), row - 2 * column);
    }
    int64_t bytes = sn_codec_bytes(&c, SIZE);
    assert_int_equal(bytes, 3 + ROWS + 5 + 2 + 9);
    sn_codec_encode(&c, x, NULL, NULL, 0, SIZE, code);
    for (int64_t b = 0; b < bytes; b++)
        snprintf(hex + 2 * b, 3, "%02x", code[b]);
    assert_string_equal(hex, "1b008ad6dced00f4cfac4711010740fe9d6cdbf77dc2f701");
}

/* ---- bytes that nobody encoded ---- */

static void decode_strange(const sn_codec *c, const uint8_t *code, int64_t bytes, int64_t n)
{
    float *out = sn_alloc((size_t) n * 4 + 4), *before = sn_alloc((size_t) n * 4 + 4);
    uint8_t *exact = sn_alloc((size_t) bytes + 1); /* so that a sanitizer sees its end */
    memset(out, 0x33, (size_t) n * 4);
    memcpy(before, out, (size_t) n * 4);
    memcpy(exact, code, (size_t) bytes);
    sn_status status = sn_codec_decode(c, exact, bytes, n, true, out);
    assert_true(status == SN_OK || status == SN_ECORRUPT);
    if (status == SN_ECORRUPT)
        assert_memory_equal(out, before, (size_t) n * 4);
    free(out);
    free(before);
    free(exact);
}

static void test_hostile(void **state)
{
    static float x[2000];
    static uint8_t code[8000];
    sn_prng rng = {.seed = 3};
    for (size_t k = 0; k < SN_COUNT(vector_codecs); k++) {
        sn_codec c = codec_of(vector_codecs[k]);
        for (int turn = 0; turn < 300; turn++) {
            int64_t n = 1 + sn_prng_below(&rng, turn < 150 ? 40 : 2000);
            int64_t bytes = sn_codec_bytes(&c, n);
            for (int64_t i = 0; i < n; i++)
                x[i] = number(&rng, true);
            sn_codec_encode(&c, x, NULL, NULL, 0, n, code);
            for (int64_t hits = 1 + sn_prng_below(&rng, 4); hits > 0 && turn % 3; hits--)
                code[sn_prng_below(&rng, bytes)] ^= (uint8_t) (1 << sn_prng_below(&rng, 8));
            for (int64_t i = 0; i < bytes && turn % 3 == 0; i++)
                code[i] = (uint8_t) sn_prng_u64(&rng);
            decode_strange(&c, code, bytes, n);
        }
    }
}

static void test_wrong_length(void **state)
{
    float out[10] = {7};
    uint8_t code[64] = {0};
    for (size_t k = 0; k < SN_COUNT(vector_codecs); k++) {
        sn_codec c = codec_of(vector_codecs[k]);
        int64_t bytes = sn_codec_bytes(&c, 10);
        assert_int_equal(sn_codec_decode(&c, code, bytes - 1, 10, false, out), SN_ECORRUPT);
        assert_int_equal(sn_codec_decode(&c, code, bytes + 1, 10, false, out), SN_ECORRUPT);
        assert_non_null(strstr(sn_errmsg(), "code of 10 elements has"));
        assert_true(out[0] == 7);
        assert_ok(sn_codec_decode(&c, NULL, 0, 0, false, NULL));
    }
    sn_codec c = codec_of("powersgd:4");
    assert_int_equal(sn_codec_decode(&c, code, 64, 10, false, out), SN_ENOTSUP);
}

/* Marks that are too many, too few, out of order or beyond the end. */
static void test_hostile_places(void **state)
{
    sn_codec c = codec_of("topk:0.3"); /* of 11: k = 3, 1 low bit, 8 marks */
    static const uint8_t wrong[][2] = {
        {0x02, 0x00}, /* none */
        {0x02, 0x18}, /* two */
        {0x02, 0x9c}, /* four */
        {0x00, 0x03}, /* two only, at 0 and 0 */
        {0x00, 0x07}, /* 0, 0, 0: they do not rise */
        {0x00, 0xe0}, /* 10, 10, 10 */
        {0x04, 0x98}, /* the third is 11 */
        {0x0a, 0x98}, /* a bit behind the lower parts */
    };
    for (size_t i = 0; i < SN_COUNT(wrong); i++) {
        uint8_t code[8] = {wrong[i][0], wrong[i][1]};
        float out[11] = {5};
        if (sn_codec_decode(&c, code, 8, 11, false, out) != SN_ECORRUPT)
            fail_msg("row %zu was taken", i);
        assert_true(out[0] == 5);
    }
}

/* ---- does it pay? ---- */

static void test_seconds(void **state)
{
    sn_codec none = codec_of("none"), bf16 = codec_of("bf16"), topk = codec_of("topk:0.01");
    int64_t n = 1 << 24;
    double slow = 125e6, fast = 20e9, coding = 2e9; /* 1 Gbit/s; shared memory; one core */
    assert_true(fabs(sn_codec_seconds(&none, n, slow, coding) - 4.0 * (double) n / slow) < 1e-12);
    assert_true(fabs(sn_codec_seconds(&bf16, n, slow, coding) -
                     (2.0 * (double) n / slow + 4.0 * (double) n / coding)) < 1e-12);
    assert_true(sn_codec_seconds(&topk, n, slow, coding) <
                sn_codec_seconds(&none, n, slow, coding));
    assert_true(sn_codec_seconds(&topk, n, fast, coding) >
                sn_codec_seconds(&none, n, fast, coding));
    assert_true(isinf(sn_codec_seconds(&topk, n, fast, 0))); /* a codec that cannot be had */
    assert_true(sn_codec_seconds(&none, n, fast, 0) > 0);
    assert_true(sn_codec_seconds(&topk, 0, fast, 0) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),          cmocka_unit_test(test_wrong_words),
        cmocka_unit_test(test_rows),           cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_golden),         cmocka_unit_test(test_golden_matrix),
        cmocka_unit_test(test_hostile),        cmocka_unit_test(test_wrong_length),
        cmocka_unit_test(test_hostile_places), cmocka_unit_test(test_seconds),
    };
    return sn_test_run(tests);
}
