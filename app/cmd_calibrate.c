/* SPDX-License-Identifier: Apache-2.0
 * supernode bench calibrate: measure what collectives cost here, keep it, judge the choice. */
#include "bench_calibrate.h"

#include "cmd.h"

#include "os/os.h"

#include <stdlib.h>

#include <jansson.h>

#define BUSY 0.4 /* error from which on a hint is given */

typedef struct wish {
    bool json, check;
    double seconds; /* for each shape */
    int shapes;
    int shape[2][2]; /* hosts, cards */
} wish;

/* ---- saying ---- */

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

static void say_calibration(const sn_calibration *c)
{
    char a[32], b[32], d[32];
    const sn_calibration_rates *r = &c->rates;
    printf("%d host%s x %d card%s\n", c->hosts, plural(c->hosts), c->cards, plural(c->cards));
    printf("  in a host      ");
    if (r->signal_ns > 0)
        printf("signal %s, ", sn_fmt_ns(a, r->signal_ns));
    printf("copy %s, reduce %s; all at once %.2f times as long\n",
           sn_fmt_rate(a, r->copy_bytes_per_s), sn_fmt_rate(b, r->reduce_bytes_per_s),
           r->contention);
    if (c->hosts > 1)
        printf("  between hosts  latency %s, %s, %s a further message\n",
               sn_fmt_ns(a, r->net_latency_ns), sn_fmt_rate(b, r->net_bytes_per_s),
               sn_fmt_ns(d, r->net_message_ns));
    printf("  collectives    %d measured in %.1f s, the model is %.0f %% off on average\n",
           c->samples, c->seconds, 100 * c->error);
    if (c->error > BUSY)
        printf("  that is much   was the machine busy? measure again when nothing else runs\n");
    printf("  kept in        %s\n", c->path);
    fflush(stdout);
}

static void say_calibration_json(const sn_calibration *c)
{
    sn_str text = {0};
    sn_calibration_json(c, &text);
    json_t *o = json_loads(sn_str_get(&text), 0, NULL);
    json_object_set_new(o, "path", json_string(c->path));
    json_dumpf(o, stdout, JSON_COMPACT);
    putchar('\n');
    fflush(stdout);
    json_decref(o);
    sn_str_done(&text);
}

static void say_choices(int hosts, int cards, const bench_choices *all)
{
    char size[32], x[32], y[32];
    printf("\nchoosing among %d cards on %d host%s\n  %-15s %10s  %-18s %11s  %-18s %11s %8s\n",
           hosts * cards, hosts, plural(hosts), "operation", "bytes", "chosen", "takes", "best",
           "takes", "regret");
    for (int i = 0; i < all->n; i++) {
        const bench_choice *c = &all->at[i];
        printf("  %-15s %10s  %-18s %11s  %-18s %11s %6.1f %%\n", sn_coll_op_name(c->call.op),
               sn_fmt_bytes(size, 4.0 * (double) c->call.count), c->chosen->name,
               sn_fmt_ns(x, c->chosen_ns), c->best->name, sn_fmt_ns(y, c->best_ns),
               100 * c->regret);
    }
    printf("  regret %.1f %% on average, %.1f %% at worst; %.0f %% of the calls within 5 %%\n",
           100 * all->mean, 100 * all->worst, 100 * all->within);
    fflush(stdout);
}

static void say_choices_json(int hosts, int cards, const bench_choices *all)
{
    json_t *calls = json_array();
    for (int i = 0; i < all->n; i++) {
        const bench_choice *c = &all->at[i];
        json_array_append_new(
            calls,
            json_pack("{s:s, s:I, s:s, s:s, s:f, s:f, s:f, s:f}", "op", sn_coll_op_name(c->call.op),
                      "bytes", (json_int_t) (4 * c->call.count), "chosen", c->chosen->name, "best",
                      c->best->name, "predicted_ns", c->predicted_ns, "chosen_ns", c->chosen_ns,
                      "best_ns", c->best_ns, "regret", c->regret));
    }
    json_t *o = json_pack("{s:i, s:i, s:f, s:f, s:f, s:b, s:o}", "hosts", hosts, "cards", cards,
                          "regret_mean", all->mean, "regret_worst", all->worst, "within_5_percent",
                          all->within, "met", all->mean <= 0.05, "calls", calls);
    json_dumpf(o, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
    putchar('\n');
    fflush(stdout);
    json_decref(o);
}

/* ---- doing ---- */

static sn_status check_shape(const wish *w, const sn_calibration *c)
{
    bench_choices *all = sn_alloc(sizeof *all);
    sn_status status = bench_choices_measure(c->hosts, c->cards, &c->model, 3 * w->seconds, all);
    if (status >= 0 && w->json)
        say_choices_json(c->hosts, c->cards, all);
    else if (status >= 0)
        say_choices(c->hosts, c->cards, all);
    free(all);
    return status;
}

static sn_status do_shape(const wish *w, const int shape[2])
{
    sn_calibration *c = sn_alloc(sizeof *c);
    *c = (sn_calibration){
        .hosts = shape[0], .cards = shape[1], .kind = sn_hosts_kind_of(shape[0], false)};
    sn_status status = sn_calibration_place(c);
    if (status >= 0)
        status = bench_calibrate(shape[0], shape[1], w->seconds, c);
    if (status >= 0)
        status = sn_calibration_save(c);
    if (status >= 0 && w->json)
        say_calibration_json(c);
    else if (status >= 0)
        say_calibration(c);
    if (status >= 0 && w->check)
        status = check_shape(w, c);
    free(c);
    return status;
}

static sn_status do_launched(const wish *w)
{
    sn_boot *boot;
    SN_TRY(sn_boot_pmix(&boot));
    sn_calibration *c = sn_alloc(sizeof *c);
    sn_status status = bench_calibrate_launched(boot, 2 * w->seconds, c);
    if (status >= 0 && sn_boot_rank(boot) == 0) {
        status = sn_calibration_save(c);
        if (status >= 0 && w->json)
            say_calibration_json(c);
        else if (status >= 0)
            say_calibration(c);
    }
    free(c);
    sn_boot_free(boot);
    return status;
}

/* Without flags what jobs on this machine take most: a host with a card a core, and two of them. */
static bool read_wish(const sn_args *args, wish *w)
{
    int64_t hosts = 0, cards = 0;
    if (!sn_args_int(args, "hosts", 1, BENCH_HOSTS_MAX, &hosts) ||
        !sn_args_int(args, "cards", 1, BENCH_WORLD_MAX, &cards))
        return false;
    int cores = SN_MIN(SN_MAX(sn_cores(), 2), BENCH_WORLD_MAX / 2);
    *w = (wish){.json = sn_args_get(args, "json") != NULL,
                .check = sn_args_get(args, "check") != NULL,
                .seconds = 4,
                .shapes = 2,
                .shape = {{1, cores}, {2, cores}}};
    if (hosts || cards) {
        w->shapes = 1;
        w->seconds = 7;
        w->shape[0][0] = (int) SN_MAX(hosts, 1);
        w->shape[0][1] = cards ? (int) cards : cores;
    }
    return true;
}

int bench_calibrate_verb(const sn_args *args)
{
    wish w;
    if (!read_wish(args, &w))
        return SN_EXIT_USAGE;
    sn_status status = SN_OK;
    if (sn_under_launcher())
        status = do_launched(&w);
    for (int i = 0; i < w.shapes && status >= 0 && !sn_under_launcher(); i++)
        status = do_shape(&w, w.shape[i]);
    return status < 0 ? sn_exit_with("bench calibrate", status) : SN_EXIT_OK;
}
