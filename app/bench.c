/* SPDX-License-Identifier: Apache-2.0
 * supernode bench: run the cases of an area, one JSON line (or table row) each. */
#include "bench.h"
#include "bench_calibrate.h"

#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#define SAMPLES_MIN 30 /* of a ratio, of a percentile */

static const bench_case *const areas[] = {bench_compute,      bench_net,   bench_gmem,  bench_coll,
                                          bench_choice_cases, bench_gloo,  bench_codec, bench_link,
                                          bench_watch,        bench_train, bench_model, bench_ckpt,
                                          bench_death,        bench_heal,  bench_plan,  bench_sim};

/* Areas of parts of the system that are not there yet. */
static const char *const later[] = {"sched"};

static int ascending(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return x < y ? -1 : x > y;
}

static double *sorted(const double *v, int n)
{
    double *copy = sn_alloc((size_t) n * sizeof *copy);
    memcpy(copy, v, (size_t) n * sizeof *copy);
    qsort(copy, (size_t) n, sizeof *copy, ascending);
    return copy;
}

double bench_median(const double *v, int n)
{
    if (n < 1)
        return NAN;
    double *s = sorted(v, n), m = n % 2 ? s[n / 2] : (s[n / 2 - 1] + s[n / 2]) / 2;
    free(s);
    return m;
}

/* Ranks k and n+1-k enclose the median with probability 1 - 2·P(Binomial(n, 1/2) < k). */
void bench_interval(const double *v, int n, double *ret_low, double *ret_high)
{
    if (n < 1) {
        *ret_low = *ret_high = NAN;
        return;
    }
    double *s = sorted(v, n), tail = 0, p = pow(0.5, n);
    int k = 0;
    while (k < n / 2 && tail + p <= 0.025) {
        tail += p;
        p *= (double) (n - k) / (k + 1);
        k++;
    }
    *ret_low = k ? s[k - 1] : -HUGE_VAL;
    *ret_high = k ? s[n - k] : HUGE_VAL;
    free(s);
}

double bench_tail(const double *v, int n)
{
    if (n < 1)
        return NAN;
    double *s = sorted(v, n), tail = s[(99 * n + 99) / 100 - 1];
    free(s);
    return tail;
}

static double mean(const double *v, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += v[i];
    return n ? sum / n : NAN;
}

int bench_capture(const char *const *argv, double seconds, sn_str *out)
{
    extern char **environ;
    int pipe_fd[2], status = 0;
    pid_t pid;
    posix_spawn_file_actions_t act;
    if (pipe2(pipe_fd, O_CLOEXEC))
        return -1;
    posix_spawn_file_actions_init(&act);
    posix_spawn_file_actions_adddup2(&act, pipe_fd[1], 1);
    posix_spawn_file_actions_adddup2(&act, pipe_fd[1], 2);
    posix_spawn_file_actions_addopen(&act, 0, "/dev/null", O_RDONLY, 0);
    int code = posix_spawnp(&pid, argv[0], &act, NULL, (char *const *) argv, environ);
    posix_spawn_file_actions_destroy(&act);
    close(pipe_fd[1]);
    sn_time end = sn_now() + (sn_time) (seconds * 1e9);
    while (!code) {
        char buf[4096];
        struct pollfd p = {.fd = pipe_fd[0], .events = POLLIN};
        int64_t left = (end - sn_now()) / SN_MS;
        if (left <= 0 || poll(&p, 1, (int) SN_MIN(left, 1 << 20)) <= 0) {
            kill(pid, SIGKILL);
            break;
        }
        ssize_t n = read(pipe_fd[0], buf, sizeof buf);
        if (n <= 0)
            break;
        if (out->len < 65536)
            sn_str_add_n(out, buf, (size_t) n);
    }
    close(pipe_fd[0]);
    if (code)
        return -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

size_t bench_read_proc(const char *path, char *ret, size_t max)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t have = 0;
    for (ssize_t n = 1; fd >= 0 && n > 0 && have + 1 < max; have += (size_t) SN_MAX(n, 0))
        n = read(fd, ret + have, max - 1 - have);
    if (fd >= 0)
        close(fd);
    ret[have] = 0;
    return have;
}

bool bench_has(const char *program)
{
    sn_str out = {0};
    const char *argv[] = {"sh", "-c", "command -v \"$0\"", program, NULL};
    int code = bench_capture(argv, 5, &out);
    sn_str_done(&out);
    return code == 0;
}

/* ---- judging ---- */

typedef struct verdict {
    double value, peer_value, ratio, ratio_low, ratio_high, share;
    bool met;
    char bar[128];
} verdict;

static void judge_ratio(const bench_case *c, const bench_result *r, verdict *v)
{
    double ratio[BENCH_SAMPLES_MAX];
    int n = SN_MIN(r->samples, r->peer_samples);
    for (int i = 0; i < n; i++)
        ratio[i] =
            c->less_is_better ? r->peer_sample[i] / r->sample[i] : r->sample[i] / r->peer_sample[i];
    v->ratio = bench_median(ratio, n);
    bench_interval(ratio, n, &v->ratio_low, &v->ratio_high);
}

/* The second bar: the whole interval's share of the bound. */
static void judge_share(const bench_case *c, const bench_result *r, double low, double high,
                        verdict *v)
{
    size_t used = strlen(v->bar);
    if (!(c->share_min > 0))
        return;
    snprintf(v->bar + used, sizeof v->bar - used, "%s>= %g %% of %s", used ? ", " : "",
             100 * c->share_min, c->bound_name);
    v->met &=
        r->bound > 0 && (c->less_is_better ? r->bound / high : low / r->bound) >= c->share_min;
}

static void judge(const bench_case *c, const bench_result *r, verdict *v)
{
    double low, high;
    *v = (verdict){.value = bench_median(r->sample, r->samples),
                   .peer_value = bench_median(r->peer_sample, r->peer_samples),
                   .ratio = NAN};
    bench_interval(r->sample, r->samples, &low, &high);
    judge_ratio(c, r, v);
    v->share = r->bound > 0 ? c->less_is_better ? r->bound / v->value : v->value / r->bound : NAN;
    switch (c->bar) {
    case BENCH_NO_BAR:
        break;
    case BENCH_RATIO_MIN:
        snprintf(v->bar, sizeof v->bar, ">= %gx %s", c->bar_value, c->peer);
        v->met = SN_MIN(r->samples, r->peer_samples) >= SAMPLES_MIN && v->ratio >= c->bar_value;
        break;
    case BENCH_SHARE:
        v->met = true;
        break;
    case BENCH_VALUE_MAX:
        snprintf(v->bar, sizeof v->bar, "<= %g %s", c->bar_value, c->unit);
        v->met = high <= c->bar_value;
        break;
    case BENCH_VALUE_MIN:
        snprintf(v->bar, sizeof v->bar, ">= %g %s", c->bar_value, c->unit);
        v->met = low >= c->bar_value;
        break;
    case BENCH_TAIL_MAX:
        snprintf(v->bar, sizeof v->bar, "p99 <= %g %s", c->bar_value, c->unit);
        v->value = bench_tail(r->sample, r->samples);
        v->met = r->samples >= SAMPLES_MIN && v->value <= c->bar_value;
        break;
    case BENCH_MEAN_MAX:
        snprintf(v->bar, sizeof v->bar, "mean <= %g %s", c->bar_value, c->unit);
        v->value = mean(r->sample, r->samples);
        v->met = r->samples >= SAMPLES_MIN && v->value <= c->bar_value;
        break;
    }
    judge_share(c, r, low, high, v);
}

/* ---- saying ---- */

static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *array(const double *v, int n)
{
    json_t *a = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(a, number(v[i]));
    return a;
}

static json_t *text_or_null(const char *text)
{
    return text && *text ? json_string(text) : json_null();
}

static const char *commit_of(sn_str *out)
{
    const char *argv[] = {"git", "-C", SN_SOURCE_DIR, "rev-parse", "--short", "HEAD", NULL};
    if (bench_capture(argv, 5, out) != 0)
        sn_str_clear(out);
    if (out->len && out->data[out->len - 1] == '\n')
        out->data[--out->len] = 0;
    return sn_str_get(out);
}

/* "Linux 6.1.0 x86_64, Some Processor, 2 cores" */
static void machine_of(char *ret, size_t max)
{
    struct utsname u;
    char model[96] = "", text[4096];
    uname(&u);
    bench_read_proc("/proc/cpuinfo", text, sizeof text);
    const char *at = strstr(text, "model name");
    at = at ? strchr(at, ':') : NULL;
    if (at)
        snprintf(model, sizeof model, "%.*s, ", (int) strcspn(at + 1, "\n") - 1, at + 2);
    snprintf(ret, max, "%.20s %.40s %.20s, %s%d cores", u.sysname, u.release, u.machine, model,
             sn_cores());
}

static json_t *interval(double low, double high)
{
    return isfinite(low) && isfinite(high) ? json_pack("[f, f]", low, high) : json_null();
}

static void say_json(const bench_case *c, const bench_result *r, const verdict *v,
                     const char *commit)
{
    char machine[256];
    machine_of(machine, sizeof machine);
    json_t *o = json_object();
    json_object_set_new(o, "name", json_string(c->name));
    json_object_set_new(o, "value", number(v->value));
    json_object_set_new(o, "unit", json_string(c->unit));
    json_object_set_new(o, "samples", array(r->sample, r->samples));
    json_object_set_new(o, "peer", text_or_null(c->peer));
    json_object_set_new(o, "peer_value", number(v->peer_value));
    json_object_set_new(o, "peer_samples", array(r->peer_sample, r->peer_samples));
    json_object_set_new(o, "ratio", number(v->ratio));
    json_object_set_new(o, "ratio_interval", interval(v->ratio_low, v->ratio_high));
    json_object_set_new(o, "bound", r->bound > 0 ? json_real(r->bound) : json_null());
    json_object_set_new(o, "bound_name", text_or_null(c->bound_name));
    json_object_set_new(o, "share", number(v->share));
    json_object_set_new(o, "bar", text_or_null(v->bar));
    json_object_set_new(o, "met", c->bar == BENCH_NO_BAR ? json_null() : json_boolean(v->met));
    json_object_set_new(o, "note", text_or_null(r->note));
    json_object_set_new(o, "commit", text_or_null(commit));
    json_object_set_new(o, "machine", json_string(machine));
    json_dumpf(o, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
    putchar('\n');
    fflush(stdout);
    json_decref(o);
}

static void say_row(const bench_case *c, const bench_result *r, const verdict *v)
{
    if (r->samples)
        printf("%-34s %12.5g %-8s", c->name, v->value, c->unit);
    else
        printf("%-34s %12s %-8s", c->name, "-", "");
    if (r->peer_samples)
        printf("  %s %.5g, ratio %.2f [%.2f, %.2f]", c->peer, v->peer_value, v->ratio, v->ratio_low,
               v->ratio_high);
    if (r->bound > 0 && r->samples)
        printf("  %.0f %% of %s", 100 * v->share, c->bound_name);
    if (c->bar != BENCH_NO_BAR)
        printf("  %s %s", v->bar, v->met ? "met" : "NOT met");
    printf("%s%s\n", *r->note ? "  # " : "", r->note);
    fflush(stdout);
}

static bool wanted(const char *area, const char *only, const bench_case *c)
{
    return (!strcmp(area, "all") || !strcmp(area, c->area)) && (!only || strstr(c->name, only));
}

static bool known(const char *area)
{
    for (size_t a = 0; a < SN_COUNT(areas); a++)
        if (!strcmp(areas[a]->area, area))
            return true;
    return !strcmp(area, "all");
}

static int no_area(const char *area)
{
    for (size_t a = 0; a < SN_COUNT(later); a++)
        if (!strcmp(later[a], area)) {
            fprintf(stderr, "supernode bench: there is nothing to measure in %s yet\n", area);
            return SN_EXIT_UNFIT;
        }
    fprintf(stderr, "supernode bench: no area '%s'; there are", area);
    for (size_t a = 0; a < SN_COUNT(areas); a++)
        if (a == 0 || strcmp(areas[a]->area, areas[a - 1]->area) != 0)
            fprintf(stderr, " %s,", areas[a]->area);
    fprintf(stderr, " and all\n");
    return SN_EXIT_USAGE;
}

typedef struct session {
    const char *area, *only, *commit;
    bool json;
    bench_opts opts;
} session;

static int run_case(const session *s, const bench_case *c)
{
    verdict v;
    bench_result *r = sn_alloc(sizeof *r);
    sn_status status = c->run(c, &s->opts, r);
    if (status < 0) {
        fprintf(stderr, "supernode bench: %s: %s\n", c->name, sn_errmsg());
    } else {
        judge(c, r, &v);
        if (s->json)
            say_json(c, r, &v, s->commit);
        else
            say_row(c, r, &v);
    }
    free(r);
    return status < 0 ? SN_EXIT_FAILED : SN_EXIT_OK;
}

static int run_cases(const session *s)
{
    int code = SN_EXIT_OK, ran = 0;
    for (size_t a = 0; a < SN_COUNT(areas); a++)
        for (const bench_case *c = areas[a]; c->name; c++)
            if (wanted(s->area, s->only, c)) {
                int this_one = run_case(s, c);
                code = SN_MAX(code, this_one);
                ran++;
            }
    if (ran)
        return code;
    fprintf(stderr, "supernode bench: no case of area %s has '%s' in its name\n", s->area, s->only);
    return SN_EXIT_USAGE;
}

/* Cases know --only and --pairs, calibrate knows the rest: nothing is passed over in silence. */
static bool flags_belong(const sn_args *args, const char *area)
{
    static const char *const of_cases[] = {"only", "pairs", NULL};
    static const char *const of_calibrate[] = {"hosts", "cards", "check", NULL};
    bool calibrate = !strcmp(area, "calibrate");
    for (const char *const *other = calibrate ? of_cases : of_calibrate; *other; other++)
        if (sn_args_get(args, *other)) {
            fprintf(stderr, "supernode bench: --%s is %s bench calibrate\n", *other,
                    calibrate ? "not for" : "for");
            return false;
        }
    return true;
}

int sn_cmd_bench(const sn_args *args)
{
    char self[4096];
    int64_t pairs = 30;
    sn_str commit = {0};
    session s = {.area = args->words ? args->word[0] : "all",
                 .only = sn_args_get(args, "only"),
                 .json = sn_args_get(args, "json") != NULL};
    if (!flags_belong(args, s.area))
        return SN_EXIT_USAGE;
    if (!strcmp(s.area, "calibrate"))
        return bench_calibrate_verb(args);
    if (!known(s.area))
        return no_area(s.area);
    if (!sn_args_int(args, "pairs", 1, BENCH_SAMPLES_MAX, &pairs))
        return SN_EXIT_USAGE;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[SN_MAX(n, 0)] = 0;
    s.opts = (bench_opts){.pairs = (int) pairs, .self = self, .peers = getenv("SUPERNODE_PEERS")};
    s.commit = commit_of(&commit);
    int code = run_cases(&s);
    sn_str_done(&commit);
    return code;
}
