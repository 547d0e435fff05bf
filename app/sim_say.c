/* SPDX-License-Identifier: Apache-2.0
 * Foresight in words and tables. */
#include "sim_say.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

static const char *const recompute_word[] = {"keeps activations", "recomputes attention",
                                             "recomputes all"};
static const char *const recompute_key[] = {"none", "selective", "full"};
static const char *const schedule_word[] = {"1F1B", "ZB-H1", "ZB-H2"};

void sim_layout_text(const sn_sim_layout *l, sn_str *out)
{
    sn_str_printf(out, "tensor %d x pipeline %d x data %d", l->tensor, l->pipeline, l->data);
    if (l->context > 1)
        sn_str_printf(out, " x context %d", l->context);
    sn_str_printf(out, ", micro-batch %lld", (long long) l->micro_batch);
    if (l->pipeline > 1)
        sn_str_printf(out, ", %s", schedule_word[l->schedule]);
    if (l->virtual_stages > 1)
        sn_str_printf(out, " in %d parts", l->virtual_stages);
    sn_str_printf(out, ", %s%s", recompute_word[l->recompute],
                  l->sequence_parallel ? ", sequence split" : "");
    if (l->shards)
        sn_str_printf(out, ", ZeRO %d", l->shards);
}

/* ---- a plan */

typedef struct part {
    const char *name;
    double seconds;
} part;

static int parts_of(const sn_sim_step *s, part ret[8])
{
    const part all[] = {{"computing", s->compute},         {"computing again", s->again},
                        {"tensor collectives", s->tensor}, {"pipeline bubble", s->bubble},
                        {"gradients, exposed", s->data},   {"optimizer", s->optimizer}};
    memcpy(ret, all, sizeof all);
    return (int) SN_COUNT(all);
}

static void say_parts(const sn_sim_step *s)
{
    part p[8];
    int n = parts_of(s, p);
    for (int i = 0; i < n; i++) {
        char t[32], bar[41] = "";
        int len = (int) lround(40 * p[i].seconds / s->seconds);
        for (int k = 0; k < len && k < 40; k++)
            bar[k] = '#';
        if (p[i].seconds > 0)
            printf("    %-20s %10s %5.1f %%  %s\n", p[i].name, sn_fmt_ns(t, p[i].seconds * 1e9),
                   100 * p[i].seconds / s->seconds, bar);
    }
}

static void say_memory(const sn_sim_step *s, const sn_sim_card *card)
{
    char a[32], b[32], c[32], d[32], e[32], f[32];
    printf("  memory       %s of %s a card: parameters %s, gradients %s, optimizer %s, activations "
           "%s\n",
           sn_fmt_bytes(a, s->memory), sn_fmt_bytes(b, card->memory),
           sn_fmt_bytes(c, s->parameters), sn_fmt_bytes(d, s->gradients),
           sn_fmt_bytes(e, s->states), sn_fmt_bytes(f, s->activations));
}

/* What another split spends more on than the best. */
static const char *why_slower(const sn_sim_step *best, const sn_sim_step *s)
{
    part x[8], y[8];
    int n = parts_of(best, x), worst = 0;
    parts_of(s, y);
    for (int i = 1; i < n; i++)
        if (y[i].seconds - x[i].seconds > y[worst].seconds - x[worst].seconds)
            worst = i;
    return y[worst].name;
}

static void say_others(const sn_sim_answer *a)
{
    const sn_sim_step *best = &a->best[0].step;
    if (a->count > 1)
        printf("\n  runners-up\n");
    for (int i = 1; i < a->count && i < 8; i++) {
        const sn_sim_step *s = &a->best[i].step;
        sn_str text = {0};
        char t[32];
        sim_layout_text(&a->best[i].layout, &text);
        printf("    %9s +%4.1f %%  %s: more %s\n", sn_fmt_ns(t, s->seconds * 1e9),
               100 * (s->seconds / best->seconds - 1), sn_str_get(&text), why_slower(best, s));
        sn_str_done(&text);
    }
}

static void say_job(const sim_question *q, const sn_sim_layout *l)
{
    printf("\n  as a job\n"
           "    parallelism: {tensor: %d, pipeline: %d, data: %d}\n"
           "    gradient_accumulation: %lld\n"
           "    batch_size: %lld\n"
           "    # virtual stages %d, schedule %s, recompute %s, context %d, ZeRO %d\n",
           l->tensor, l->pipeline, l->data, (long long) (q->batch / (l->data * l->micro_batch)),
           (long long) q->batch, l->virtual_stages, schedule_word[l->schedule],
           recompute_key[l->recompute], l->context, l->shards);
}

static void say_head(const sim_question *q)
{
    char a[32];
    printf("\n  %s, %s parameters, on %d x %s; %lld samples of %lld tokens a step\n", q->model.name,
           sn_fmt_count(a, sn_sim_parameters(&q->model)), q->cluster.cards, q->cluster.card->name,
           (long long) q->batch, (long long) q->model.sequence);
}

void sim_say_plan(const sim_question *q, const sn_sim_answer *a)
{
    const sn_sim_found *f = &a->best[0];
    char t[32], b[32], c[32];
    sn_str text = {0};
    sim_layout_text(&f->layout, &text);
    say_head(q);
    printf("  plan         %s\n", sn_str_get(&text));
    sn_str_done(&text);
    printf("  step         %s, %s tokens/s, %.1f %% of the stated peak (model FLOPs)\n",
           sn_fmt_ns(t, f->step.seconds * 1e9),
           sn_fmt_count(b, (double) (q->batch * q->model.sequence) / f->step.seconds),
           100 * f->step.use);
    say_parts(&f->step);
    say_memory(&f->step, q->cluster.card);
    say_others(a);
    say_job(q, &f->layout);
    printf("\n  looked at %s candidates in %s, %s fit the memory\n",
           sn_fmt_count(t, (double) a->candidates), sn_fmt_ns(b, q->seconds * 1e9),
           sn_fmt_count(c, (double) a->fitting));
}

static json_t *layout_json(const sn_sim_layout *l)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:I, s:s, s:s, s:b, s:i}", "tensor", l->tensor,
                     "pipeline", l->pipeline, "virtual_stages", l->virtual_stages, "data", l->data,
                     "context", l->context, "micro_batch", (json_int_t) l->micro_batch, "recompute",
                     recompute_key[l->recompute], "schedule", schedule_word[l->schedule],
                     "sequence_parallel", l->sequence_parallel, "zero", l->shards);
}

static json_t *found_json(const sn_sim_found *f)
{
    const sn_sim_step *s = &f->step;
    json_t *parts = json_object();
    part p[8];
    for (int i = 0, n = parts_of(s, p); i < n; i++)
        json_object_set_new(parts, p[i].name, json_real(p[i].seconds));
    return json_pack("{s:o, s:f, s:f, s:o, s:{s:f, s:f, s:f, s:f, s:f}}", "layout",
                     layout_json(&f->layout), "step_s", s->seconds, "peak_share", s->use, "parts_s",
                     parts, "memory", "total", s->memory, "parameters", s->parameters, "gradients",
                     s->gradients, "optimizer", s->states, "activations", s->activations);
}

static json_t *plan_json(const sim_question *q, const sn_sim_answer *a)
{
    json_t *others = json_array();
    for (int i = 1; i < a->count; i++)
        json_array_append_new(others, found_json(&a->best[i]));
    return json_pack("{s:s, s:s, s:i, s:I, s:I, s:f, s:o, s:o}", "model", q->model.name, "card",
                     q->cluster.card->name, "cards", q->cluster.cards, "batch",
                     (json_int_t) q->batch, "candidates", (json_int_t) a->candidates, "seconds",
                     q->seconds, "best", found_json(&a->best[0]), "others", others);
}

static void print(json_t *root)
{
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_SORT_KEYS);
    putchar('\n');
    json_decref(root);
}

void sim_json_plan(const sim_question *q, const sn_sim_answer *a)
{
    print(plan_json(q, a));
}

/* ---- a run */

static void say_goodput(const sn_sim_ran *ran)
{
    const sn_sim_recovery *all;
    int n = sn_sim_recoveries(&all);
    printf("\n  useful time of the same failures by\n");
    for (int i = 0; i < n; i++) {
        char t[32];
        const sn_sim_ran *r = &ran[i + 1];
        if (r->useful > 0)
            printf("    %-30s %6.2f %%, a checkpoint every %s\n", all[i].name, 100 * r->useful,
                   sn_fmt_ns(t, r->interval * 1e9));
        else
            printf("    %-30s never ends: failures come faster than it recovers\n", all[i].name);
    }
}

void sim_say_run(const sim_question *q, const sn_sim_answer *a, const sn_sim_plan_of_run *p,
                 const sn_sim_ran *ran)
{
    char t[32], b[32], c[32], d[32];
    sn_str text = {0};
    sim_layout_text(&a->best[0].layout, &text);
    say_head(q);
    printf("  plan         %s\n  step         %s, %.1f %% of the stated peak\n", sn_str_get(&text),
           sn_fmt_ns(t, p->step_seconds * 1e9), 100 * a->best[0].step.use);
    sn_str_done(&text);
    printf("  time         %.2f days for %s tokens\n", ran->days,
           sn_fmt_count(t, ran->days * 86400 * ran->useful / p->step_seconds * p->tokens_per_step));
    printf("  failures     %lld (%.2f a day), %lld spare nodes; %s\n", (long long) ran->failures,
           (double) ran->failures / ran->days, (long long) ran->spares, p->recovery.name);
    printf(
        "  useful       %.3f %% of the time (closed form %.3f %%): computed again %.3f %%, saving "
        "%.3f %%, restarting %.3f %%\n",
        100 * ran->useful, 100 * ran->expected, 100 * ran->lost, 100 * ran->stalled,
        100 * ran->restarting);
    printf("  available    %.4f %% of the time\n", 100 * ran->availability);
    printf("  energy       %sWh at PUE %.2f, %st CO2\n", sn_fmt_count(b, ran->kwh * 1000), p->pue,
           sn_fmt_count(c, ran->co2_kg / 1000));
    printf("  money        $%s for cards at $%.2f an hour; their power alone is $%s\n",
           sn_fmt_count(t, ran->dollars), p->dollars_per_card_hour,
           sn_fmt_count(d, ran->dollars_of_power));
    say_goodput(ran);
}

static json_t *ran_json(const char *name, const sn_sim_ran *r)
{
    json_t *o = json_pack("{s:s, s:f, s:f, s:f, s:f, s:I, s:I}", "recovery", name, "days", r->days,
                          "useful", r->useful, "expected", r->expected, "interval_s", r->interval,
                          "failures", (json_int_t) r->failures, "spares", (json_int_t) r->spares);
    json_t *more =
        json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "availability", r->availability, "lost",
                  r->lost, "stalled", r->stalled, "kwh", r->kwh, "dollars", r->dollars,
                  "dollars_of_power", r->dollars_of_power, "co2_kg", r->co2_kg);
    json_object_update(o, more);
    json_decref(more);
    return o;
}

void sim_json_run(const sim_question *q, const sn_sim_answer *a, const sn_sim_plan_of_run *p,
                  const sn_sim_ran *ran)
{
    const sn_sim_recovery *all;
    int n = sn_sim_recoveries(&all);
    json_t *others = json_array(), *root = plan_json(q, a);
    for (int i = 0; i < n; i++)
        json_array_append_new(others, ran_json(all[i].name, &ran[i + 1]));
    json_object_set_new(root, "run", ran_json(p->recovery.name, &ran[0]));
    json_object_set_new(root, "recoveries", others);
    print(root);
}

/* ---- tables */

static void say_fact(const sn_sim_fact *f)
{
    double off = f->model - f->measured;
    printf("  %-22s %-28s %10.4g %10.4g %-5s %+8.2f%s %s\n", f->table, f->row, f->measured,
           f->model, f->unit, f->absolute ? off : 100 * off / f->measured,
           f->absolute ? "  " : " %", f->fit ? "seen" : "");
}

static void say_mean(const sn_sim_fact *fact, int facts, int i, json_t *into)
{
    const char *table = fact[i].table;
    double all = sn_sim_truth_error(fact, facts, table, false);
    double unseen = sn_sim_truth_error(fact, facts, table, true);
    if (into)
        json_object_set_new(into, table,
                            json_pack("{s:f, s:f}", "mean_error", all, "unseen", unseen));
    else if (fact[i].absolute)
        printf("  %-22s %.4f\n", table, all);
    else
        printf("  %-22s %.2f %%, of rows not looked at %.2f %%\n", table, 100 * all, 100 * unseen);
}

void sim_say_truth(const sn_sim_fact *fact, int facts, bool json)
{
    json_t *rows = json_array(), *means = json_object();
    if (!json)
        printf("  %-22s %-28s %10s %10s\n", "table", "row", "measured", "model");
    for (int i = 0; i < facts && !json; i++)
        say_fact(&fact[i]);
    for (int i = 0; i < facts && json; i++)
        json_array_append_new(rows, json_pack("{s:s, s:s, s:s, s:f, s:f, s:b}", "table",
                                              fact[i].table, "row", fact[i].row, "unit",
                                              fact[i].unit, "measured", fact[i].measured, "model",
                                              fact[i].model, "fit", fact[i].fit));
    if (!json)
        printf("\n  mean error\n");
    for (int i = 0; i < facts; i++)
        if (i == 0 || strcmp(fact[i].table, fact[i - 1].table))
            say_mean(fact, facts, i, json ? means : NULL);
    if (json)
        print(json_pack("{s:o, s:o}", "rows", rows, "means", means));
    else {
        json_decref(rows);
        json_decref(means);
    }
}

void sim_say_links(const sn_topo *topo, const sn_sim_cluster *c, int cards, double ring, double all,
                   bool json)
{
    char a[32], b[32], r[32], t[32];
    double n = cards, round = 2 * (n - 1) / n * 1e9 / ring, spread = (n - 1) / n * 1e9 / all;
    if (json) {
        print(json_pack("{s:s, s:s, s:i, s:i, s:f, s:f, s:f, s:f}", "name", topo->name, "card",
                        c->card->name, "cards", c->cards, "domain", c->domain, "domain_bytes_per_s",
                        c->scale_up_per_s, "network_bytes_per_s", c->net_per_s, "all_reduce_s",
                        ring, "all_to_all_s", all));
        return;
    }
    printf("\n  %s: %d x %s, %d of them a domain\n", topo->name, c->cards, c->card->name,
           c->domain);
    printf("  a card sends %s within its domain, %s to the next host when all do\n",
           sn_fmt_rate(a, c->scale_up_per_s), sn_fmt_rate(b, c->net_per_s));
    printf("  among %d cards spread evenly, 1 GB each:\n", cards);
    printf("    all-reduce, a ring   %10s  %12s a card\n", sn_fmt_ns(t, ring * 1e9),
           sn_fmt_rate(r, round));
    printf("    all-to-all           %10s  %12s a card\n", sn_fmt_ns(t, all * 1e9),
           sn_fmt_rate(r, spread));
}

void sim_say_cards(void)
{
    const sn_sim_card *c;
    int n = sn_sim_cards(&c);
    printf("  %-8s %9s %8s %7s %9s %9s %6s %6s  %s\n", "card", "TFLOP/s", "reached", "GB", "TB/s",
           "GB/s up", "W", "$/h", "source");
    for (int i = 0; i < n; i++)
        printf("  %-8s %9.0f %6.0f %% %7.0f %9.2f %9.0f %6.0f %6.2f  %s\n", c[i].name,
               c[i].flops / 1e12, 100 * c[i].best_share, c[i].memory / 1e9,
               c[i].memory_per_s / 1e12, c[i].scale_up_per_s / 1e9, c[i].watts,
               c[i].dollars_per_hour, c[i].source);
}

void sim_say_models(void)
{
    const sn_sim_model *m;
    int n = sn_sim_models(&m);
    printf("  %-14s %11s %7s %7s %6s %9s\n", "model", "parameters", "layers", "hidden", "heads",
           "sequence");
    for (int i = 0; i < n; i++) {
        char t[32];
        printf("  %-14s %11s %7lld %7lld %6lld %9lld\n", m[i].name,
               sn_fmt_count(t, sn_sim_parameters(&m[i])), (long long) m[i].layers,
               (long long) m[i].hidden, (long long) m[i].heads, (long long) m[i].sequence);
    }
}
