/* SPDX-License-Identifier: Apache-2.0
 * supernode sim net: one run of packets, a comparison of controllers, or training. */
#include "cmd.h"
#include "simnet.h"

#include "os/os.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const simnet_control[SIMNET_CONTROLS] = {"none", "dcqcn", "tuned", "learned", "ideal"};

/* ---- the question ---- */

static sn_status number(const sn_args *args, const char *flag, double least, double most,
                        double *ret)
{
    const char *text = sn_args_get(args, flag);
    double v;
    if (text == NULL)
        return SN_OK;
    if (!sn_str_to_float(text, &v) || !(v >= least && v <= most))
        return sn_fail(SN_EINVAL, "--%s is '%.60s', it must be a number from %g to %g", flag, text,
                       least, most);
    *ret = v;
    return SN_OK;
}

static sn_status count(const sn_args *args, const char *flag, int64_t least, int64_t most,
                       int64_t *ret)
{
    const char *text = sn_args_get(args, flag);
    int64_t v;
    if (text == NULL)
        return SN_OK;
    if (!sn_str_to_int(text, &v) || v < least || v > most)
        return sn_fail(SN_EINVAL, "--%s is '%.60s', it must be a whole number from %lld to %lld",
                       flag, text, (long long) least, (long long) most);
    *ret = v;
    return SN_OK;
}

static sn_status named(const sn_args *args, const char *flag, const char *const *names, int n,
                       int *ret)
{
    const char *text = sn_args_get(args, flag);
    sn_str all = {0};
    for (int i = 0; i < n; i++) {
        sn_str_printf(&all, "%s%s", i == 0 ? "" : i + 1 == n ? " or " : ", ", names[i]);
        if (text == NULL || strcmp(text, names[i]) == 0) {
            *ret = text == NULL ? *ret : i;
            sn_str_done(&all);
            return SN_OK;
        }
    }
    sn_status status =
        sn_fail(SN_EINVAL, "--%s is '%.60s', it must be %s", flag, text, sn_str_get(&all));
    sn_str_done(&all);
    return status;
}

static sn_status read_opts(const sn_args *args, sn_roce_opts *o)
{
    const char *names[SN_ROCE_TRAFFICS], *buffer = sn_args_get(args, "buffer");
    int traffic = SN_ROCE_MIXED;
    int64_t k = 4, mtu = 4096, seed = 1;
    double load = 90, gbit = 100, ms = 24;
    uint64_t bytes = 512 << 10;
    sn_roce_defaults(o);
    for (int i = 0; i < SN_ROCE_TRAFFICS; i++)
        names[i] = sn_roce_traffic_name((sn_roce_traffic) i);
    SN_TRY(named(args, "traffic", names, SN_ROCE_TRAFFICS, &traffic));
    SN_TRY(number(args, "load", 1, 150, &load));
    SN_TRY(number(args, "net", 1, 10000, &gbit));
    SN_TRY(number(args, "ms", 0.1, 10000, &ms));
    SN_TRY(count(args, "ports", 2, 16, &k));
    SN_TRY(count(args, "mtu", 256, 16384, &mtu));
    SN_TRY(count(args, "seed", 0, INT64_MAX, &seed));
    if (buffer && (!sn_str_to_bytes(buffer, &bytes) || bytes > UINT64_C(1) << 40))
        return sn_fail(SN_EINVAL, "--buffer is '%.60s', not a size like 512K or 2M", buffer);
    o->traffic = (sn_roce_traffic) traffic;
    o->load = load / 100, o->link_bps = gbit * 1e9;
    o->duration_ms = ms, o->warmup_ms = ms / 6, o->window_ms = 1;
    o->k = (int) k, o->mtu_bytes = (int) mtu, o->seed = (uint64_t) seed;
    o->buffer_bytes = (double) bytes;
    o->pfc_off = sn_args_get(args, "pfc-off") != NULL;
    return SN_OK;
}

/* The numbers of a file, whatever stands between them, after the comment at its head. */
static sn_status read_weights(const char *path, sn_roce_policy *ret)
{
    char *text;
    size_t bytes;
    int n = 0;
    SN_TRY(sn_file_read(path, 1 << 20, &text, &bytes));
    const char *at = strstr(text, "*/") ? strstr(text, "*/") + 2 : text;
    for (; *(at += strspn(at, " \t\r\n,f")); n++) {
        char *end;
        float w = strtof(at, &end);
        if (end == at || !isfinite(w) || n == SN_ROCE_WEIGHTS)
            break;
        ret->w[n] = w;
        at = end;
    }
    bool whole = *at == '\0' && n == SN_ROCE_WEIGHTS;
    free(text);
    return whole ? SN_OK
                 : sn_fail(SN_EINVAL,
                           "%.200s does not hold %d weights: number %d is missing or not one", path,
                           SN_ROCE_WEIGHTS, n + 1);
}

sn_status simnet_choose(int control, const sn_roce_policy *policy, sn_roce_opts *o)
{
    if (control == 0)
        o->control = SN_ROCE_NONE;
    else if (control == 3)
        o->control = SN_ROCE_LEARNED;
    else if (control == 4)
        o->control = SN_ROCE_IDEAL;
    else
        o->control = SN_ROCE_DCQCN;
    if (control == 2)
        sn_roce_use_tuned(o);
    o->policy = policy;
    return SN_OK;
}

/* ---- one run ---- */

static void result_json(const sn_roce_result *r, const char *control, double load, int64_t seed)
{
    const char *why = sn_roce_unstable(r);
    printf(
        "{\"control\": \"%s\", \"load\": %g, \"seed\": %lld, \"offered_bps\": %.6g, "
        "\"goodput_bps\": %.6g, \"served\": %.4f, \"goodput_cov\": %.4f, \"slowdown_mean\": %.3f, "
        "\"slowdown_p50\": %.3f, \"slowdown_p99\": %.3f, \"jain\": %.4f, \"flows\": %lld, "
        "\"flows_finished\": %lld, ",
        control, load, (long long) seed, r->offered_bps, r->goodput_bps, r->served, r->goodput_cov,
        r->slowdown_mean, r->slowdown_p50, r->slowdown_p99, r->jain, (long long) r->flows,
        (long long) r->flows_finished);
    printf("\"pause_frames\": %lld, \"pause_share\": %.6f, \"pause_longest_us\": %.1f, "
           "\"queue_mean_bytes\": %.0f, \"queue_p99_bytes\": %.0f, \"queue_max_bytes\": %.0f, "
           "\"marked_share\": %.5f, \"drops\": %lld, \"packets\": %lld, \"events\": %lld, "
           "\"stable\": %s, \"unstable_because\": ",
           (long long) r->pause_frames, r->pause_share, r->pause_longest_us, r->queue_mean_bytes,
           r->queue_p99_bytes, r->queue_max_bytes, r->marked_share, (long long) r->drops,
           (long long) r->packets, (long long) r->events, why ? "false" : "true");
    printf(why ? "\"%s\"}\n" : "null}\n", why);
}

static void result_text(const sn_roce_opts *o, const sn_roce_result *r, const char *control,
                        double seconds)
{
    char a[32], b[32], c[32];
    const char *why = sn_roce_unstable(r);
    printf("%s control, %s traffic at %.0f %% of %g Gbit/s, %d hosts, seed %llu\n", control,
           sn_roce_traffic_name(o->traffic), o->load * 100, o->link_bps / 1e9,
           o->k * o->k * o->k / 4, (unsigned long long) o->seed);
    printf(
        "  goodput    %.1f of %.1f Gbit/s offered a host (%.1f %%), varying by %.3f of its mean\n",
        r->goodput_bps / 1e9, r->offered_bps / 1e9, r->served * 100, r->goodput_cov);
    printf("  flows      %lld of %lld done; slowdown %.2f p50, %.1f p99; fairness %.3f (Jain)\n",
           (long long) r->flows_finished, (long long) r->flows, r->slowdown_p50, r->slowdown_p99,
           r->jain);
    printf("  pauses     %lld frames; links stood %.3f %% of the time, %.0f us at the longest\n",
           (long long) r->pause_frames, r->pause_share * 100, r->pause_longest_us);
    printf("  queues     %s mean, %s p99, %s at most; %.2f %% marked, %lld dropped\n",
           sn_fmt_bytes(a, r->queue_mean_bytes), sn_fmt_bytes(b, r->queue_p99_bytes),
           sn_fmt_bytes(c, r->queue_max_bytes), r->marked_share * 100, (long long) r->drops);
    printf("  %s%s\n", why ? "not stable: " : "stable", why ? why : "");
    printf("  simulated  %.2f M events in %.2f s\n", (double) r->events / 1e6, seconds);
}

static sn_status one_run(const sn_args *args, sn_roce_opts *o, const sn_roce_policy *policy)
{
    sn_roce_result r;
    int control = 3;
    SN_TRY(named(args, "control", simnet_control, SIMNET_CONTROLS, &control));
    SN_TRY(simnet_choose(control, policy, o));
    sn_time began = sn_now();
    SN_TRY(sn_roce_run(o, &r, NULL));
    if (sn_args_get(args, "json"))
        result_json(&r, simnet_control[control], o->load, (int64_t) o->seed);
    else
        result_text(o, &r, simnet_control[control], (double) (sn_now() - began) / 1e9);
    return SN_OK;
}

/* ---- the comparison ---- */

static void add_to(simnet_row *row, const sn_roce_result *r, double part)
{
    sn_roce_result *m = &row->mean;
    const char *why = sn_roce_unstable(r);
    row->stable += why == NULL;
    row->why = row->why ? row->why : why;
    m->offered_bps += part * r->offered_bps;
    m->goodput_bps += part * r->goodput_bps;
    m->served += part * r->served;
    m->goodput_cov += part * r->goodput_cov;
    m->slowdown_mean += part * r->slowdown_mean;
    m->slowdown_p50 += part * r->slowdown_p50;
    m->slowdown_p99 += part * r->slowdown_p99;
    m->jain += part * r->jain;
    m->pause_share += part * r->pause_share;
    m->queue_p99_bytes += part * r->queue_p99_bytes;
    m->marked_share += part * r->marked_share;
    m->pause_frames += r->pause_frames;
    m->drops += r->drops;
    m->pause_longest_us = fmax(m->pause_longest_us, r->pause_longest_us);
}

static sn_status compare_cell(simnet_comparison *c, int load, int control,
                              const sn_roce_policy *policy, bool json)
{
    simnet_row *row = &c->row[load][control];
    *row = (simnet_row){.control = control, .load = load};
    for (int s = 0; s < c->seeds; s++) {
        sn_roce_opts o = c->opts;
        sn_roce_result r;
        SN_TRY(simnet_choose(control, policy, &o));
        o.load = c->load[load];
        o.seed = c->first_seed + (uint64_t) s;
        SN_TRY(sn_roce_run(&o, &r, NULL));
        add_to(row, &r, 1.0 / c->seeds);
        if (json)
            result_json(&r, simnet_control[control], o.load, (int64_t) o.seed);
        if (s == 0 && load == SIMNET_LOADS - 2) /* 90 % */
            c->shown[control] = r;
    }
    return SN_OK;
}

static void compare_line(const simnet_comparison *c, int load, int control)
{
    const simnet_row *row = &c->row[load][control];
    const sn_roce_result *m = &row->mean;
    char queue[32];
    printf("%4.0f %%  %-8s %5.1f %5.1f %%  %6.3f %8.2f %8.1f %7.3f %9lld %8.3f %% %6.0f %12s %5lld "
           "  %d/%d  %s\n",
           c->load[load] * 100, simnet_control[control], m->goodput_bps / 1e9, m->served * 100,
           m->goodput_cov, m->slowdown_p50, m->slowdown_p99, m->jain, (long long) m->pause_frames,
           m->pause_share * 100, m->pause_longest_us, sn_fmt_bytes(queue, m->queue_p99_bytes),
           (long long) m->drops, row->stable, c->seeds, row->why ? row->why : "");
    fflush(stdout);
}

static sn_status compare(const sn_args *args, const sn_roce_opts *o, const sn_roce_policy *policy)
{
    static const double loads[SIMNET_LOADS] = {0.5, 0.6, 0.7, 0.8, 0.9, 0.95};
    bool json = sn_args_get(args, "json") != NULL;
    const char *html = sn_args_get(args, "html");
    int64_t seeds = 5;
    SN_TRY(count(args, "seeds", 1, SIMNET_SEEDS_MAX, &seeds));
    simnet_comparison *c = sn_alloc(sizeof *c);
    *c = (simnet_comparison){.opts = *o, .seeds = (int) seeds, .first_seed = o->seed};
    memcpy(c->load, loads, sizeof(loads));
    if (!json)
        printf("%s traffic, %d hosts at %g Gbit/s, %g ms, seeds %llu to %llu; means over seeds, "
               "pause frames "
               "summed\n"
               "load    control   Gbit/s served     cov  slow50   slow99    jain    pauses     "
               "paused  longest"
               "    queue p99 drops stable\n",
               sn_roce_traffic_name(o->traffic), o->k * o->k * o->k / 4, o->link_bps / 1e9,
               o->duration_ms, (unsigned long long) o->seed,
               (unsigned long long) (o->seed + (uint64_t) seeds - 1));
    sn_status status = SN_OK;
    for (int i = 0; i < SIMNET_LOADS * SIMNET_CONTROLS && status >= 0; i++) {
        status = compare_cell(c, i / SIMNET_CONTROLS, i % SIMNET_CONTROLS, policy, json);
        if (status >= 0 && !json)
            compare_line(c, i / SIMNET_CONTROLS, i % SIMNET_CONTROLS);
    }
    if (status >= 0 && html)
        status = simnet_page(c, html);
    free(c);
    return status;
}

/* ---- training ---- */

static void say_progress(void *ctx, int n, double cost)
{
    fprintf(stderr, "%s %d: cost %.4f\n", (const char *) ctx, n + 1, cost);
}

static sn_status train(const sn_roce_opts *o, int generations)
{
    static char word[] = "generation";
    sn_roce_train_opts t = {.generations = generations,
                            .pairs = 12,
                            .sigma = 0.15,
                            .step = 0.08,
                            .seed = o->seed,
                            .progress = say_progress,
                            .ctx = word};
    sn_roce_policy p;
    SN_TRY(sn_roce_train(o, &t, &p));
    printf("/* SPDX-License-Identifier: Apache-2.0\n"
           " * Weights that `supernode sim net --train %d --seed %llu` wrote: hidden, then output "
           "layer. */\n",
           generations, (unsigned long long) o->seed);
    for (int i = 0; i < SN_ROCE_WEIGHTS; i++)
        printf("%.9ef,%s", (double) p.w[i], i % 5 == 4 || i + 1 == SN_ROCE_WEIGHTS ? "\n" : " ");
    return SN_OK;
}

static sn_status tune(const sn_roce_opts *o, int trials)
{
    static char word[] = "trial";
    sn_roce_opts best = *o;
    SN_TRY(sn_roce_tune(o, trials, o->seed, say_progress, word, &best));
    const sn_roce_dcqcn *d = &best.dcqcn;
    printf("/* SPDX-License-Identifier: Apache-2.0\n"
           " * Parameters that `supernode sim net --tune %d --seed %llu` found. */\n",
           trials, (unsigned long long) o->seed);
    printf("opts->red = (sn_roce_red){.kmin_bytes = %.0f, .kmax_bytes = %.0f, .pmax = %.4f};\n",
           best.red.kmin_bytes, best.red.kmax_bytes, best.red.pmax);
    printf(
        "opts->dcqcn = (sn_roce_dcqcn){.g = %.6f, .alpha_us = %.2f, .cnp_us = %.2f, .timer_us = "
        "%.2f,\n"
        "                             .byte_counter = %.0f, .fast_recovery = %d, .rai_bps = %.4e,\n"
        "                             .rhai_bps = %.4e, .rate_min_bps = %.4e};\n",
        d->g, d->alpha_us, d->cnp_us, d->timer_us, d->byte_counter, d->fast_recovery, d->rai_bps,
        d->rhai_bps, d->rate_min_bps);
    return SN_OK;
}

sn_status sn_simnet(const sn_args *args)
{
    sn_roce_opts o;
    sn_roce_policy given;
    const char *weights = sn_args_get(args, "weights");
    int64_t generations = 0, trials = 0;
    if (args->words > 1)
        return sn_fail(SN_EINVAL, "sim net takes flags only, and `%.60s` is a word", args->word[1]);
    SN_TRY(read_opts(args, &o));
    SN_TRY(count(args, "train", 1, 100000, &generations));
    SN_TRY(count(args, "tune", 1, 100000, &trials));
    if ((generations > 0) + (trials > 0) + (sn_args_get(args, "compare") != NULL) > 1)
        return sn_fail(SN_EINVAL, "--compare, --train and --tune exclude each other");
    if (weights)
        SN_TRY(read_weights(weights, &given));
    const sn_roce_policy *policy = weights ? &given : sn_roce_policy_shipped();
    if (generations)
        return train(&o, (int) generations);
    if (trials)
        return tune(&o, (int) trials);
    return sn_args_get(args, "compare") ? compare(args, &o, policy) : one_run(args, &o, policy);
}
