/* SPDX-License-Identifier: Apache-2.0
 *
 * bench — a case measures something beside its peer and its physical bound, in one run,
 * interleaved.
 *
 *   A case fills `sample` (ours) and, if there is a peer, `peer_sample` pair by pair (A B A B); the
 * harness takes medians, the median pair's ratio, the 95 % interval of that median from order
 * statistics, and says whether the bar is met.
 *
 * Bars: BENCH_RATIO_MIN compares the pairs' ratio (ours / peer, turned so that more is better when
 * `less_is_better`) and asks for 30 pairs: their median has to meet the bar, its interval is said
 * beside it. BENCH_SHARE is about `share_min` alone, BENCH_VALUE_MAX/MIN about the value itself: of
 * these the whole interval has to meet the bar. BENCH_TAIL_MAX is about the 99th percentile, which
 * is then the value; of fewer than 100 samples it is the worst; BENCH_MEAN_MAX about the mean. Both
 * ask for 30 samples.
 * `share_min` is a second bar, the least share of the bound, beside any of these.
 *
 * The process of the harness never computes and has one thread: cases fork the ranks that do. */
#ifndef SN_APP_BENCH_H
#define SN_APP_BENCH_H

#include "cmd.h"

typedef enum bench_bar {
    BENCH_NO_BAR,
    BENCH_RATIO_MIN,
    BENCH_SHARE,
    BENCH_VALUE_MAX,
    BENCH_VALUE_MIN,
    BENCH_TAIL_MAX,
    BENCH_MEAN_MAX
} bench_bar;

#define BENCH_SAMPLES_MAX 1024

typedef struct bench_result {
    double sample[BENCH_SAMPLES_MAX];
    int samples;
    double peer_sample[BENCH_SAMPLES_MAX];
    int peer_samples;
    double bound;   /* in the value's unit, measured in this run; 0 none */
    char note[256]; /* why there is no peer, what was measured */
} bench_result;

typedef struct bench_opts {
    int pairs;         /* interleaved pairs of a ratio */
    const char *self;  /* path of this program */
    const char *peers; /* directory of the peers' programs ($SUPERNODE_PEERS), NULL: not given */
} bench_opts;

typedef struct bench_case {
    const char *area, *name, *unit;
    bool less_is_better;
    const char *peer;       /* "Open MPI", NULL none */
    const char *bound_name; /* "FMA peak", NULL none */
    bench_bar bar;
    double bar_value, share_min;
    int arg; /* for cases that share a function */
    sn_status (*run)(const struct bench_case *c, const bench_opts *o, bench_result *ret);
} bench_case;

/* One or more tables an area; ends with name NULL. */
extern const bench_case bench_compute[], bench_net[], bench_gmem[], bench_coll[], bench_gloo[],
    bench_choice_cases[], bench_codec[], bench_link[], bench_watch[], bench_death[], bench_train[],
    bench_model[], bench_ckpt[], bench_heal[], bench_plan[], bench_sim[];

/* The median of n values (sorts a copy), and the order statistics that enclose the true median with
 * ≥ 95 %: without bounds when n < 6, too few to say so. */
double bench_median(const double *v, int n);
void bench_interval(const double *v, int n, double *ret_low, double *ret_high);
double bench_tail(const double *v, int n); /* the smallest that 99 % do not exceed */

/* Run a program with its output captured (at most 64 KiB), `seconds` at most; returns its exit
 * code, -1 when it could not run. */
int bench_capture(const char *const *argv, double seconds, sn_str *out);
/* What a file of /proc says, which has no size to ask for; cut at max - 1 bytes. */
size_t bench_read_proc(const char *path, char *ret, size_t max);
/* True when `program` is in PATH. */
bool bench_has(const char *program);

#endif
