/* SPDX-License-Identifier: Apache-2.0
 *
 * The supervisor as tables (one row: an event, its time, the actions it must give) and as a
 * simulation: random events of a random job, whose rules are checked after each. */
#include "ctl/ctl.h"
#include "unit/sn_test.h"

#include <signal.h>
#include <stdio.h>

enum { WORLD = 4, PER_HOST = 2 };

/* One row of a story. `to` is the rank, host or level; `how` a signal (> 0) or -code. */
typedef struct row {
    int ms;
    enum { START, SEEN, EXIT, HOST, REFUSED, CLEARED, INTERRUPT, TIMER, BROKEN, SET, HEAL } what;
    int to, how;
    sn_status status;
    const char *want; /* "launch0 epoch1 note timer kill0 …" */
    const char *says; /* part of the last NOTE or FINISH text */
} row;

typedef struct stage {
    sn_ctl *ctl;
    sn_ctl_view view[WORLD];
    bool mute[WORLD]; /* its beat stands still */
    bool stuck;       /* nobody's step moves */
    int attempt;
    char text[SN_CTL_TEXT];
} stage;

static void heal(stage *s)
{
    memset(s->view, 0, sizeof s->view);
    memset(s->mute, 0, sizeof s->mute);
    for (int r = 0; r < WORLD; r++)
        s->view[r] = (sn_ctl_view){
            .state = SN_CTL_TRAINING, .pid = 100 + r, .beat = 1, .op = "", .op_since = 1000 - r};
    s->view[3].op = "all_reduce #12 in group data[s0,t1], step 40";
}

static void actions_text(stage *s, const sn_ctl_action *a, int n, char *out, size_t bytes)
{
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < n; i++) {
        static const char *const name[] = {"launch", "epoch", "stop", "killrank",
                                           "kill",   "timer", "note", "finish"};
        int arg = a[i].kind == SN_CTL_LAUNCH                                   ? a[i].attempt
                  : a[i].kind == SN_CTL_EPOCH || a[i].kind == SN_CTL_KILL_RANK ? a[i].rank
                  : a[i].kind == SN_CTL_STOP                                   ? a[i].level
                  : a[i].kind == SN_CTL_FINISH                                 ? a[i].code
                  : a[i].kind == SN_CTL_SET_TIMER                              ? a[i].at > 0
                                                                               : 0;
        used += (size_t) snprintf(out + used, bytes - used, "%s%s%d", i ? " " : "", name[a[i].kind],
                                  arg);
        if (a[i].kind == SN_CTL_LAUNCH) {
            s->attempt = a[i].attempt;
            heal(s);
        }
        if (a[i].kind == SN_CTL_NOTE || a[i].kind == SN_CTL_FINISH)
            snprintf(s->text, sizeof s->text, "%s", a[i].text);
    }
}

static sn_ctl_event event_of(stage *s, const row *r)
{
    static const sn_ctl_kind kind[] = {SN_CTL_START,     SN_CTL_SEEN,           SN_CTL_EXITED,
                                       SN_CTL_HOST_DIED, SN_CTL_LAUNCH_REFUSED, SN_CTL_CLEARED,
                                       SN_CTL_INTERRUPT, SN_CTL_TIMER,          SN_CTL_BROKEN};
    return (sn_ctl_event){.kind = kind[r->what],
                          .attempt = s->attempt,
                          .rank = r->to,
                          .host = r->to,
                          .level = r->to,
                          .code = r->how < 0 ? -r->how : 0,
                          .signal = r->how > 0 ? r->how : 0,
                          .pid = 77,
                          .status = r->status,
                          .text = "ip: no such device",
                          .views = s->view};
}

/* Changes of the workers' pages between events. */
static void change(stage *s, const row *r)
{
    if (r->what == HEAL) {
        s->view[r->to].step += r->how;
        return;
    }
    s->view[r->to].state = (sn_ctl_worker) r->how;
    s->view[r->to].status = r->status;
    s->view[r->to].error = "its own sentence";
}

static void play(const char *story, const sn_ctl_opts *opts, const row *rows, int n)
{
    stage s = {.ctl = sn_ctl_create(opts)};
    heal(&s);
    for (int i = 0; i < n; i++) {
        char got[256];
        if (rows[i].what >= SET) {
            change(&s, &rows[i]);
            continue;
        }
        sn_ctl_action a[SN_CTL_ACTIONS_MAX];
        sn_ctl_event e = event_of(&s, &rows[i]);
        for (int r = 0; r < WORLD && e.kind == SN_CTL_SEEN; r++)
            s.view[r].beat++;
        int count = sn_ctl_step(s.ctl, &e, rows[i].ms * SN_MS + SN_SEC, a);
        actions_text(&s, a, count, got, sizeof got);
        if (strcmp(got, rows[i].want))
            fail_msg("%s, row %d: got \"%s\", want \"%s\"", story, i, got, rows[i].want);
        if (rows[i].says && !strstr(s.text, rows[i].says))
            fail_msg("%s, row %d: said \"%s\", want \"%s\"", story, i, s.text, rows[i].says);
    }
    sn_ctl_free(s.ctl);
}

#define PLAY(story, opts, ...)                                                                     \
    do {                                                                                           \
        static const row rows_[] = {__VA_ARGS__};                                                  \
        play(story, opts, rows_, SN_COUNT(rows_));                                                 \
    } while (0)

static const sn_ctl_opts usual = {.world = WORLD, .cards_per_host = PER_HOST, .retries = 3};
static const sn_ctl_opts never = {.world = WORLD, .cards_per_host = PER_HOST, .retries = 0};

static void test_clean(void **state)
{
    PLAY("all end well", &usual, {0, START, .want = "launch0"}, {10, SEEN, .want = ""},
         {20, SET, 0, SN_CTL_DONE}, {20, SET, 1, SN_CTL_DONE}, {20, SET, 2, SN_CTL_DONE},
         {20, SET, 3, SN_CTL_DONE}, {30, EXIT, 0, .want = ""}, {31, EXIT, 1, .want = ""},
         {32, EXIT, 2, .want = ""}, {32, EXIT, 2, .want = ""},
         {33, EXIT, 3, .want = "kill0 timer0"}, {34, INTERRUPT, 1, .want = ""},
         {40, CLEARED, .want = "finish0", .says = ""}, {50, CLEARED, .want = ""},
         {50, INTERRUPT, 1, .want = ""}, {60, START, .want = ""});
}

static void test_killed(void **state)
{
    PLAY("the first cause wins and is retried", &usual, {0, START, .want = "launch0"},
         {10, SEEN, .want = ""},
         {60, EXIT, 3, SIGKILL, .want = "epoch3 note0 timer1",
          .says = "rank 3 on h1 (pid 103) was killed by SIGKILL during all_reduce #12 in group "
                  "data[s0,t1], step 40; restarting, retry 1 of 3"},
         {61, SET, 0, SN_CTL_FAILED, SN_EPEER}, {62, SEEN, .want = ""},
         {63, EXIT, 0, -1, .want = ""}, {64, HOST, 0, .want = ""},
         {360, TIMER, .want = "kill0 timer0"}, {370, EXIT, 1, SIGKILL, .want = ""},
         {380, CLEARED, .want = "launch1"}, {390, SEEN, .want = ""});
    PLAY("survivors that leave early shorten the wait", &usual, {0, START, .want = "launch0"},
         {1, EXIT, 1, SIGSEGV, .want = "epoch1 note0 timer1", .says = "killed by SIGSEGV"},
         {2, EXIT, 0, -1, .want = ""}, {2, EXIT, 2, -1, .want = ""},
         {3, EXIT, 3, -1, .want = "kill0 timer0"}, {4, CLEARED, .want = "launch1"});
    PLAY("no retries wanted", &never, {0, START, .want = "launch0"},
         {1, EXIT, 1, -7, .want = "epoch1 note0 timer1", .says = "exited with code 7 after step 0"},
         {301, TIMER, .want = "kill0 timer0"},
         {302, CLEARED, .want = "finish1", .says = "rank 1 on h0 (pid 101) exited with code 7"});
    PLAY("code 0 before the work is done is a failure", &never, {0, START, .want = "launch0"},
         {1, EXIT, 1, .want = "epoch1 note0 timer1", .says = "before its work was done"});
}

static void test_echo(void **state)
{
    PLAY("an echo waits for its original", &usual, {0, START, .want = "launch0"},
         {10, SEEN, .want = ""}, {20, SET, 0, SN_CTL_FAILED, SN_EPEER},
         {30, SEEN, .want = "timer1"}, {32, EXIT, 0, -1, .want = ""},
         {33, EXIT, 1, -1, .want = "epoch1 note0 timer1", .says = "rank 1 on h0"});
    PLAY("an echo by exit, then the signal", &usual, {0, START, .want = "launch0"},
         {20, SET, 2, SN_CTL_FAILED, SN_EEPOCH}, {30, EXIT, 2, -1, .want = "timer1"},
         {90, EXIT, 3, SIGKILL, .want = "epoch3 note0 timer1", .says = "rank 3"});
    PLAY(
        "no original: the echo is said", &usual, {0, START, .want = "launch0"},
        {20, SET, 2, SN_CTL_FAILED, SN_ETIME}, {30, SEEN, .want = "timer1"},
        {1530, TIMER, .want = "epoch2 note0 timer1", .says = "rank 2 on h1 (pid 102) failed: its"});
    PLAY("everybody left with echoes", &usual, {0, START, .want = "launch0"},
         {20, SET, 0, SN_CTL_FAILED, SN_EPEER}, {20, SET, 1, SN_CTL_FAILED, SN_EPEER},
         {20, SET, 2, SN_CTL_FAILED, SN_EPEER}, {20, SET, 3, SN_CTL_FAILED, SN_EPEER},
         {30, EXIT, 1, -1, .want = "timer1"}, {31, EXIT, 0, -1, .want = ""},
         {32, EXIT, 2, -1, .want = ""},
         {33, EXIT, 3, -1, .want = "epoch1 note0 kill0 timer0", .says = "rank 1"});
}

static void test_final(void **state)
{
    PLAY("a bad job is not retried", &usual, {0, START, .want = "launch0"},
         {20, SET, 1, SN_CTL_FAILED, SN_EFIT},
         {30, SEEN, .want = "epoch1 note0 timer1", .says = "not retried, the same would"},
         {330, TIMER, .want = "kill0 timer0"},
         {340, CLEARED, .want = "finish1", .says = "its own sentence"});
    PLAY("an original before an echo in one look", &usual, {0, START, .want = "launch0"},
         {20, SET, 0, SN_CTL_FAILED, SN_EPEER}, {20, SET, 3, SN_CTL_FAILED, SN_ENOSPC},
         {30, SEEN, .want = "epoch3 note0 timer1", .says = "rank 3"});
    PLAY("an attempt that cannot be started", &usual, {0, START, .want = "launch0"},
         {1, REFUSED, .status = SN_EPERM, .want = "kill0 timer0"},
         {2, CLEARED, .want = "finish1", .says = "ip: no such device"});
}

static void test_retries(void **state)
{
    PLAY("without progress three retries are all", &usual, {0, START, .want = "launch0"},
         {1, EXIT, 0, 9, .want = "epoch0 note0 timer1"}, {2, TIMER, .want = "kill0 timer0"},
         {3, CLEARED, .want = "launch1"}, {4, EXIT, 0, 9, .want = "epoch0 note0 timer1"},
         {5, TIMER, .want = "kill0 timer0"}, {6, CLEARED, .want = "launch2"},
         {7, EXIT, 0, 9, .want = "epoch0 note0 timer1"}, {8, TIMER, .want = "kill0 timer0"},
         {9, CLEARED, .want = "launch3"},
         {10, EXIT, 0, 9, .want = "epoch0 note0 timer1", .says = "3 retries made no progress"},
         {11, TIMER, .want = "kill0 timer0"}, {12, CLEARED, .want = "finish1", .says = "SIGKILL"});
    PLAY("those that run ahead are no progress", &usual, {0, START, .want = "launch0"},
         {1, HEAL, 1, 5}, {1, HEAL, 2, 5}, {1, HEAL, 3, 5}, {1, SEEN, .want = ""},
         {1, EXIT, 0, 9, .want = "epoch0 note0 timer1", .says = "retry 1 of 3"},
         {2, TIMER, .want = "kill0 timer0"}, {3, CLEARED, .want = "launch1"}, {3, HEAL, 1, 9},
         {3, HEAL, 2, 9}, {3, HEAL, 3, 9}, {3, SEEN, .want = ""},
         {4, EXIT, 0, 9, .want = "epoch0 note0 timer1", .says = "retry 2 of 3"});
    PLAY("progress gives the retries back", &usual, {0, START, .want = "launch0"},
         {1, EXIT, 0, 9, .want = "epoch0 note0 timer1", .says = "retry 1 of 3"},
         {2, TIMER, .want = "kill0 timer0"}, {3, CLEARED, .want = "launch1"},
         {4, EXIT, 0, 9, .want = "epoch0 note0 timer1", .says = "retry 2 of 3"},
         {5, TIMER, .want = "kill0 timer0"}, {6, CLEARED, .want = "launch2"}, {7, HEAL, 0, 5},
         {7, HEAL, 1, 5}, {7, HEAL, 2, 6}, {7, HEAL, 3, 5}, {8, SEEN, .want = ""},
         {9, EXIT, 0, 9, .want = "epoch0 note0 timer1", .says = "retry 1 of 3"});
}

static void test_host(void **state)
{
    PLAY("a host dies", &usual, {0, START, .want = "launch0"}, {1, SEEN, .want = ""},
         {2, HOST, 1, SIGKILL, .want = "epoch2 note0 timer1",
          .says = "host h1 was lost with ranks 2 to 3: its agent (pid 77) was killed by SIGKILL; "
                  "rank 2 was lost after step 0; restarting"});
}

static void test_unknown_end(void **state)
{
    static sn_ctl_opts one = {.world = 1, .cards_per_host = PER_HOST, .retries = 0};
    stage s = {.ctl = sn_ctl_create(&one)};
    sn_ctl_action a[SN_CTL_ACTIONS_MAX];
    sn_ctl_event start = {.kind = SN_CTL_START}, end = {.kind = SN_CTL_EXITED, .code = -1};
    heal(&s);
    s.view[0].state = SN_CTL_DONE;
    end.views = s.view;
    sn_ctl_step(s.ctl, &start, SN_SEC, a);
    assert_int_equal(sn_ctl_step(s.ctl, &end, SN_SEC, a), 2); /* done is done: KILL, no timer */
    assert_int_equal(a[0].kind, SN_CTL_KILL);
    sn_ctl_free(s.ctl);

    s.ctl = sn_ctl_create(&one);
    s.view[0].state = SN_CTL_TRAINING;
    sn_ctl_step(s.ctl, &start, SN_SEC, a);
    sn_ctl_step(s.ctl, &end, SN_SEC, a);
    assert_int_equal(a[1].kind, SN_CTL_NOTE);
    assert_non_null(strstr(a[1].text, "rank 0 on h0 (pid 100) died in an unknown way"));
    sn_ctl_free(s.ctl);
}

static void test_broken(void **state)
{
    PLAY("a protocol broken", &usual, {0, START, .want = "launch0"}, {1, SEEN, .want = ""},
         {2, BROKEN, 2, .status = SN_ECORRUPT, .want = "killrank2 epoch2 note0 timer1",
          .says = "rank 2 on h1 (pid 102) broke a protocol: ip: no such device; restarting"},
         {3, BROKEN, 1, .status = SN_ECORRUPT, .want = ""});
}

static void test_interrupt(void **state)
{
    PLAY("a clean end", &usual, {0, START, .want = "launch0"}, {1, SEEN, .want = ""},
         {2, INTERRUPT, 1, .want = "stop1 timer1"}, {3, INTERRUPT, 1, .want = ""},
         {4, EXIT, 0, .want = ""}, {4, EXIT, 1, .want = ""}, {4, EXIT, 2, .want = ""},
         {4, EXIT, 3, .want = "kill0 timer0"}, {5, CLEARED, .want = "finish130"});
    PLAY("twice", &usual, {0, START, .want = "launch0"}, {2, INTERRUPT, 1, .want = "stop1 timer1"},
         {3, INTERRUPT, 2, .want = "stop2 timer1"}, {2003, TIMER, .want = "kill0 timer0"},
         {2004, CLEARED, .want = "finish130", .says = "were killed"});
    PLAY("leaving as asked is no failure", &usual, {0, START, .want = "launch0"},
         {2, INTERRUPT, 2, .want = "stop2 timer1"}, {3, SET, 0, SN_CTL_FAILED, SN_ECANCEL},
         {3, SET, 1, SN_CTL_FAILED, SN_ECANCEL}, {3, SET, 2, SN_CTL_FAILED, SN_ECANCEL},
         {3, SET, 3, SN_CTL_FAILED, SN_ECANCEL}, {4, SEEN, .want = ""},
         {5, EXIT, 0, -1, .want = ""}, {5, EXIT, 1, -1, .want = ""}, {5, EXIT, 2, -1, .want = ""},
         {5, EXIT, 3, -1, .want = "kill0 timer0"},
         {6, CLEARED, .want = "finish130", .says = "interrupted"});
    PLAY("too slow", &usual, {0, START, .want = "launch0"},
         {2, INTERRUPT, 1, .want = "stop1 timer1"}, {30002, TIMER, .want = "note0 stop2 timer1"},
         {32002, TIMER, .want = "kill0 timer0"}, {32003, CLEARED, .want = "finish130"});
    PLAY("a failure while stopping is not retried", &usual, {0, START, .want = "launch0"},
         {2, INTERRUPT, 1, .want = "stop1 timer1"},
         {3, EXIT, 0, 9, .want = "epoch0 note0 timer1", .says = "is not started again"},
         {4, TIMER, .want = "kill0 timer0"}, {5, CLEARED, .want = "finish130", .says = "rank 0"});
    PLAY("while draining", &usual, {0, START, .want = "launch0"},
         {3, EXIT, 0, 9, .want = "epoch0 note0 timer1"}, {4, INTERRUPT, 1, .want = ""},
         {4, TIMER, .want = "kill0 timer0"}, {5, CLEARED, .want = "finish130"});
    PLAY("before the start", &usual, {2, INTERRUPT, 1, .want = "finish130"},
         {3, START, .want = ""});
}

/* Looks every `every` ms until an action comes; returns when (ms), or -1 after `until`. */
static int watch(stage *s, int from, int every, int until, char got[256])
{
    for (int ms = from; ms <= until; ms += every) {
        for (int r = 0; r < WORLD; r++) {
            s->view[r].beat += !s->mute[r];
            s->view[r].step += !s->stuck;
        }
        sn_ctl_action a[SN_CTL_ACTIONS_MAX];
        sn_ctl_event e = {.kind = SN_CTL_SEEN, .attempt = s->attempt, .views = s->view};
        int n = sn_ctl_step(s->ctl, &e, ms * SN_MS + SN_SEC, a);
        actions_text(s, a, n, got, 256);
        if (n)
            return ms;
    }
    return -1;
}

static stage staged(const sn_ctl_opts *opts)
{
    stage s = {.ctl = sn_ctl_create(opts)};
    char got[256];
    sn_ctl_action a[SN_CTL_ACTIONS_MAX];
    sn_ctl_event e = {.kind = SN_CTL_START};
    actions_text(&s, a, sn_ctl_step(s.ctl, &e, SN_SEC, a), got, sizeof got);
    return s;
}

static void test_stall(void **state)
{
    char got[256];
    stage s = staged(&usual);
    assert_int_equal(watch(&s, 0, 50, 2000, got), -1);
    s.mute[3] = true;
    int at = watch(&s, 2050, 50, 9000, got);
    assert_in_range(at, 3000, 3150);
    assert_string_equal(got, "killrank3 epoch3 note0 timer1");
    assert_non_null(strstr(s.text, "rank 3 on h1 (pid 103) stopped responding (no heartbeat for "
                                   "1.0 s) during all_reduce #12"));
    sn_ctl_free(s.ctl);

    s = staged(&usual); /* the launcher itself was away: ten looks a second apart prove nothing */
    watch(&s, 0, 50, 100, got);
    s.mute[1] = true;
    assert_int_equal(watch(&s, 1000, 1000, 9000, got), -1);
    sn_ctl_free(s.ctl);

    s = staged(&usual); /* a beat that has not begun, or of a worker that is done, is not missed */
    s.mute[1] = s.mute[2] = true;
    s.view[1].beat = 0;
    s.view[2].state = SN_CTL_DONE;
    assert_int_equal(watch(&s, 0, 50, 5000, got), -1);
    sn_ctl_free(s.ctl);
}

static void test_stuck(void **state)
{
    char got[256];
    stage s = staged(&usual);
    watch(&s, 0, 50, 1000, got);
    s.stuck = true;
    assert_in_range(watch(&s, 1050, 50, 70000, got), 60950, 61200);
    assert_string_equal(got, "killrank3 epoch3 note0 timer1"); /* the oldest op_since */
    assert_non_null(strstr(s.text, "no step was completed for 60.0 s; longest in one place is "
                                   "rank 3 on h1 (pid 103) during all_reduce"));
    sn_ctl_free(s.ctl);

    s = staged(&usual);
    s.stuck = true;
    s.view[2].state = SN_CTL_SAVING;
    assert_int_equal(watch(&s, 0, 50, 290000, got), -1);
    assert_in_range(watch(&s, 290050, 50, 400000, got), 299900, 300300);
    sn_ctl_free(s.ctl);

    s = staged(&usual);
    s.stuck = true;
    s.view[2].state = SN_CTL_STARTING;
    s.view[2].op = "open UCX";
    assert_in_range(watch(&s, 0, 50, 400000, got), 119900, 120300);
    assert_non_null(strstr(s.text, "1 of 4 workers not ready after 120.0 s: rank 2 on h1 (pid "
                                   "102) in open UCX"));
    sn_ctl_free(s.ctl);

    s = staged(&usual);
    s.stuck = true;
    for (int r = 0; r < WORLD; r++)
        s.view[r].state = SN_CTL_DONE;
    assert_in_range(watch(&s, 0, 50, 400000, got), 9900, 10300);
    assert_string_equal(got, "note0 kill0 timer0");
    sn_ctl_free(s.ctl);
}

static void test_long_texts(void **state)
{
    static char longest[4000];
    memset(longest, 'x', sizeof longest - 1);
    stage s = staged(&usual);
    char got[256];
    s.view[0].state = SN_CTL_FAILED;
    s.view[0].status = SN_EIO;
    s.view[0].error = longest;
    watch(&s, 0, 50, 50, got);
    assert_non_null(strstr(s.text, "; restarting, retry 1 of 3"));
    sn_ctl_free(s.ctl);
}

/* ---- the simulation ---- */

typedef struct world {
    sn_prng rng;
    sn_ctl *ctl;
    sn_ctl_opts opts;
    sn_ctl_view view[8];
    bool gone[8], stopped[8];
    bool calm, live, clearing, over, interrupted, damaged, refused;
    int attempt, launches, finishes, code;
    sn_time now, timer;
} world;

static void carry_out(world *w, const sn_ctl_action *a)
{
    assert_false(w->over);
    switch (a->kind) {
    case SN_CTL_LAUNCH:
        assert_false(w->live);
        assert_int_equal(a->attempt, w->attempt + 1);
        assert_false(w->interrupted);
        w->attempt = a->attempt;
        w->live = true;
        w->launches++;
        memset(w->view, 0, sizeof w->view);
        memset(w->gone, 0, sizeof w->gone);
        memset(w->stopped, 0, sizeof w->stopped);
        break;
    case SN_CTL_EPOCH:
        assert_in_range(a->rank + 1, 0, w->opts.world);
        break;
    case SN_CTL_KILL_RANK:
        assert_false(w->gone[a->rank]);
        w->stopped[a->rank] = false;
        break;
    case SN_CTL_KILL:
        assert_true(w->live && !w->clearing);
        w->clearing = true;
        break;
    case SN_CTL_SET_TIMER:
        w->timer = a->at;
        break;
    case SN_CTL_NOTE:
        assert_true(a->text[0] != 0);
        break;
    case SN_CTL_FINISH:
        assert_false(w->live);
        w->over = true;
        w->finishes++;
        w->code = a->code;
        assert_int_equal(a->code == 0, a->text[0] == 0);
        break;
    case SN_CTL_STOP:
        assert_true(w->live);
        break;
    }
}

static void feed(world *w, sn_ctl_event e)
{
    sn_ctl_action a[SN_CTL_ACTIONS_MAX];
    int n = sn_ctl_step(w->ctl, &e, w->now, a);
    for (int i = 0; i < n; i++)
        carry_out(w, &a[i]);
}

/* The workers live a little: most go on, some finish, some meet an accident. */
static void live(world *w, int64_t danger)
{
    for (int r = 0; r < w->opts.world; r++) {
        sn_ctl_view *v = &w->view[r];
        if (w->gone[r] || w->stopped[r] || v->state >= SN_CTL_DONE)
            continue;
        v->beat++;
        int64_t dice = sn_prng_below(&w->rng, 1000);
        if (dice < danger) {
            w->damaged = w->stopped[r] = true;
        } else if (dice < 2 * danger) {
            static const sn_status s[] = {SN_EPEER, SN_EIO, SN_ETIME, SN_EEPOCH, SN_EINVAL};
            v->state = SN_CTL_FAILED;
            v->status = s[sn_prng_below(&w->rng, SN_COUNT(s))];
            w->damaged = true;
        } else if (v->state == SN_CTL_STARTING) {
            v->state = SN_CTL_TRAINING;
        } else if (++v->step >= 40) {
            v->state = SN_CTL_DONE;
        }
    }
}

static void random_event(world *w)
{
    int64_t dice = sn_prng_below(&w->rng, 1000);
    if (w->calm && dice >= 300 && dice < 308)
        dice = 0;
    int rank = (int) sn_prng_below(&w->rng, w->opts.world);
    sn_ctl_event e = {.kind = SN_CTL_SEEN, .attempt = w->attempt, .rank = rank, .views = w->view};
    if (dice < 300 && w->live && !w->gone[rank] && w->view[rank].state >= SN_CTL_DONE) {
        w->gone[rank] = true;
        e.kind = SN_CTL_EXITED;
        e.code = w->view[rank].state == SN_CTL_FAILED;
    } else if (dice >= 300 && dice < 302 && w->live && !w->gone[rank] && !w->clearing) {
        w->gone[rank] = w->damaged = true;
        e.kind = SN_CTL_EXITED;
        e.signal = SIGKILL;
    } else if (dice == 305 && w->live && !w->clearing) {
        w->damaged = true;
        e.kind = SN_CTL_HOST_DIED;
        e.host = rank / w->opts.cards_per_host;
    } else if (dice == 306) {
        w->interrupted = true;
        e.kind = SN_CTL_INTERRUPT;
        e.level = 1 + (int) sn_prng_below(&w->rng, 3);
    } else if (dice == 307 && w->live && !w->clearing) {
        w->damaged = true;
        e.kind = SN_CTL_LAUNCH_REFUSED;
        e.status = SN_EIO;
    } else if (dice >= 308 &&
               dice < 320) { /* nonsense of an attempt long over must change nothing */
        e.kind = SN_CTL_CLEARED;
        e.attempt = w->attempt - 1;
    } else if (w->clearing && dice < 800) {
        w->live = w->clearing = false;
        e.kind = SN_CTL_CLEARED;
    }
    feed(w, e);
}

static void simulate(uint64_t seed)
{
    world w = {.rng = {.seed = seed}, .attempt = -1, .now = SN_SEC};
    w.opts = (sn_ctl_opts){.world = 1 + (int) sn_prng_below(&w.rng, 8),
                           .cards_per_host = 1 + (int) sn_prng_below(&w.rng, 4),
                           .retries = (int) sn_prng_below(&w.rng, 5)};
    w.calm = seed % 3 == 0;
    int64_t danger = w.calm ? 0 : sn_prng_below(&w.rng, 4);
    w.ctl = sn_ctl_create(&w.opts);
    feed(&w, (sn_ctl_event){.kind = SN_CTL_START});
    int turns = 0;
    for (; !w.over && turns < 2000000; turns++) {
        w.now += SN_MS * (1 + sn_prng_below(&w.rng, 100));
        if (w.timer && w.now >= w.timer) {
            w.timer = 0;
            feed(&w, (sn_ctl_event){.kind = SN_CTL_TIMER});
        }
        if (!w.over) {
            live(&w, danger);
            random_event(&w);
        }
    }
    if (!w.over)
        fail_msg("seed %llu: not over after %d events", (unsigned long long) seed, turns);
    assert_int_equal(w.finishes, 1);
    assert_int_equal(sn_ctl_attempts(w.ctl), w.launches);
    if (!w.damaged && !w.interrupted)
        assert_int_equal(w.code, 0);
    if (w.code == 1)
        assert_true(w.damaged && !sn_ctl_interrupted(w.ctl));
    assert_int_equal(w.code == 130, sn_ctl_interrupted(w.ctl));
    if (w.opts.retries == 0)
        assert_int_equal(w.launches, 1);
    sn_ctl_free(w.ctl);
}

static void test_simulation(void **state)
{
    for (uint64_t seed = 1; seed <= 3000; seed++)
        simulate(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clean),      cmocka_unit_test(test_killed),
        cmocka_unit_test(test_echo),       cmocka_unit_test(test_final),
        cmocka_unit_test(test_retries),    cmocka_unit_test(test_host),
        cmocka_unit_test(test_broken),     cmocka_unit_test(test_unknown_end),
        cmocka_unit_test(test_interrupt),  cmocka_unit_test(test_stall),
        cmocka_unit_test(test_stuck),      cmocka_unit_test(test_long_texts),
        cmocka_unit_test(test_simulation),
    };
    return sn_test_run(tests);
}
