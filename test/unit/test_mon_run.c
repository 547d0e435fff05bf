/* SPDX-License-Identifier: Apache-2.0
 * Metrics on disk, the progress line. */
#include "mon/line.h"
#include "mon/number.h"
#include "unit/sn_test.h"

#include <fcntl.h>
#include <jansson.h>
#include <locale.h>
#include <math.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];

static int setup(void **state)
{
    strcpy(dir, "/tmp/sn-mon-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    char line[128];
    snprintf(line, sizeof line, "rm -rf %s", dir);
    return system(line);
}

static const char *in_dir(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static sn_step_metrics row_of(int64_t step)
{
    return (sn_step_metrics){.step = step,
                             .tokens = 4096,
                             .loss = 5.5 / (double) step + 1.0 / 3,
                             .grad_norm = 0.7,
                             .lr = 3e-4,
                             .val_loss = step % 10 ? NAN : 1.7,
                             .step_ns = 100 * SN_MS,
                             .time_ns = {60 * SN_MS, 20 * SN_MS, 10 * SN_MS, 7 * SN_MS, 3 * SN_MS},
                             .flops = 3.8e9,
                             .peak_flops = 1e11,
                             .bytes_host = 1 << 20,
                             .comm_ns = 700 + step,
                             .bytes_net = 1 << 18};
}

static void write_steps(bool append, int64_t from, int64_t to)
{
    sn_metrics *m;
    assert_ok(sn_metrics_open(in_dir("m.jsonl"), append, &m));
    for (int64_t s = from; s <= to; s++) {
        sn_step_metrics row = row_of(s);
        assert_ok(sn_metrics_add(m, &row));
    }
    sn_metrics_close(m);
}

static void test_metrics_round_trip(void **state)
{
    sn_arena *arena = sn_arena_create();
    sn_step_metrics *row;
    int64_t n;
    write_steps(false, 1, 40);
    assert_ok(sn_metrics_read(in_dir("m.jsonl"), arena, &row, &n));
    assert_int_equal(n, 40);
    for (int64_t i = 0; i < n; i++) {
        sn_step_metrics want = row_of(i + 1);
        assert_true(row[i].loss == want.loss); /* every bit of it */
        assert_true(row[i].val_loss == want.val_loss ||
                    (isnan(row[i].val_loss) && isnan(want.val_loss)));
        row[i].val_loss = want.val_loss;
        assert_memory_equal(&row[i], &want, sizeof want);
    }
    write_steps(true, 31, 35); /* back to a checkpoint at 30, stopped at 35 */
    assert_ok(sn_metrics_read(in_dir("m.jsonl"), arena, &row, &n));
    assert_int_equal(n, 35);
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(row[i].step, i + 1);
    sn_arena_free(arena);
}

static void test_metrics_torn(void **state)
{
    sn_arena *arena = sn_arena_create();
    sn_step_metrics *row;
    int64_t n;
    struct stat st;
    write_steps(false, 1, 3);
    assert_int_equal(stat(in_dir("m.jsonl"), &st), 0);
    for (off_t cut = st.st_size - 1; cut > st.st_size - 60; cut -= 7) {
        assert_int_equal(truncate(in_dir("m.jsonl"), cut), 0);
        assert_ok(sn_metrics_read(in_dir("m.jsonl"), arena, &row, &n));
        assert_int_equal(n, 2);
    }
    write_steps(true, 3, 4); /* the torn line is cut, not glued to the next one */
    assert_ok(sn_metrics_read(in_dir("m.jsonl"), arena, &row, &n));
    assert_int_equal(n, 4);
    FILE *f = fopen(in_dir("m.jsonl"), "a");
    fputs("{\"step\": \"five\"}\n", f);
    fclose(f);
    assert_int_equal(sn_metrics_read(in_dir("m.jsonl"), arena, &row, &n), SN_ECORRUPT);
    assert_non_null(strstr(sn_errmsg(), "m.jsonl:5"));
    assert_int_equal(truncate(in_dir("m.jsonl"), 0), 0);
    assert_ok(sn_metrics_read(in_dir("m.jsonl"), arena, &row, &n));
    assert_int_equal(n, 0);
    assert_int_equal(sn_metrics_read(in_dir("none"), arena, &row, &n), SN_ENOTFOUND);
    sn_metrics *m = NULL;
    assert_int_equal(sn_metrics_open("/no/such/dir/m", true, &m), SN_ENOTFOUND);
    assert_null(m);
    sn_metrics_close(NULL);
    sn_arena_free(arena);
}

/* A file may grow to 500 bytes: the line that does not fit is an error and leaves no trace. */
static void test_metrics_full(void **state)
{
    struct rlimit old, small;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small = (struct rlimit){700, old.rlim_max};
    sn_metrics *m;
    assert_ok(sn_metrics_open(in_dir("full.jsonl"), false, &m));
    sn_step_metrics row = row_of(10);
    setrlimit(RLIMIT_FSIZE, &small);
    int good = 0;
    sn_status status = SN_OK;
    while (good < 10 && (status = sn_metrics_add(m, &row)) == SN_OK) {
        good++;
        row.step++;
    }
    setrlimit(RLIMIT_FSIZE, &old);
    assert_in_range(good, 1, 8);
    assert_true(status < 0);
    assert_non_null(strstr(sn_errmsg(), "full.jsonl"));
    assert_ok(sn_metrics_add(m, &row)); /* there is room again */
    sn_metrics_close(m);
    sn_arena *arena = sn_arena_create();
    sn_step_metrics *rows;
    int64_t n;
    assert_ok(sn_metrics_read(in_dir("full.jsonl"), arena, &rows, &n));
    assert_int_equal(n, good + 1);
    sn_arena_free(arena);
}

/* Columns a text takes on a terminal: escape sequences none, a UTF-8 character one. */
static int columns_of(const char *text)
{
    int n = 0;
    for (const unsigned char *p = (const unsigned char *) text; *p; p++) {
        if (*p == 033) {
            while (*p && *p != 'm' && *p != 'K')
                p++;
        } else if (*p >= 0x20 && (*p & 0xc0) != 0x80) {
            n++;
        }
    }
    return n;
}

static const mon_view typical = {.step = 120,
                                 .steps = 600,
                                 .loss = 2.0131,
                                 .val_loss = NAN,
                                 .tokens_per_s = 41234,
                                 .peak_share = 0.382,
                                 .exposed_share = 0.12,
                                 .eta_s = 62};

static void test_line(void **state)
{
    sn_str out = {0};
    mon_line(&out, &typical, (mon_look){0});
    assert_string_equal(out.data, "step 120/600  loss 2.013  41.2k tok/s  38 % of peak  "
                                  "exposed comm 12 %  ETA 1m 02s");
    sn_str_clear(&out);
    mon_line(&out, &typical, (mon_look){45, false, false});
    assert_string_equal(out.data, "120/600  loss 2.013  41.2k tok/s  ETA 1m 02s");
    sn_str_clear(&out);
    mon_line(&out, &typical, (mon_look){100, false, false});
    assert_string_equal(out.data, "step 120/600  [==>           ]  loss 2.013  41.2k tok/s  "
                                  "38 % of peak  exposed comm 12 %  ETA 1m 02s");
    sn_str_done(&out);
}

static void test_line_width(void **state)
{
    sn_str out = {0};
    mon_view v[] = {typical, typical, typical, {.step = 0}};
    v[1].val_loss = 1.7;
    v[1].loss = NAN;
    v[2] = (mon_view){.step = INT64_MAX,
                      .steps = INT64_MAX,
                      .loss = -1e300,
                      .val_loss = 1e300,
                      .tokens_per_s = 1e300,
                      .peak_share = NAN,
                      .exposed_share = INFINITY,
                      .eta_s = INFINITY};
    for (size_t k = 0; k < SN_COUNT(v); k++)
        for (int columns = 1; columns < 260; columns++)
            for (int look = 0; look < 4; look++) {
                sn_str_clear(&out);
                int n = mon_line(&out, &v[k], (mon_look){columns, look & 1, look & 2});
                assert_int_equal(n, columns_of(sn_str_get(&out)));
                assert_true(n <= columns);
            }
    sn_str_done(&out);
}

static void test_numbers(void **state)
{
    char out[32];
    static const struct {
        double v;
        const char *text;
    } count[] = {{0, "0"},         {9.6, "10"},    {999, "999"}, {999.6, "1.00k"}, {41234, "41.2k"},
                 {123456, "123k"}, {1e6, "1.00M"}, {NAN, "0"},   {1e300, "999P"}},
      time[] = {{0, "0s"},        {59.4, "59s"},     {59.6, "1m 00s"}, {62, "1m 02s"},
                {7300, "2h 01m"}, {90000, "1d 01h"}, {NAN, "0s"},      {-5, "0s"}};
    for (size_t i = 0; i < SN_COUNT(count); i++) {
        mon_short_count(out, count[i].v);
        assert_string_equal(out, count[i].text);
    }
    for (size_t i = 0; i < SN_COUNT(time); i++) {
        mon_duration(out, time[i].v);
        assert_string_equal(out, time[i].text);
    }
    sn_str s = {0};
    mon_json_number(&s, 0.1);
    mon_json_text(&s, "a\"\\\n");
    assert_string_equal(s.data, "0.1\"a\\\"\\\\\\u000a\"");
    sn_str_done(&s);
    assert_true(mon_share(1, 0) == 0 && mon_share(NAN, 1) == 0 && mon_share(3, 2) == 1);
}

/* Everything a style writes into a pipe. */
static char *printed(sn_progress_style style, bool note)
{
    static char out[65536];
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    sn_progress *p = sn_progress_create(style, fd[1], true, 0, 20);
    for (int64_t s = 1; s <= 20; s++) {
        sn_step_metrics row = row_of(s);
        sn_progress_step(p, &row);
        if (note && s == 10)
            sn_progress_note(p, "rank 3 \033[2J\"died\"");
    }
    sn_progress_free(p);
    close(fd[1]);
    ssize_t n = read(fd[0], out, sizeof out - 1);
    close(fd[0]);
    out[SN_MAX(n, 0)] = 0;
    return out;
}

static void test_progress_styles(void **state)
{
    char *lines = printed(SN_PROGRESS_LINES, false);
    assert_null(strchr(lines, '\033'));
    assert_non_null(strstr(lines, "step  1/20"));
    assert_non_null(strstr(lines, "step 20/20"));
    assert_null(strstr(lines, "step 10/20")); /* 20 quick steps are two lines */
    char *json = printed(SN_PROGRESS_JSON, true);
    int steps = 0, notes = 0;
    for (char *line = strtok(json, "\n"); line; line = strtok(NULL, "\n")) {
        json_error_t error;
        json_t *o = json_loads(line, 0, &error);
        assert_non_null(o);
        const char *event = json_string_value(json_object_get(o, "event"));
        steps += !strcmp(event, "step");
        notes += !strcmp(event, "note");
        json_decref(o);
    }
    assert_int_equal(steps, 20);
    assert_int_equal(notes, 1);
    assert_string_equal(printed(SN_PROGRESS_NONE, true), "");
    char *live = printed(SN_PROGRESS_LIVE, true);
    assert_non_null(strstr(live, "rank 3 ?[2J\"died\"\n\r10/20"));
    assert_int_equal(live[strlen(live) - 1], '\n');
    for (char *line = strtok(live, "\r"); line; line = strtok(NULL, "\r"))
        assert_true(columns_of(line) <= 80);
    sn_progress_free(NULL);
}

/* On a real terminal: the width is asked anew each time. */
static void test_progress_terminal(void **state)
{
    int master, terminal;
    struct winsize size = {.ws_row = 24, .ws_col = 60};
    assert_int_equal(openpty(&master, &terminal, NULL, NULL, &size), 0);
    sn_progress *p = sn_progress_create(SN_PROGRESS_LIVE, terminal, false, 0, 20);
    sn_step_metrics row = row_of(7);
    char out[4096];
    for (int width = 60; width > 8; width -= 13) {
        size.ws_col = (unsigned short) width;
        ioctl(terminal, TIOCSWINSZ, &size);
        sn_progress_note(p, "x");
        sn_progress_step(p, &row);
        sn_progress_note(p, "y");
        size_t got = 0;
        const char *note = NULL;
        while (!note || !strstr(note, "\033[K")) { /* until the line under the second note */
            ssize_t n = read(master, out + got, sizeof out - 1 - got);
            assert_true(n > 0);
            got += (size_t) n;
            out[got] = 0;
            note = strstr(out, "y\r\n");
        }
        for (char *line = strtok(out, "\r\n"); line; line = strtok(NULL, "\r\n"))
            assert_true(columns_of(line) < width);
    }
    sn_progress_free(p);
    close(master);
    close(terminal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metrics_round_trip), cmocka_unit_test(test_metrics_torn),
        cmocka_unit_test(test_metrics_full),       cmocka_unit_test(test_line),
        cmocka_unit_test(test_line_width),         cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_progress_styles),    cmocka_unit_test(test_progress_terminal),
    };
    return cmocka_run_group_tests_name(__FILE__, tests, setup, teardown);
}
