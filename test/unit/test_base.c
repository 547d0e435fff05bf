/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "unit/sn_test.h"

static void test_status(void **state)
{
    assert_int_equal(sn_fail(SN_EPEER, "rank %d", 3), SN_EPEER);
    sn_fail_in(SN_EPEER, "step %d", 7);
    assert_string_equal(sn_errmsg(), "step 7: rank 3");
    sn_fail(SN_EIO, "%s again", sn_errmsg());
    assert_string_equal(sn_errmsg(), "step 7: rank 3 again");
    assert_string_equal(sn_status_name(SN_ETIME), "SN_ETIME");
}

static void test_arena(void **state)
{
    sn_arena *a = sn_arena_create();
    for (int i = 0; i < 1000; i++) {
        char *p = sn_arena_alloc(a, (size_t) i * 7);
        for (int k = 0; k < i * 7; k++)
            assert_int_equal(p[k], 0);
        memset(p, 0xff, (size_t) i * 7);
    }
    sn_arena_reset(a);
    char *p = sn_arena_alloc(a, 4096);
    for (int k = 0; k < 4096; k++)
        assert_int_equal(p[k], 0);
    assert_string_equal(sn_arena_printf(a, "%s-%d", "x", 5), "x-5");
    sn_arena_free(a);
}

static void test_numbers(void **state)
{
    int64_t i = 77;
    double d;
    uint64_t b;
    static const char *const bad[] = {"",    "010", "1_000", "1:30", "5x", "9223372036854775808",
                                      "5.5", " 5",  "0x10",  "-"};
    for (size_t k = 0; k < SN_COUNT(bad); k++)
        assert_false(sn_str_to_int(bad[k], &i));
    assert_int_equal(i, 77);
    assert_true(sn_str_to_int("-8", &i) && i == -8);
    assert_true(sn_str_to_int("0", &i) && i == 0);
    static const char *const good[] = {"1e-4", "1E-4", "+1e-4", ".1e-3", "0.0001", "1.e-4"};
    for (size_t k = 0; k < SN_COUNT(good); k++)
        assert_true(sn_str_to_float(good[k], &d) && d == 1e-4);
    static const char *const odd[] = {".nan", "nan", "inf", "1e999", "5x", "", "e5", "0x1p3"};
    for (size_t k = 0; k < SN_COUNT(odd); k++)
        assert_false(sn_str_to_float(odd[k], &d));
    assert_true(sn_str_to_bytes("8M", &b) && b == 8 << 20);
    assert_true(sn_str_to_bytes("8MiB", &b) && b == 8 << 20);
    assert_true(sn_str_to_bytes("1.5GB", &b) && b == 1500000000);
    assert_true(sn_str_to_bytes("512", &b) && b == 512);
    assert_false(sn_str_to_bytes("8Q", &b));
    assert_false(sn_str_to_bytes("M", &b));
}

static void test_nearest(void **state)
{
    static const char *const words[] = {"batch_size", "steps", "gradient_accumulation"};
    assert_string_equal(sn_str_nearest("gradiant_acumulation", words, 3), "gradient_accumulation");
    assert_string_equal(sn_str_nearest("step", words, 3), "steps");
    assert_null(sn_str_nearest("colour", words, 3));
}

static void test_prng(void **state)
{
    double sum = 0, square = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        double x = sn_hash_normal(1, 2, i);
        sum += x;
        square += x * x;
    }
    assert_true(sum / 20000 < 0.03 && sum / 20000 > -0.03);
    assert_true(square / 20000 > 0.96 && square / 20000 < 1.04);
    sn_prng p = {.seed = 5};
    for (int i = 0; i < 1000; i++) {
        int64_t v = sn_prng_below(&p, 7);
        assert_true(v >= 0 && v < 7);
    }
}

static void test_bf16(void **state)
{
    assert_int_equal(sn_f32_to_bf16(1.0f), 0x3f80);
    assert_int_equal(sn_f32_to_bf16(1.00390625f), 0x3f80); /* a tie goes to even */
    assert_int_equal(sn_f32_to_bf16(1.01171875f), 0x3f82);
    assert_true(sn_bf16_to_f32(sn_f32_to_bf16(__builtin_nanf(""))) !=
                sn_bf16_to_f32(sn_f32_to_bf16(__builtin_nanf(""))));
    for (uint32_t h = 0; h < 0x7f80; h++)
        assert_int_equal(sn_f32_to_bf16(sn_bf16_to_f32((uint16_t) h)), h);
}

static void test_fmt(void **state)
{
    char out[32];
    assert_string_equal(sn_fmt_bytes(out, 1536), "1.50 KiB");
    assert_string_equal(sn_fmt_ns(out, 1500), "1.50 us");
    assert_string_equal(sn_fmt_ns(out, 130e9), "2m 10s");
    assert_string_equal(sn_fmt_count(out, 1234567), "1.23 M");
    char shape[96];
    assert_string_equal(sn_shape_text(shape, SN_SHAPE(2, 3)), "[2,3]");
    sn_shape long_one = SN_SHAPE(INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN);
    assert_int_equal(strlen(sn_shape_text(shape, long_one)), 95);
}

static void test_yaml_merge(void **state)
{
    static const char text[] = "base: &b {x: 1, y: 2}\nown: {<<: *b, x: 3}\n";
    sn_yaml_doc doc = {.file = "t", .arena = sn_arena_create()};
    assert_ok(sn_yaml_read(&doc, text, sizeof text - 1));
    const sn_yaml_node *own = sn_yaml_get(doc.root, "own");
    assert_int_equal(own->items, 2);
    assert_string_equal(sn_yaml_get(own, "x")->text, "3"); /* its own key wins, before or after */
    assert_string_equal(sn_yaml_get(own, "y")->text, "2");
    sn_arena_free(doc.arena);
}

static void test_utf8(void **state)
{
    static const struct {
        const char *in, *out;
    } row[] = {
        {"plain", "plain"},
        {"\xc3\xa9\xe6\x97\xa5\xf0\x9f\x98\x80", "\xc3\xa9\xe6\x97\xa5\xf0\x9f\x98\x80"},
        {"a\x80z", "a\xef\xbf\xbdz"},
        {"\xc3", "\xef\xbf\xbd"},
        {"\xe0\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\x1b[1m\n", "\xef\xbf\xbd[1m\n"},
    };
    for (size_t i = 0; i < SN_COUNT(row); i++) {
        sn_str s = {0};
        sn_str_add_utf8(&s, row[i].in, strlen(row[i].in));
        assert_string_equal(sn_str_get(&s), row[i].out);
        sn_str_done(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status),     cmocka_unit_test(test_arena),
        cmocka_unit_test(test_numbers),    cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_prng),       cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_yaml_merge), cmocka_unit_test(test_fmt),
        cmocka_unit_test(test_utf8),
    };
    return sn_test_run(tests);
}
