/* SPDX-License-Identifier: Apache-2.0
 * The report: well-formed whatever it is given, nothing from outside is markup, no "nan" is drawn.
 * With an argument it writes a sample report there, to be looked at. */
#include "mon/html.h"
#include "unit/sn_test.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

enum { ROWS = 1000, CARDS = 64, DEPTH = 64 };

/* ---- a strict little reader of markup ---- */

static void bad(const char *page, const char *at, const char *what)
{
    fail_msg("%s near: %.120s", what, at - page > 40 ? at - 40 : at);
}

static bool is_void_drawing(const char *value)
{
    return strstr(value, "nan") || strstr(value, "inf") || strstr(value, "NaN");
}

/* `name="value"` …, up to '>' or '/>'. */
static const char *attributes(const char *page, const char *p, bool *ret_closed)
{
    char value[4096];
    while (isspace((unsigned char) *p)) {
        p++;
        size_t n = strcspn(p, "= >/");
        if (!n || p[n] != '=' || p[n + 1] != '"')
            bad(page, p, "an attribute without a quoted value");
        bool drawing = n <= 2 || !strncmp(p, "width", 5) || !strncmp(p, "height", 6) ||
                       !strncmp(p, "points", 6) || !strncmp(p, "style", 5);
        p += n + 2;
        n = strcspn(p, "\"<");
        if (p[n] != '"')
            bad(page, p, "an attribute without its end");
        snprintf(value, sizeof value, "%.*s", (int) SN_MIN(n, sizeof value - 1), p);
        if (drawing && is_void_drawing(value))
            bad(page, p, "a coordinate that is no number");
        p += n + 1;
    }
    *ret_closed = *p == '/';
    p += *ret_closed;
    if (*p != '>')
        bad(page, p, "a tag without its end");
    return p + 1;
}

static void check_entity(const char *page, const char *p)
{
    static const char *const known[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    for (size_t i = 0; i < SN_COUNT(known); i++)
        if (!strncmp(p, known[i], strlen(known[i])))
            return;
    bad(page, p, "a bare ampersand");
}

static void check_page(const char *page)
{
    char stack[DEPTH][24];
    int depth = 0;
    assert_int_equal(strncmp(page, "<!DOCTYPE html>\n", 16), 0);
    for (const char *p = page + 16; *p;) {
        if (*p == '&')
            check_entity(page, p);
        if (*p != '<') {
            if ((unsigned char) *p < 0x20 && *p != '\n' && *p != '\t')
                bad(page, p, "a control character");
            p++;
            continue;
        }
        bool closing = p[1] == '/', closed = false;
        p += 1 + closing;
        size_t n = strspn(p, "abcdefghijklmnopqrstuvwxyzP0123456789");
        char name[24];
        snprintf(name, sizeof name, "%.*s", (int) n, p);
        if (!n)
            bad(page, p, "a bare '<'");
        p = attributes(page, p + n, &closed);
        if (closing) {
            if (!depth || strcmp(stack[depth - 1], name))
                bad(page, p, "a tag that closes another");
            depth--;
        } else if (!closed) {
            assert_true(depth < DEPTH);
            strcpy(stack[depth++], name);
        }
    }
    assert_int_equal(depth, 0);
}

/* ---- reports ---- */

static sn_step_metrics row[ROWS];
static sn_report_card card[CARDS];
static char names[CARDS][16], hosts[CARDS][8];

static const char *const event[] = {
    "step 214: rank 3 on h0 was killed by signal 9 during all_reduce #812 in group data[s1,t1]; "
    "restarted from the checkpoint of step 200"};

static sn_report typical(int n_hosts, int per_host, int tensor, int pipeline, int64_t rows)
{
    int cards = n_hosts * per_host;
    sn_prng p = {.seed = 3};
    for (int64_t i = 0; i < rows; i++) {
        double ms = 180 + 20 * sn_prng_uniform(&p);
        double loss = 1.58 + 2.5 * exp((double) -i / 40) + 0.1 * sn_prng_uniform(&p);
        row[i] = (sn_step_metrics){.step = i + 1,
                                   .tokens = 8192,
                                   .loss = loss,
                                   .val_loss = i % 50 == 49 ? loss + 0.03 : NAN,
                                   .step_ns = (int64_t) (ms * 1e6),
                                   .flops = 2.6e10,
                                   .peak_flops = 3.6e11,
                                   .bytes_host = 9000000,
                                   .bytes_net = 4600000};
        static const double share[SN_TIME_KINDS] = {0.62, 0.11, 0.13, 0.08, 0.03};
        for (int k = 0; k < SN_TIME_KINDS; k++)
            row[i].time_ns[k] = (int64_t) (ms * 1e6 * share[k]);
    }
    for (int i = 0; i < cards; i++) {
        snprintf(hosts[i], sizeof hosts[i], "h%d", i / per_host);
        snprintf(names[i], sizeof names[i], "h%d/c%d", i / per_host, i % per_host);
        card[i] = (sn_report_card){names[i],   hosts[i],
                                   i,          i / tensor % pipeline,
                                   i % tensor, i / (tensor * pipeline),
                                   0.6,        0.1,
                                   0.12,       190000000};
    }
    return (sn_report){.title = "gpt-english",
                       .run_id = "20261130-190215-7f3a",
                       .job_yaml = "parallelism: {tensor: 2, pipeline: 2, data: 2}\nsteps: 600\n",
                       .sample_text = "And the LORD said unto Moses",
                       .plan_text = "the data axis crosses the hosts",
                       .cards = cards,
                       .hosts = n_hosts,
                       .tensor = tensor,
                       .pipeline = pipeline,
                       .data = cards / tensor / pipeline,
                       .card = card,
                       .row = row,
                       .rows = rows,
                       .final_loss = 1.601,
                       .baseline_loss = 1.69,
                       .baseline_name = "interpolated 4-gram",
                       .link_latency_ns = n_hosts > 1 ? 21e3 : 0,
                       .link_bytes_per_s = n_hosts > 1 ? 5.2e9 : 0,
                       .parameters = 1843200,
                       .tokens = 8192 * rows,
                       .wall_ns = 118 * SN_SEC,
                       .peak_flops = 3.6e11,
                       .event = event,
                       .events = 1};
}

static char *page_of(const sn_report *r)
{
    static sn_str page;
    sn_str_clear(&page);
    sn_report_html(r, &page);
    check_page(page.data);
    return page.data;
}

static int count(const char *page, const char *what)
{
    int n = 0;
    for (const char *p = page; (p = strstr(p, what)); p++)
        n++;
    return n;
}

static void test_typical(void **state)
{
    sn_report r = typical(2, 4, 2, 2, 600);
    char *page = page_of(&r);
    assert_non_null(strstr(page, "Beats the interpolated 4-gram by 0.089"));
    assert_int_equal(count(page, "class=\"tile\""), 8);
    assert_int_equal(count(page, "class=\"host\""), 2);
    assert_int_equal(count(page, "class=\"frame\""), 4); /* a tensor pair each */
    assert_int_equal(count(page, "class=\"arrow\""), 2); /* one per replica */
    assert_int_equal(count(page, "class=\"point\""), 12);
    assert_int_equal(count(page, "class=\"card\""), 8);
    assert_non_null(strstr(page, "21.0 µs"));
    assert_null(strstr(page, "http:")); /* nothing from elsewhere */
    assert_null(strstr(page, "https:"));
    assert_null(strstr(page, "src="));
    r.final_loss = 1.8;
    assert_non_null(strstr(page_of(&r), "Behind the interpolated 4-gram by 0.110"));
}

static void test_sizes(void **state)
{
    static const int shape[][4] = {{1, 1, 1, 1},  {1, 8, 8, 1},   {2, 1, 1, 2},
                                   {3, 5, 1, 5},  {8, 8, 2, 4},   {8, 8, 8, 8},
                                   {1, 64, 1, 1}, {64, 1, 1, 64}, {2, 32, 4, 16}};
    static const int64_t rows[] = {0, 1, 2, 30, ROWS};
    for (size_t i = 0; i < SN_COUNT(shape); i++)
        for (size_t k = 0; k < SN_COUNT(rows); k++) {
            sn_report r = typical(shape[i][0], shape[i][1], shape[i][2], shape[i][3], rows[k]);
            char *page = page_of(&r);
            assert_int_equal(count(page, "class=\"tile\""), r.cards);
            assert_true(strlen(page) < 600000);
        }
}

static void test_degenerate(void **state)
{
    sn_report none = {.final_loss = NAN, .baseline_loss = NAN};
    char *page = page_of(&none);
    assert_non_null(strstr(page, "was not measured"));
    assert_non_null(strstr(page, "no step was completed"));
    static const double odd[] = {NAN, INFINITY, -INFINITY, 0, -1, 1e300, -1e300, 5e-324};
    for (size_t i = 0; i < SN_COUNT(odd); i++)
        for (int all = 0; all < 2; all++) {
            sn_report r = typical(2, 4, 2, 2, 100);
            for (int k = 0; k < 100; k += all ? 1 : 7) {
                row[k].loss = row[k].val_loss = row[k].flops = row[k].peak_flops = odd[i];
                row[k].step_ns = all ? 0 : INT64_MAX;
                row[k].time_ns[k % SN_TIME_KINDS] = all ? INT64_MIN : INT64_MAX;
            }
            for (int k = 0; k < 8; k++)
                card[k].compute_share = card[k].collective_share = card[k].pipeline_share = odd[i];
            r.final_loss = r.baseline_loss = odd[i];
            r.link_latency_ns = r.link_bytes_per_s = r.peak_flops = odd[i];
            page_of(&r);
        }
    sn_report r = typical(1, 1, 1, 1, 3); /* steps that do not move */
    row[0].step = row[1].step = row[2].step = INT64_MAX;
    row[0].loss = row[1].loss = row[2].loss = 2;
    page_of(&r);
    card[0] = (sn_report_card){.stage = -7, .tensor = INT32_MAX, .data = INT32_MIN};
    page_of(&r);
    card[0].stage = INT32_MAX;
    page_of(&r);
}

static void test_hostile_texts(void **state)
{
    static const char evil[] = "<script>alert(1)</script>\"'&<!--]]>\x01\x1b[2J\xff\xc0\x80\xed\xa0"
                               "\x80\xef\xbf\xbf</pre></style>%s%n";
    sn_report r = typical(2, 2, 2, 1, 5);
    const char *events[] = {evil, "", NULL};
    r.title = r.run_id = r.job_yaml = r.sample_text = r.plan_text = r.baseline_name = evil;
    r.event = events;
    r.events = 3;
    for (int i = 0; i < 4; i++)
        card[i].name = card[i].host = evil;
    char *page = page_of(&r);
    assert_null(strstr(page, "<script>alert"));
    assert_int_equal(count(page, "<script>"), 1);
    assert_int_equal(count(page, "</style>"), 1);
    assert_null(strchr(page, '\x1b'));
    assert_null(strchr(page, '\xff'));
    assert_non_null(strstr(page, "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;"));
}

static void test_texts(void **state)
{
    sn_str s = {0};
    mon_html_text_n(&s, "läyer権重", 3);
    assert_string_equal(s.data, "läy…");
    sn_str_clear(&s);
    mon_html_text(&s, "\xf0\x9f\x98\x80\xf0\x9f");
    assert_string_equal(s.data, "\xf0\x9f\x98\x80\xef\xbf\xbd\xef\xbf\xbd");
    sn_str_clear(&s);
    static const double px[] = {1.25, -0.04, 12, -3.5, NAN, INFINITY, -1e9};
    for (size_t i = 0; i < SN_COUNT(px); i++) {
        mon_px(&s, px[i]);
        sn_str_add(&s, " ");
    }
    assert_string_equal(s.data, "1.3 0 12 -3.5 0 0 -1000000 ");
    sn_str_clear(&s);
    mon_html_int(&s, -1234567);
    assert_string_equal(s.data, "-1\xe2\x80\x89"
                                "234\xe2\x80\x89"
                                "567");
    sn_str_done(&s);
    assert_true(mon_tick(10, 5) == 2 && mon_tick(0, 5) == 1 && mon_tick(NAN, 5) == 1);
}

static void test_write(void **state)
{
    char dir[] = "/tmp/sn-report-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/report.html", dir);
    sn_report r = typical(1, 2, 2, 1, 20);
    assert_ok(sn_report_write(&r, path));
    assert_int_equal(access(path, R_OK), 0);
    unlink(path);
    rmdir(dir);
    assert_true(sn_report_write(&r, path) < 0);
    assert_non_null(strstr(sn_errmsg(), "report.html"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_typical),    cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_degenerate), cmocka_unit_test(test_hostile_texts),
        cmocka_unit_test(test_texts),      cmocka_unit_test(test_write),
    };
    if (argc > 1) {
        sn_report r = typical(2, 4, 2, 2, 600);
        return sn_report_write(&r, argv[1]) < 0;
    }
    return sn_test_run(tests);
}
