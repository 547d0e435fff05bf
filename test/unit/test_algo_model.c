/* SPDX-License-Identifier: Apache-2.0
 *
 * Models: fitted to times of a machine that is known, and as text. */
#include "algo/algo.h"
#include "unit/sn_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES 4000

static const int one_host[] = {0, 0, 0, 0}, pairs[] = {0, 0, 1, 1}, apart[] = {0, 1, 2, 3},
                 uneven[] = {0, 0, 0, 1, 1, 2}, eight[] = {0, 0, 0, 0, 1, 1, 1, 1};
static const sn_algo_group group[] = {{.members = 4, .host = one_host},
                                      {.members = 4, .host = pairs},
                                      {.members = 4, .host = apart},
                                      {.members = 6, .host = uneven},
                                      {.members = 8, .host = eight}};

/* A machine unlike the one that is assumed. */
static sn_algo_model machine(void)
{
    sn_algo_model m = sn_algo_model_from(NULL, NULL, 0);
    m.signal_ns = 900;
    m.call_ns = 400;
    m.copy_bytes_per_s = 3e9;
    m.reduce_bytes_per_s = 20e9;
    m.net_latency_ns = 45000;
    m.net_bytes_per_s = 1.2e8;
    m.net_message_ns = 9000;
    m.net_member_bytes_per_s = 1.1e9;
    m.members_per_core = 2;
    return m;
}

/* What a row takes there: each has its own slowness, and measurements scatter. */
static double truth(const sn_algo_row *row, const sn_algo_group *g, const sn_algo_call *c,
                    double scatter, uint64_t seed)
{
    sn_algo_model m = machine();
    sn_algo_group own = *g;
    own.model = &m;
    double of_row = 0.7 + 0.6 * sn_hash_uniform(5, (uint64_t) (row->name[0] + row->name[1]), c->op);
    double noise = 1 + scatter * (2 * sn_hash_uniform(6, seed, 0) - 1);
    return sn_algo_cost_ns(row, &own, c, &m) * of_row * noise;
}

static int measure(sn_algo_sample *s, double scatter, size_t groups)
{
    const sn_algo_row *const *rows;
    int n = sn_algo_rows(&rows), samples = 0;
    for (size_t g = 0; g < groups; g++)
        for (int r = 0; r < n; r++)
            for (sn_coll_op op = 0; op < SN_COLL_OPS; op++)
                for (int64_t count = 2; count <= 1 << 22; count *= 8) {
                    sn_algo_call c = {.op = op, .count = op == SN_BARRIER ? 0 : count};
                    if (!sn_algo_fits(rows[r], &group[g], &c) || (op == SN_BARRIER && count > 2))
                        continue;
                    assert_true(samples < SAMPLES);
                    s[samples] = (sn_algo_sample){
                        .group = &group[g], .call = c, .row = rows[r], .members_per_core = 2};
                    s[samples].ns = truth(rows[r], &group[g], &c, scatter, (uint64_t) samples);
                    samples++;
                }
    return samples;
}

/* How much longer the chosen one takes there than the best of all, at sizes between those that were
 * measured: the mean, and *ret_worst. */
static double loss(const sn_algo_model *m, double *ret_worst)
{
    const sn_algo_row *const *rows, *row;
    int n = sn_algo_rows(&rows), calls = 0;
    double sum = 0;
    *ret_worst = 0;
    for (size_t g = 0; g < SN_COUNT(group); g++)
        for (sn_coll_op op = 0; op < SN_BARRIER; op++)
            for (int64_t count = 600; count <= 1 << 22; count *= 3) {
                sn_algo_call c = {.op = op, .count = count};
                double best = INFINITY, ours;
                for (int r = 0; r < n; r++)
                    if (sn_algo_fits(rows[r], &group[g], &c) && !rows[r]->by_name)
                        best = fmin(best, truth(rows[r], &group[g], &c, 0, 0));
                assert_ok(sn_algo_choose(&group[g], &c, m, NULL, &row, NULL));
                ours = truth(row, &group[g], &c, 0, 0) / best - 1;
                *ret_worst = fmax(*ret_worst, ours);
                sum += ours;
                calls++;
            }
    return sum / calls;
}

static void test_fit(void **state)
{
    static sn_algo_sample s[SAMPLES];
    sn_algo_model assumed = sn_algo_model_from(NULL, NULL, 0), m = assumed, again = assumed;
    double error, before, after, worst, worst_before;
    assumed.members_per_core = m.members_per_core = again.members_per_core = 2;
    int n = measure(s, 0.03, SN_COUNT(group));
    before = loss(&assumed, &worst_before);
    assert_ok(sn_algo_fit(s, n, &m, &error));
    after = loss(&m, &worst);
    assert_true(error < 0.05);
    assert_true(after < 0.01 && worst < 0.10 && after < before / 3);
    assert_ok(sn_algo_fit(s, n, &again, NULL));
    assert_memory_equal(&m, &again, sizeof(m));
}

/* Without slowness of their own the prices themselves are found. */
static void test_prices(void **state)
{
    static sn_algo_sample s[SAMPLES];
    sn_algo_model m = sn_algo_model_from(NULL, NULL, 0), want = machine();
    int n = measure(s, 0, SN_COUNT(group));
    double error;
    for (int i = 0; i < n; i++) {
        sn_algo_group own = *s[i].group;
        own.model = &want;
        s[i].ns = sn_algo_cost_ns(s[i].row, &own, &s[i].call, &want);
    }
    assert_ok(sn_algo_fit(s, n, &m, &error));
    assert_true(error < 0.02);
    assert_true(fabs(m.net_latency_ns / want.net_latency_ns - 1) < 0.05);
    assert_true(fabs(m.net_bytes_per_s / want.net_bytes_per_s - 1) < 0.05);
    assert_true(fabs(m.copy_bytes_per_s / want.copy_bytes_per_s - 1) < 0.05);
    assert_true(fabs(m.signal_ns / want.signal_ns - 1) < 0.1);
}

/* One host says nothing of a network. */
static void test_untold(void **state)
{
    static sn_algo_sample s[SAMPLES];
    sn_algo_model start = sn_algo_model_from(NULL, NULL, 0), m = start;
    assert_ok(sn_algo_fit(s, measure(s, 0.03, 1), &m, NULL));
    assert_true(fabs(m.net_latency_ns / start.net_latency_ns - 1) < 1e-6);
    assert_true(fabs(m.net_bytes_per_s / start.net_bytes_per_s - 1) < 1e-6);
    assert_true(m.net_member_bytes_per_s == start.net_member_bytes_per_s);
    assert_true(m.signal_ns > 2 * start.signal_ns);
}

static void test_senseless(void **state)
{
    const sn_algo_row *const *rows;
    sn_algo_model m = sn_algo_model_from(NULL, NULL, 0), before = m;
    sn_algo_rows(&rows);
    sn_algo_sample s = {.group = &group[1], .row = rows[0], .call = {.count = 1}, .ns = 1};
    assert_int_equal(sn_algo_fit(&s, 0, &m, NULL), SN_EINVAL);
    assert_int_equal(sn_algo_fit(&s, 1, &m, NULL), SN_EINVAL); /* flat on two hosts */
    assert_non_null(strstr(sn_errmsg(), "flat does no all_reduce"));
    s.group = &group[0];
    s.ns = NAN;
    assert_int_equal(sn_algo_fit(&s, 1, &m, NULL), SN_EINVAL);
    s.ns = 0;
    assert_int_equal(sn_algo_fit(&s, 1, &m, NULL), SN_EINVAL);
    assert_memory_equal(&m, &before, sizeof(m));
    s.ns = 1;
    assert_ok(sn_algo_fit(&s, 1, &m, NULL)); /* one sample is little, not wrong */
    assert_true(m.reduce_bytes_per_s > 0 && isfinite(m.reduce_bytes_per_s));
}

/* ---- text ---- */

static void test_text(void **state)
{
    static sn_algo_sample s[SAMPLES];
    sn_algo_model m = sn_algo_model_from(NULL, NULL, 0), back;
    sn_str text = {0}, again = {0};
    assert_ok(sn_algo_fit(s, measure(s, 0.03, SN_COUNT(group)), &m, NULL));
    sn_algo_model_write(&m, &text);
    assert_ok(sn_algo_model_read(text.data, text.len, &back));
    sn_algo_model_write(&back, &again);
    assert_string_equal(text.data, again.data);
    assert_memory_equal(m.factor, back.factor, sizeof(m.factor));
    assert_true(m.net_latency_ns == back.net_latency_ns && back.fitted == 1);
    sn_str_done(&text);
    sn_str_done(&again);
}

static void refuse(const char *text, const char *says)
{
    sn_algo_model m;
    assert_int_equal(sn_algo_model_read(text, strlen(text), &m), SN_ECORRUPT);
    if (strstr(sn_errmsg(), says) == NULL)
        fail_msg("%s: %s", text, sn_errmsg());
}

#define NUMBERS                                                                                    \
    "\"format\":1,\"copy_bytes_per_s\":1e9,\"reduce_bytes_per_s\":1e9,\"net_latency_ns\":1,"       \
    "\"net_bytes_per_s\":1e9,\"net_message_ns\":1,\"members_per_core\":1,\"call_ns\":0,"           \
    "\"net_member_bytes_per_s\":0,\"fitted\":1"

static void test_refused(void **state)
{
    sn_algo_model m;
    const char *good = "{" NUMBERS ",\"signal_ns\":5,\"factor\":{}}";
    assert_ok(sn_algo_model_read(good, strlen(good), &m));
    refuse("", "no JSON");
    refuse("[1", "no JSON");
    refuse("[]", "format 1");
    refuse("{\"format\":2}", "format 1");
    refuse("{" NUMBERS "}", "signal_ns");
    refuse("{" NUMBERS ",\"signal_ns\":-1,\"factor\":{}}", "signal_ns -1");
    refuse("{" NUMBERS ",\"signal_ns\":1e30,\"factor\":{}}", "signal_ns 1e+30");
    refuse("{" NUMBERS ",\"signal_ns\":\"5\",\"factor\":{}}", "signal_ns");
    refuse("{" NUMBERS ",\"signal_ns\":5}", "without factors");
    refuse("{" NUMBERS ",\"signal_ns\":5,\"factor\":{\"rung\":{}}}", "rung");
    refuse("{" NUMBERS ",\"signal_ns\":5,\"factor\":{\"ring\":{\"sum\":[]}}}", "sum");
    refuse("{" NUMBERS ",\"signal_ns\":5,\"factor\":{\"ring\":{\"all_reduce\":[1]}}}", "6 numbers");
    refuse("{" NUMBERS ",\"signal_ns\":5,\"factor\":{\"ring\":{\"all_reduce\":[1,2,3,4,5,300]}}}",
           "factor 5");
}

/* Bytes of a good text changed, left out, doubled: read or refused with a sentence. */
static void test_damaged(void **state)
{
    sn_algo_model m = sn_algo_model_from(NULL, NULL, 0), back;
    sn_str text = {0};
    int refused = 0;
    m.factor[2][0][3] = -7;
    sn_algo_model_write(&m, &text);
    char *bad = malloc(2 * text.len);
    for (uint64_t k = 0; k < 20000; k++) {
        size_t n = text.len;
        memcpy(bad, text.data, n);
        for (uint64_t hit = 0; hit < 1 + k % 4; hit++)
            bad[sn_hash64(1, k, hit) % n] = (char) sn_hash64(2, k, hit);
        if (k % 3 == 0)
            n = sn_hash64(3, k, 0) % (n + 1);
        sn_status status = sn_algo_model_read(bad, n, &back);
        assert_true(status == SN_OK || status == SN_ECORRUPT);
        refused += status < 0;
        if (status < 0)
            assert_true(strlen(sn_errmsg()) > 10);
    }
    assert_true(refused > 10000);
    free(bad);
    sn_str_done(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fit),     cmocka_unit_test(test_prices),
        cmocka_unit_test(test_untold),  cmocka_unit_test(test_senseless),
        cmocka_unit_test(test_text),    cmocka_unit_test(test_refused),
        cmocka_unit_test(test_damaged),
    };
    return sn_test_run(tests);
}
