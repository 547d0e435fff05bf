/* SPDX-License-Identifier: Apache-2.0
 * supernode sim: what a run would take on cards that are not here. */
#include "cmd.h"
#include "sim_say.h"

#include "os/os.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is asked ---- */

static sn_status number(const sn_args *args, const char *flag, double least, double most,
                        double *ret)
{
    const char *text = sn_args_get(args, flag);
    double v;
    if (!text)
        return SN_OK;
    if (!sn_str_to_float(text, &v) || v < least || v > most)
        return sn_fail(SN_EINVAL, "--%s is '%.60s', it must be a number from %g to %g", flag, text,
                       least, most);
    *ret = v;
    return SN_OK;
}

static sn_status model_of(const char *name, sn_sim_model *ret)
{
    const sn_sim_model *all;
    const char *names[64];
    int n = sn_sim_models(&all);
    if (!name)
        return sn_fail(SN_EINVAL, "--model is missing: gpt3-175b, llama3-405b, … (supernode sim "
                                  "models lists them)");
    for (int i = 0; i < n && i < (int) SN_COUNT(names); i++) {
        names[i] = all[i].name;
        if (!strcmp(name, all[i].name)) {
            *ret = all[i];
            return SN_OK;
        }
    }
    const char *near = sn_str_nearest(name, names, n);
    return sn_fail(SN_EINVAL,
                   "model '%.60s' is not known to foresight%s%s%s (supernode sim models "
                   "lists them)",
                   name, near ? ", did you mean " : "", near ? near : "", near ? "?" : "");
}

static sn_status cluster_of(const sn_args *args, sn_sim_cluster *ret)
{
    const char *file = sn_args_get(args, "cluster"), *kind = sn_args_get(args, "card");
    double net = 0;
    int64_t cards = 0;
    sn_topo *topo;
    if (file) {
        SN_TRY(sn_cluster_read(file, &topo));
        sn_status status = sn_sim_cluster_from(topo, ret);
        sn_topo_free(topo);
        return status < 0 ? sn_fail_in(status, "%s", file) : status;
    }
    const sn_sim_card *card = sn_sim_card_find(kind ? kind : "h100");
    if (!card)
        return sn_fail(SN_EINVAL,
                       "--card is '%.60s', which is not in the table (supernode sim cards "
                       "prints it)",
                       kind);
    if (!sn_args_get(args, "cards") || !sn_args_int(args, "cards", 1, 1 << 24, &cards))
        return sn_fail(SN_EINVAL, "say which cluster: --cluster FILE, or --card KIND --cards N");
    SN_TRY(number(args, "net", 0.001, 1e5, &net));
    *ret = sn_sim_cluster_of(card, (int) cards, net * 1e9 / 8);
    return SN_OK;
}

static sn_status question(const sn_args *args, sim_question *q)
{
    int64_t sequence = 0;
    double over = 0, pue = 0;
    SN_TRY(model_of(sn_args_get(args, "model"), &q->model));
    SN_TRY(cluster_of(args, &q->cluster));
    q->batch = 1536;
    if (!sn_args_int(args, "batch", 1, INT64_C(1) << 32, &q->batch) ||
        !sn_args_int(args, "sequence", 1, INT64_C(1) << 30, &sequence))
        return sn_fail(SN_EINVAL, "a number is out of its range");
    if (sequence)
        q->model.sequence = sequence;
    SN_TRY(number(args, "oversubscription", 1, 1000, &over));
    SN_TRY(number(args, "pue", 1, 3, &pue));
    if (over > 0)
        q->cluster.oversubscription = over;
    if (pue > 0)
        q->cluster.pue = pue;
    return SN_OK;
}

/* ---- plan ---- */

static sn_status write_file(const char *path, const sn_str *text, const char *what)
{
    SN_TRY(sn_file_write(path, sn_str_get(text), text->len));
    fprintf(stderr, "supernode sim: the %s is %s\n", what, path);
    return SN_OK;
}

/* What was asked for beside the table: a page, a trace. */
static sn_status write_pictures(const sn_args *args, const sim_question *q, const sn_sim_answer *a,
                                const sn_sim_ran *ran)
{
    const char *page = sn_args_get(args, "html"), *trace = sn_args_get(args, "trace");
    sn_str text = {0};
    sn_status status = SN_OK;
    if (page) {
        sim_page(q, a, ran, &text);
        status = write_file(page, &text, "report");
    }
    sn_str_clear(&text);
    if (trace && status >= 0) {
        sim_trace(q, a, &text);
        status = write_file(trace, &text, "trace");
    }
    sn_str_done(&text);
    return status;
}

sn_status sn_sim_plan(const sn_args *args)
{
    sim_question q;
    sn_sim_answer *a = sn_alloc(sizeof *a);
    sn_time began = sn_now();
    sn_status status = question(args, &q);
    if (status >= 0)
        status = sn_sim_search(&q.cluster, &q.model, q.batch, a);
    q.seconds = (double) (sn_now() - began) * 1e-9;
    if (status >= 0) {
        if (sn_args_get(args, "json"))
            sim_json_plan(&q, a);
        else
            sim_say_plan(&q, a);
        status = write_pictures(args, &q, a, NULL);
    }
    free(a);
    return status;
}

/* ---- run ---- */

static sn_status recovery_of(const sn_args *args, sn_sim_recovery *ret)
{
    const sn_sim_recovery *all;
    int n = sn_sim_recoveries(&all);
    const char *name = sn_args_get(args, "recovery");
    *ret = all[0];
    for (int i = 0; name && i < n; i++)
        if (strstr(all[i].name, name)) {
            *ret = all[i];
            return SN_OK;
        }
    return name ? sn_fail(SN_EINVAL,
                          "--recovery is '%.60s', it must be (part of) one of: %s; %s; "
                          "%s; %s",
                          name, all[0].name, all[1].name, all[2].name, all[3].name)
                : SN_OK;
}

static sn_status run_of(const sn_args *args, const sim_question *q, const sn_sim_step *step,
                        sn_sim_plan_of_run *ret)
{
    int64_t seed = 1;
    *ret = (sn_sim_plan_of_run){.step_seconds = step->seconds,
                                .tokens_per_step = (double) (q->batch * q->model.sequence),
                                .cards = q->cluster.cards,
                                .per_host = q->cluster.per_host,
                                .failures_per_1000_node_days =
                                    6.5, /* Meta's RSC-1, arXiv:2410.21680 */
                                .card_watts = q->cluster.card->watts,
                                .host_watts = q->cluster.host_watts,
                                .pue = q->cluster.pue,
                                .dollars_per_card_hour = q->cluster.card->dollars_per_hour,
                                .dollars_per_kwh = 0.08,
                                .co2_kg_per_kwh = 0.4,
                                .repair_hours = 24};
    SN_TRY(number(args, "tokens", 1, 1e18, &ret->tokens));
    SN_TRY(number(args, "days", 1e-3, 1e5, &ret->days));
    SN_TRY(number(args, "failures", 0, 1e6, &ret->failures_per_1000_node_days));
    SN_TRY(number(args, "dollars-per-kwh", 0, 100, &ret->dollars_per_kwh));
    SN_TRY(number(args, "co2-per-kwh", 0, 10, &ret->co2_kg_per_kwh));
    SN_TRY(recovery_of(args, &ret->recovery));
    if (!sn_args_int(args, "seed", 0, INT64_MAX, &seed))
        return sn_fail(SN_EINVAL, "--seed is out of its range");
    ret->seed = (uint64_t) seed;
    return SN_OK;
}

static sn_status sim_run(const sn_args *args)
{
    sim_question q;
    sn_sim_plan_of_run p;
    sn_sim_ran ran[8];
    const sn_sim_recovery *all;
    int n = sn_sim_recoveries(&all);
    sn_sim_answer *a = sn_alloc(sizeof *a);
    sn_status status = question(args, &q);
    if (status >= 0)
        status = sn_sim_search(&q.cluster, &q.model, q.batch, a);
    if (status >= 0)
        status = run_of(args, &q, &a->best[0].step, &p);
    sn_sim_recovery asked = p.recovery;
    for (int i = 0; i <= n && status >= 0; i++) { /* the one asked for, then all for comparison */
        p.recovery = i ? all[i - 1] : asked;
        status = sn_sim_run(&p, &ran[i]);
        if (i > 0 && status < 0) { /* one of the others cannot live with so many failures */
            ran[i] = (sn_sim_ran){.useful = 0};
            status = SN_OK;
        }
    }
    p.recovery = asked;
    if (status >= 0) {
        if (sn_args_get(args, "json"))
            sim_json_run(&q, a, &p, ran);
        else
            sim_say_run(&q, a, &p, ran);
        status = write_pictures(args, &q, a, &ran[0]);
    }
    free(a);
    return status;
}

/* ---- links ---- */

static sn_status sim_links(const sn_args *args)
{
    const char *file = sn_args_get(args, "cluster");
    sn_sim_cluster c;
    sn_topo *topo;
    double ring = 0, all = 0;
    if (!file)
        return sn_fail(SN_EINVAL, "--cluster FILE is missing: whose links?");
    SN_TRY(sn_cluster_read(file, &topo));
    int cards = SN_MIN(topo->cards, 1024);
    sn_status status = sn_sim_cluster_from(topo, &c);
    if (status >= 0)
        status = sn_sim_pattern(topo, SN_SIM_RING, cards, 1e9, &ring);
    if (status >= 0)
        status = sn_sim_pattern(topo, SN_SIM_ALL_TO_ALL, cards, 1e9, &all);
    if (status >= 0)
        sim_say_links(topo, &c, cards, ring, all, sn_args_get(args, "json") != NULL);
    sn_topo_free(topo);
    return status < 0 ? sn_fail_in(status, "%s", file) : status;
}

/* ---- the verb ---- */

static sn_status sim_truth(const sn_args *args)
{
    sn_arena *arena = sn_arena_create();
    sn_sim_fact *fact;
    int n = sn_sim_truth(arena, &fact);
    sim_say_truth(fact, n, sn_args_get(args, "json") != NULL);
    sn_arena_free(arena);
    return SN_OK;
}

static sn_status sim_cards(const sn_args *args)
{
    sim_say_cards();
    return SN_OK;
}

static sn_status sim_models(const sn_args *args)
{
    sim_say_models();
    return SN_OK;
}

static sn_status sim_claims(const sn_args *args)
{
    return sim_say_claims(sn_args_get(args, "json") != NULL);
}

int sn_cmd_sim(const sn_args *args)
{
    static const struct {
        const char *word;
        sn_status (*run)(const sn_args *args);
    } rows[] = {{"plan", sn_sim_plan},  {"run", sim_run},     {"truth", sim_truth},
                {"claims", sim_claims}, {"cards", sim_cards}, {"models", sim_models},
                {"links", sim_links},   {"net", sn_simnet}};
    const char *word = args->words ? args->word[0] : "plan";
    sn_status status = SN_PENDING;
    for (size_t i = 0; i < SN_COUNT(rows) && status == SN_PENDING; i++)
        if (!strcmp(word, rows[i].word))
            status = rows[i].run(args);
    if (status == SN_PENDING)
        status = sn_fail(SN_EINVAL,
                         "'%.60s' is not something to simulate: plan, run, truth, claims, links, "
                         "net, cards or models",
                         word);
    return status < 0 ? sn_exit_with("sim", status) : SN_EXIT_OK;
}
