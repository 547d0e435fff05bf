/* SPDX-License-Identifier: Apache-2.0
 * The safetensors reader: files that are unusual and right, files that are wrong. */
#include "ckpt/ckpt.h"
#include "unit/sn_test.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

/* ---- test/golden/safetensors, wherever the test is started ---- */

static const char *golden(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%.*stest/golden/safetensors/%s",
             (int) (strstr(__FILE__, "test/unit/") - __FILE__), __FILE__, name);
    if (access(path, R_OK))
        snprintf(path, sizeof path, "test/golden/safetensors/%s", name);
    return path;
}

static sn_ckpt *open_good(const char *name, int tensors)
{
    sn_ckpt *c;
    assert_ok(sn_ckpt_open_file(golden(name), &c));
    assert_int_equal(sn_ckpt_tensors(c), tensors);
    return c;
}

static sn_piece whole(const char *name, sn_dtype dtype, sn_shape shape, void *data)
{
    sn_piece p = {.name = name, .dtype = dtype, .shape = shape, .data = data};
    memcpy(p.extent, shape.dim, sizeof p.extent);
    p.flat_count = sn_shape_count(shape);
    return p;
}

static void check_mixed(const char *name)
{
    sn_ckpt *c = open_good(name, 3);
    float a[6];
    uint16_t b[4];
    int64_t i[2];
    sn_piece p[] = {whole("c", SN_I64, SN_SHAPE(2), i), whole("a", SN_F32, SN_SHAPE(2, 3), a),
                    whole("b", SN_BF16, SN_SHAPE(4), b)};
    assert_ok(sn_ckpt_load(c, p, 3));
    for (int k = 0; k < 6; k++)
        assert_true(a[k] == (float) k);
    assert_int_equal(b[0], 0x3f80);
    assert_int_equal(b[1], 0xc000);
    assert_true(i[0] == 7 && i[1] == -7);
    sn_ckpt_close(c);
}

static void test_good_mixed(void **state)
{
    check_mixed("s01_good_mixed.safetensors");
    check_mixed("s02_good_header_not_in_offset_order.safetensors");
}

static void test_good_unusual(void **state)
{
    float scalar, v[2], y[2], e;
    uint8_t x[3];
    sn_shape none = {0};
    sn_ckpt *c = open_good("s03_good_zero_size_and_scalar.safetensors", 4);
    sn_piece p[] = {whole("empty", SN_F32, SN_SHAPE(0, 4), NULL),
                    whole("empty2", SN_F32, SN_SHAPE(3, 0), NULL),
                    whole("scalar", SN_F32, none, &scalar), whole("v", SN_F32, SN_SHAPE(2), v)};
    assert_ok(sn_ckpt_load(c, p, 4));
    assert_true(scalar == 2.5f && v[0] == 1 && v[1] == 2);
    sn_ckpt_close(c);

    c = open_good("s04_good_unaligned_data.safetensors", 2);
    sn_piece q[] = {whole("x", SN_U8, SN_SHAPE(3), x), whole("y", SN_F32, SN_SHAPE(2), y)};
    assert_ok(sn_ckpt_load(c, q, 2));
    assert_true(x[0] == 1 && x[1] == 2 && x[2] == 3 && y[0] == 1.5f && y[1] == -1.5f);
    sn_ckpt_close(c);

    c = open_good("s05_good_unicode_and_escaped_names.safetensors", 2);
    sn_piece r[] = {whole("läyer.0.权重", SN_F32, SN_SHAPE(1), &e),
                    whole("tab\tquote\"", SN_F32, SN_SHAPE(1), &e)};
    assert_ok(sn_ckpt_load(c, r, 2));
    sn_ckpt_close(c);
    sn_ckpt_close(open_good("s06_good_no_tensors.safetensors", 0));
}

/* The same data read through the mapping, where "y" is at an odd address. */
static void test_unaligned_in_memory(void **state)
{
    char *file;
    size_t bytes;
    sn_safetensor *t;
    int n;
    float y[2];
    assert_ok(sn_file_read(golden("s04_good_unaligned_data.safetensors"), 1 << 20, &file, &bytes));
    sn_arena *arena = sn_arena_create();
    assert_ok(sn_safetensors_parse(file, bytes, arena, &t, &n));
    assert_int_equal(n, 2);
    assert_string_equal(t[1].name, "y");
    assert_int_equal(t[1].bytes, 8);
    memcpy(y, t[1].data, sizeof y);
    assert_true(y[0] == 1.5f && y[1] == -1.5f);
    sn_arena_free(arena);
    free(file);
}

static void refused(const char *name, const char *word, const char *other)
{
    sn_ckpt *c = NULL;
    assert_int_equal(sn_ckpt_open_file(golden(name), &c),
                     strstr(name, "b20") ? SN_ENOTFOUND : SN_ECORRUPT);
    assert_null(c);
    if (!strstr(sn_errmsg(), word) || !strstr(sn_errmsg(), other) || !strstr(sn_errmsg(), name))
        fail_msg("%s: %s", name, sn_errmsg());
}

static void test_bad_golden(void **state)
{
    refused("b11_duplicate_key.safetensors", "\"a\"", "twice");
    refused("b17b_empty_file.safetensors", "0 bytes", "no safetensors file");
    refused("b20_index_missing_shard.index.json", "wte.weight", "s08_model-00003-of-00003");
    refused("b21_index_tensor_in_other_shard.index.json", "wte.weight", "s08_model-00002-of-00002");
    refused("b22_index_path_traversal.index.json", "wte.weight", "passwd");
    refused("b23_index_omits_tensor.index.json", "h.0.mlp.c_fc.weight", "s08_model-00001-of-00002");
    refused("b24_index_names_absent_tensor.index.json", "h.9.extra.weight",
            "s08_model-00001-of-00002");
}

static void test_index(void **state)
{
    sn_ckpt *c = open_good("s08_good.index.json", 30);
    float w[44], one;
    sn_piece p = whole("wte.weight", SN_F32, SN_SHAPE(11, 4), w);
    assert_ok(sn_ckpt_load(c, &p, 1));
    for (int i = 0; i < 44; i++)
        assert_true(isfinite(w[i]));
    p = whole("wte.wieght", SN_F32, SN_SHAPE(11, 4), w);
    assert_int_equal(sn_ckpt_load(c, &p, 1), SN_ENOTFOUND);
    assert_non_null(strstr(sn_errmsg(), "\"wte.weight\""));
    p = whole("a", SN_F32, SN_SHAPE(1), &one); /* in a stray file beside the shards */
    assert_int_equal(sn_ckpt_load(c, &p, 1), SN_ENOTFOUND);
    sn_ckpt_close(c);
}

static void test_nan_is_named(void **state)
{
    sn_ckpt *c;
    assert_ok(sn_ckpt_open_file(golden("b28_gpt2_nan_weight.safetensors"), &c));
    int named = 0;
    for (int i = 0; i < sn_ckpt_tensors(c); i++) {
        sn_dtype dtype;
        sn_shape shape;
        const char *name = sn_ckpt_tensor(c, i, &dtype, &shape);
        double room[1024];
        sn_piece p = whole(name, dtype, shape, room);
        assert_ok(sn_ckpt_load(c, &p, 1));
        if (sn_ckpt_check_finite(&p, 1) < 0) {
            named++;
            assert_non_null(strstr(sn_errmsg(), name));
        }
    }
    assert_int_equal(named, 1);
    sn_ckpt_close(c);
    static const struct {
        sn_dtype dtype;
        uint64_t bits;
        bool finite;
    } one[] = {{SN_F16, 0x7bff, true},           {SN_F16, 0xfc00, false},
               {SN_BF16, 0xff7f, true},          {SN_BF16, 0x7f80, false},
               {SN_F32, 0x7f800000, false},      {SN_F32, 1, true},
               {SN_F64, 0x7ff8ull << 48, false}, {SN_I64, ~0ull, true}};
    for (size_t i = 0; i < SN_COUNT(one); i++) {
        uint64_t bits = one[i].bits;
        sn_piece p = whole("t", one[i].dtype, SN_SHAPE(1), &bits);
        assert_int_equal(sn_ckpt_check_finite(&p, 1) == SN_OK, one[i].finite);
    }
}

/* ---- headers by hand ---- */

static sn_status parse(const char *json, size_t data_bytes, int *ret_count)
{
    size_t n = strlen(json), bytes = 8 + n + data_bytes;
    unsigned char *file = calloc(1, bytes); /* exact, so that a sanitizer sees one byte too many */
    for (int i = 0; i < 8; i++)
        file[i] = (unsigned char) ((uint64_t) n >> (8 * i));
    memcpy(file + 8, json, n);
    sn_arena *arena = sn_arena_create();
    sn_safetensor *t;
    sn_status status = sn_safetensors_parse(file, bytes, arena, &t, ret_count);
    sn_arena_free(arena);
    free(file);
    return status;
}

#define T(name, dtype, shape, from, to)                                                            \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to   \
    "]}"

static void test_headers(void **state)
{
    static const struct {
        const char *json;
        size_t data;
        int count; /* or a status */
        const char *word;
    } row[] = {
        {"{}", 0, 0, ""},
        {"{}   ", 0, 0, ""},
        {"{" T("a", "F32", "[1]", 0, 4) "}\n", 4, 1, ""},
        {"{" T("a", "F32", "[1]", 4, 8) "," T("b", "F32", "[1]", 0, 4) "}", 8, 2, ""},
        {"{\"a\":{\"data_offsets\":[0,4],\"later\":[{\"x\":[null,-1.5e3,\"\\n\",true]}],"
         "\"dtype\":\"F32\",\"shape\":[1]}}",
         4, 1, ""},
        {"{\"\\ud83d\\ude00\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1, 1, ""},
        {"{" T("a", "F32", "[9223372036854775807,0]", 0, 0) "}", 0, SN_ECORRUPT, "\"a\""},
        {"", 0, SN_ECORRUPT, "'{'"},
        {" {}", 0, SN_ECORRUPT, "'{'"},
        {"[]", 0, SN_ECORRUPT, "'{'"},
        {"{} x", 0, SN_ECORRUPT, "after"},
        {"{\"a\":1}", 0, SN_ECORRUPT, "\"a\""},
        {"{\"a\":{}}", 0, SN_ECORRUPT, "\"a\""},
        {"{" T("a", "F32", "[1]", 0, 4) ",}", 4, SN_ECORRUPT, ""},
        {"{" T("a", "F32", "[1]", 0, 4), 4, SN_ECORRUPT, ""},
        {"{" T("a", "F32", "[1]", 0, 5) "}", 5, SN_ECORRUPT, "\"a\""},
        {"{" T("a", "F32", "[1]", 0, 4) "}", 3, SN_ECORRUPT, "\"a\""},
        {"{" T("a", "F32", "[1]", 0, 4) "}", 5, SN_ECORRUPT, "after the last tensor a"},
        {"{" T("a", "F32", "[1]", 1, 5) "}", 5, SN_ECORRUPT, "hole"},
        {"{" T("a", "F32", "[1]", 4, 0) "}", 4, SN_ECORRUPT, "\"a\""},
        {"{" T("a", "F32", "[1]", 0, 4) "," T("b", "F32", "[1]", 2, 6) "}", 6, SN_ECORRUPT,
         "\"b\""},
        {"{" T("a", "F32", "[1]", 0, 4) "," T("b", "F32", "[1]", 6, 10) "}", 10, SN_ECORRUPT,
         "hole"},
        {"{" T("a", "F32", "[1]", 0, 4) "," T("\\u0061", "F32", "[1]", 4, 8) "}", 8, SN_ECORRUPT,
         "twice"},
        {"{" T("a", "F32", "[4611686018427387904,4]", 0, 0) "}", 0, SN_ECORRUPT, "\"a\""},
        {"{" T("a", "F32", "[-1]", 0, 4) "}", 4, SN_ECORRUPT, "\"a\""},
        {"{" T("a", "F32", "[1.0]", 0, 4) "}", 4, SN_ECORRUPT, "\"a\""},
        {"{" T("a", "F32", "[01]", 0, 4) "}", 4, SN_ECORRUPT, "leading zero"},
        {"{" T("a", "F32", "[99999999999999999999]", 0, 4) "}", 4, SN_ECORRUPT, "63 bits"},
        {"{" T("a", "F8_E5M2", "[1]", 0, 1) "}", 1, SN_ENOTSUP, "F8_E5M2"},
        {"{" T("a", "U8", "[1,1,1,1,1,1,1,1,1]", 0, 1) "}", 1, SN_ENOTSUP, "\"a\""},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1,2]}}", 1, SN_ECORRUPT,
         "\"a\""},
        {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1,
         SN_ECORRUPT, "twice"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[]}}", 0, SN_ECORRUPT, "data_offsets is missing"},
        {"{\"__metadata__\":{\"x\":1}}", 0, SN_ECORRUPT, ""},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, SN_ECORRUPT, "twice"},
        {"{\"\\ud83d\":{}}", 0, SN_ECORRUPT, "escape"},
        {"{\"\\u0000\":{}}", 0, SN_ECORRUPT, "escape"},
        {"{\"\\x\":{}}", 0, SN_ECORRUPT, "escape"},
        {"{\"\xff\":{}}", 0, SN_ECORRUPT, "UTF-8"},
        {"{\"\xc0\x80\":{}}", 0, SN_ECORRUPT, "UTF-8"},
        {"{\"a\n\":{}}", 0, SN_ECORRUPT, "control"},
        {"{\"\\u12\"", 0, SN_ECORRUPT, ""},
        {"{\"abc\\\"", 0, SN_ECORRUPT, ""},
        {"{\"abc\\", 0, SN_ECORRUPT, ""},
    };
    for (size_t i = 0; i < SN_COUNT(row); i++) {
        int n = -100;
        sn_status status = parse(row[i].json, row[i].data, &n);
        if (row[i].count >= 0 ? status != SN_OK || n != row[i].count : status != row[i].count)
            fail_msg("%s: %s %s", row[i].json, sn_status_name(status), sn_errmsg());
        if (status < 0 && !strstr(sn_errmsg(), row[i].word))
            fail_msg("%s: %s", row[i].json, sn_errmsg());
    }
}

static void test_deep_and_long(void **state)
{
    int n;
    char *deep = malloc(400000);
    memset(deep, '[', 399999);
    deep[399999] = 0;
    memcpy(deep, "{\"a\":{\"x\":", 10);
    assert_int_equal(parse(deep, 0, &n), SN_ECORRUPT);
    free(deep);
    unsigned char first[16] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    sn_safetensor *t;
    sn_arena *arena = sn_arena_create();
    assert_int_equal(sn_safetensors_parse(first, 16, arena, &t, &n), SN_ECORRUPT);
    memcpy(first, "\x01\xe1\xf5\x05\0\0\0\0", 8); /* 100 000 001 */
    assert_int_equal(sn_safetensors_parse(first, 16, arena, &t, &n), SN_ECORRUPT);
    assert_non_null(strstr(sn_errmsg(), "100000001"));
    for (uint64_t bytes = 0; bytes < 8; bytes++)
        assert_int_equal(sn_safetensors_parse(first, bytes, arena, &t, &n), SN_ECORRUPT);
    sn_arena_free(arena);
}

/* A header past the limit in a file that really is that long. */
static void test_header_past_limit(void **state)
{
    char path[] = "/tmp/sn-st-XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(pwrite(fd, "\x01\xe1\xf5\x05\0\0\0\0{", 9, 0), 9);
    assert_int_equal(ftruncate(fd, 110000000), 0);
    close(fd);
    sn_ckpt *c;
    assert_int_equal(sn_ckpt_open_file(path, &c), SN_ECORRUPT);
    assert_non_null(strstr(sn_errmsg(), "100000000 are allowed"));
    assert_non_null(strstr(sn_errmsg(), path));
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_mixed),
        cmocka_unit_test(test_good_unusual),
        cmocka_unit_test(test_bad_golden),
        cmocka_unit_test(test_unaligned_in_memory),
        cmocka_unit_test(test_index),
        cmocka_unit_test(test_nan_is_named),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_deep_and_long),
        cmocka_unit_test(test_header_past_limit),
    };
    return sn_test_run(tests);
}
