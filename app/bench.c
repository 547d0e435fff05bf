/* SPDX-License-Identifier: Apache-2.0
 * supernode bench: run the cases of an area, one JSON line (or table row) each. */
#include "bench.h"

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

static const bench_case *const areas[] = {bench_compute, bench_net,  bench_coll,
                                          bench_train,   bench_ckpt, bench_plan};

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
    k = SN_MAX(k, 1);
    *ret_low = s[k - 1];
    *ret_high = s[n - k];
    free(s);
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
    char bar[64];
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
        v->met = v->ratio_low >= c->bar_value;
        break;
    case BENCH_SHARE_MIN:
        snprintf(v->bar, sizeof v->bar, ">= %g %% of %s", 100 * c->bar_value, c->bound_name);
        v->met =
            r->bound > 0 && (c->less_is_better ? r->bound / high : low / r->bound) >= c->bar_value;
        break;
    case BENCH_VALUE_MAX:
        snprintf(v->bar, sizeof v->bar, "<= %g %s", c->bar_value, c->unit);
        v->met = high <= c->bar_value;
        break;
    case BENCH_VALUE_MIN:
        snprintf(v->bar, sizeof v->bar, ">= %g %s", c->bar_value, c->unit);
        v->met = low >= c->bar_value;
        break;
    }
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
    const char *argv[] = {"git", "rev-parse", "--short", "HEAD", NULL};
    if (bench_capture(argv, 5, out) != 0)
        sn_str_clear(out);
    if (out->len && out->data[out->len - 1] == '\n')
        out->data[--out->len] = 0;
    return sn_str_get(out);
}

static void say_json(const bench_case *c, const bench_result *r, const verdict *v,
                     const char *commit)
{
    struct utsname u;
    char machine[128];
    uname(&u);
    snprintf(machine, sizeof machine, "%.40s %.40s, %d cores", u.sysname, u.machine, sn_cores());
    json_t *o = json_object();
    json_object_set_new(o, "name", json_string(c->name));
    json_object_set_new(o, "value", number(v->value));
    json_object_set_new(o, "unit", json_string(c->unit));
    json_object_set_new(o, "samples", array(r->sample, r->samples));
    json_object_set_new(o, "peer", text_or_null(c->peer));
    json_object_set_new(o, "peer_value", number(v->peer_value));
    json_object_set_new(o, "peer_samples", array(r->peer_sample, r->peer_samples));
    json_object_set_new(o, "ratio", number(v->ratio));
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
    printf("%-34s %12.5g %-8s", c->name, v->value, c->unit);
    if (r->peer_samples)
        printf("  %s %.5g, ratio %.2f [%.2f, %.2f]", c->peer, v->peer_value, v->ratio, v->ratio_low,
               v->ratio_high);
    if (r->bound > 0)
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

int sn_cmd_bench(const sn_args *args)
{
    const char *area = args->words ? args->word[0] : "all", *only = sn_args_get(args, "only");
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    int64_t pairs = 30;
    sn_str commit = {0};
    if (!known(area)) {
        fprintf(stderr,
                "supernode bench: no area '%s'; there are compute, net, coll, train, ckpt, plan "
                "and all\n",
                area);
        return SN_EXIT_USAGE;
    }
    if (!sn_args_int(args, "pairs", 1, BENCH_SAMPLES_MAX, &pairs))
        return SN_EXIT_USAGE;
    self[SN_MAX(n, 0)] = 0;
    bench_opts opts = {.pairs = (int) pairs, .self = self, .peers = getenv("SUPERNODE_PEERS")};
    bench_result *r = sn_alloc(sizeof *r);
    commit_of(&commit);
    int code = SN_EXIT_OK;
    for (size_t a = 0; a < SN_COUNT(areas); a++)
        for (const bench_case *c = areas[a]; c->name; c++) {
            if (!wanted(area, only, c))
                continue;
            memset(r, 0, sizeof *r);
            verdict v;
            if (c->run(c, &opts, r) < 0) {
                fprintf(stderr, "supernode bench: %s: %s\n", c->name, sn_errmsg());
                code = SN_EXIT_FAILED;
                continue;
            }
            judge(c, r, &v);
            if (sn_args_get(args, "json"))
                say_json(c, r, &v, sn_str_get(&commit));
            else
                say_row(c, r, &v);
        }
    sn_str_done(&commit);
    free(r);
    return code;
}
