/* SPDX-License-Identifier: Apache-2.0
 *
 * Published measurements beside the model. What a table does not print (micro-batch, parts of a
 * stage) the model chooses, by the rule of its search: the fastest that fits the memory.
 *
 *   SC'21     Narayanan et al., "Efficient large-scale language model training on GPU clusters
 *             using Megatron-LM", table 1: A100, full recomputation, gradients reduced at the end.
 *             Its TFLOP/s count what is computed twice: F = 96 B s l h² (1 + s/6h + V/16lh)
 *   MLSys'23  Korthikanti et al., "Reducing activation recomputation …", table 5, figures 1 and 7
 *   Llama 3   "The Llama 3 herd of models", table 4: H100. Whether masked attention counts it does
 *             not say; taken: it does not
 *   ICLR'24   Qi et al., "Zero bubble pipeline parallelism", table 4: bubble rates on A100,
 *             embedding and head in the place of a layer each */
#include "sim/private.h"

#include <math.h>
#include <string.h>

/* ---- steps */

typedef struct step_row {
    const char *table, *row, *model;
    int cards, t, p, v, d, c; /* v 0: the model's choice */
    int64_t batch, micro;     /* micro 0: likewise */
    sn_sim_recompute recompute;
    bool sequence_parallel, fused_sum, no_overlap, fit;
    double seconds;
} step_row;

#define SC "SC'21 table 1"
#define KO "MLSys'23 table 5"

static const step_row steps[] = {
    {SC, "1.7B", "gpt-1.7b", 32, 1, 1, 0, 32, 1, 512, 0, SN_SIM_FULL, 0, 0, 1, 1, 3.528},
    {SC, "3.6B", "gpt-3.6b", 64, 2, 1, 0, 32, 1, 512, 0, SN_SIM_FULL, 0, 0, 1, 1, 3.697},
    {SC, "7.5B", "gpt-7.5b", 128, 4, 1, 0, 32, 1, 512, 0, SN_SIM_FULL, 0, 0, 1, 1, 3.696},
    {SC, "18.4B", "gpt-18b", 256, 8, 1, 0, 32, 1, 1024, 0, SN_SIM_FULL, 0, 0, 1, 1, 9.399},
    {SC, "39.1B", "gpt-39b", 512, 8, 2, 0, 32, 1, 1536, 0, SN_SIM_FULL, 0, 0, 1, 1, 14.453},
    {SC, "76.1B", "gpt-76b", 1024, 8, 4, 0, 32, 1, 1792, 0, SN_SIM_FULL, 0, 0, 1, 1, 16.058},
    {SC, "145.6B", "gpt-145b", 1536, 8, 8, 0, 24, 1, 2304, 0, SN_SIM_FULL, 0, 0, 1, 1, 24.817},
    {SC, "310.1B", "gpt-310b", 1920, 8, 16, 0, 15, 1, 2160, 0, SN_SIM_FULL, 0, 0, 1, 0, 37.614},
    {SC, "529.6B", "gpt-530b", 2520, 8, 35, 0, 9, 1, 2520, 0, SN_SIM_FULL, 0, 0, 1, 0, 54.085},
    {SC, "1008B", "gpt-1t", 3072, 8, 64, 0, 6, 1, 3072, 0, SN_SIM_FULL, 0, 0, 1, 0, 102.63},
    {KO, "22B full", "gpt-22b", 8, 8, 1, 1, 1, 1, 4, 4, SN_SIM_FULL, 0, 1, 1, 0, 1.42},
    {KO, "22B selective", "gpt-22b", 8, 8, 1, 1, 1, 1, 4, 4, SN_SIM_SELECTIVE, 1, 1, 1, 0, 1.10},
    {KO, "175B full", "gpt3-175b", 64, 8, 8, 3, 1, 1, 64, 1, SN_SIM_FULL, 0, 1, 1, 0, 18.13},
    {KO, "175B selective", "gpt3-175b", 64, 8, 8, 3, 1, 1, 64, 1, SN_SIM_SELECTIVE, 1, 1, 1, 0,
     13.75},
    {KO, "530B full", "gpt-530b", 280, 8, 35, 3, 1, 1, 280, 1, SN_SIM_FULL, 0, 1, 1, 0, 49.05},
    {KO, "530B selective", "gpt-530b", 280, 8, 35, 3, 1, 1, 280, 1, SN_SIM_SELECTIVE, 1, 1, 1, 0,
     37.83},
    {KO, "1T full", "gpt-1t", 512, 8, 64, 1, 1, 1, 512, 1, SN_SIM_FULL, 0, 1, 1, 0, 94.42},
    {KO, "1T selective", "gpt-1t", 512, 8, 64, 1, 1, 1, 512, 1, SN_SIM_SELECTIVE, 1, 1, 1, 0,
     71.49},
};

typedef struct facts {
    sn_arena *arena;
    sn_sim_fact *fact;
    int count;
    size_t cap;
} facts;

static void add(facts *f, sn_sim_fact fact)
{
    f->fact = sn_arena_grow(f->arena, f->fact, (size_t) f->count, (size_t) f->count + 1,
                            sizeof(*f->fact), &f->cap);
    f->fact[f->count++] = fact;
}

static sn_sim_model unfused(const char *name)
{
    sn_sim_model m = *sn_sim_model_find(name);
    m.fused = false;
    return m;
}

/* InfiniBand HDR, 200 Gbit/s a card, as in the Selene cluster of these tables. */
static sn_sim_cluster selene(int cards)
{
    return sn_sim_cluster_of(sn_sim_card_find("a100"), cards, 25e9);
}

static bool fits(const sn_sim_cluster *c, const sn_sim_step *s)
{
    return s->memory < 0.95 * c->card->memory;
}

/* The fastest (micro-batch, parts of a stage) of a row that fits. */
static sn_sim_step step_of(const step_row *r, const sn_sim_model *m)
{
    sn_sim_cluster c = selene(r->cards);
    sn_sim_step best = {.seconds = HUGE_VAL}, s;
    for (int64_t b = r->micro ? r->micro : 1; b <= (r->micro ? r->micro : 16); b *= 2)
        for (int v = r->v ? r->v : 1; v <= (r->v ? r->v : 12); v++) {
            int64_t micros = r->batch / (r->d * b);
            bool parts = m->layers % (r->p * v) == 0 && micros % r->p == 0;
            if (v > 1 && (r->p == 1 || !parts))
                continue;
            sn_sim_layout l = {.tensor = r->t,
                               .pipeline = r->p,
                               .virtual_stages = v,
                               .data = r->d,
                               .context = r->c,
                               .micro_batch = b,
                               .recompute = r->recompute,
                               .sequence_parallel = r->sequence_parallel,
                               .fused_sum = r->fused_sum,
                               .no_overlap = r->no_overlap};
            if (sn_sim_price(&c, m, &l, r->batch, &s) < 0 || s.seconds >= best.seconds)
                continue;
            if (r->micro || fits(&c, &s))
                best = s;
        }
    return best;
}

static void add_steps(facts *f)
{
    for (size_t i = 0; i < SN_COUNT(steps); i++) {
        sn_sim_model m = unfused(steps[i].model);
        add(f, (sn_sim_fact){.table = steps[i].table,
                             .row = steps[i].row,
                             .unit = "s",
                             .fit = steps[i].fit,
                             .measured = steps[i].seconds,
                             .model = step_of(&steps[i], &m).seconds});
    }
}

/* ---- Llama 3 */

static void add_llama(facts *f)
{
    static const struct {
        const char *row;
        int cards, d, c;
        int64_t batch, sequence;
        double tflops;
    } rows[] = {{"405B, 8,192 cards", 8192, 64, 1, 2048, 8192, 430},
                {"405B, 16,384 cards", 16384, 128, 1, 2048, 8192, 400},
                {"405B, 131,072 tokens", 16384, 8, 16, 128, 131072, 380}};
    for (size_t i = 0; i < SN_COUNT(rows); i++) {
        sn_sim_model m = *sn_sim_model_find("llama3-405b");
        sn_sim_cluster c = sn_sim_cluster_of(sn_sim_card_find("h100"), rows[i].cards, 50e9);
        sn_sim_layout l = {.tensor = 8,
                           .pipeline = 16,
                           .virtual_stages = 8,
                           .data = rows[i].d,
                           .context = rows[i].c,
                           .micro_batch = 1,
                           .sequence_parallel = true,
                           .shards = 1,
                           .fused_sum = true};
        sn_sim_step s = {.seconds = NAN};
        m.sequence = rows[i].sequence;
        (void) sn_sim_price(&c, &m, &l, rows[i].batch, &s);
        double q = (double) m.sequence;
        double masked = 3 * 2 * q * q * (double) (m.hidden * m.layers) * (double) rows[i].batch;
        double measured = (s.flops - masked) / (rows[i].tflops * 1e12 * rows[i].cards);
        add(f, (sn_sim_fact){.table = "Llama 3 table 4",
                             .row = rows[i].row,
                             .unit = "s",
                             .measured = measured,
                             .model = s.seconds});
    }
}

/* ---- memory */

static void add_memory(facts *f)
{
    static const struct {
        const char *name, *model;
        int t, p, v;
        int64_t micro;
        double states, keep, selective; /* GiB */
    } rows[] = {{"22B", "gpt-22b", 8, 1, 1, 4, 45.56, 59.25, 9.56},
                {"175B", "gpt3-175b", 8, 8, 3, 1, 45.56, 66.84, 12.35},
                {"530B", "gpt-530b", 8, 35, 3, 1, 31.64, 114.02, 23.08},
                {"1T", "gpt-1t", 8, 64, 1, 1, 32.96, 131.25, 26.56}};
    for (size_t i = 0; i < SN_COUNT(rows); i++) {
        sn_sim_model m = unfused(rows[i].model);
        sn_sim_cluster c = selene(8 * rows[i].p);
        sn_sim_layout l = {.tensor = rows[i].t,
                           .pipeline = rows[i].p,
                           .virtual_stages = rows[i].v,
                           .data = 1,
                           .context = 1,
                           .micro_batch = rows[i].micro};
        sn_sim_step keep, selective;
        (void) sn_sim_price(&c, &m, &l, rows[i].p * rows[i].micro, &keep);
        l.sequence_parallel = true;
        l.recompute = SN_SIM_SELECTIVE;
        (void) sn_sim_price(&c, &m, &l, rows[i].p * rows[i].micro, &selective);
        double gib = 1073741824.0, states = keep.memory - keep.activations;
        const double pair[][2] = {{rows[i].states, states},
                                  {rows[i].keep, keep.activations},
                                  {rows[i].selective, selective.activations}};
        static const char *const what[] = {"states", "activations", "activations, selective"};
        for (int k = 0; k < 3; k++)
            add(f, (sn_sim_fact){.table = "MLSys'23 figure 1",
                                 .row = sn_arena_printf(f->arena, "%s %s", rows[i].name, what[k]),
                                 .unit = "GiB",
                                 .measured = pair[k][0],
                                 .model = pair[k][1] / gib});
    }
}

/* ---- bubbles */

static void add_bubbles(facts *f)
{
    static const struct {
        const char *name;
        int64_t layers, hidden, heads, micro;
        int p;
        int64_t m[3];
        double rate[3][4]; /* 1F1B, interleaved, ZB-H1, ZB-H2 */
    } rows[] = {
        {"1.5B",
         24,
         2304,
         24,
         6,
         8,
         {24, 32, 64},
         {{.2431, .1055, .1585, .1083},
          {.1985, .0818, .1242, .0837},
          {.1240, .0443, .0674, .0444}}},
        {"6.2B",
         32,
         4096,
         32,
         3,
         8,
         {24, 32, 64},
         {{.2347, .0808, .1323, .0698},
          {.1898, .0628, .1045, .0559},
          {.1091, .0320, .0554, .0294}}},
        {"14.6B",
         48,
         5120,
         40,
         1,
         16,
         {48, 64, 128},
         {{.2552, .1104, .1397, .0672},
          {.2082, .0852, .1088, .0516},
          {.1251, .0445, .0576, .0266}}},
        {"28.3B",
         64,
         6144,
         48,
         1,
         32,
         {96, 128, 256},
         {{.2646, .1493, .1421, .0641},
          {.2168, .1164, .1106, .0490},
          {.1352, .0624, .0594, .0257}}},
    };
    static const char *const schedule[] = {"1F1B", "interleaved", "ZB-H1", "ZB-H2"};
    static const sn_sim_schedule kind[] = {SN_SIM_1F1B, SN_SIM_1F1B, SN_SIM_ZB_H1, SN_SIM_ZB_H2};
    for (size_t i = 0; i < SN_COUNT(rows); i++) {
        sn_sim_model m = {rows[i].name,
                          rows[i].layers,
                          rows[i].hidden,
                          rows[i].heads,
                          rows[i].heads,
                          4 * rows[i].hidden,
                          50304,
                          1024,
                          false,
                          false,
                          true};
        sn_sim_cluster c = selene(rows[i].p);
        sn_sim_layout l = {.tensor = 1,
                           .pipeline = rows[i].p,
                           .virtual_stages = 1,
                           .data = 1,
                           .context = 1,
                           .micro_batch = rows[i].micro,
                           .fused_sum = true};
        sim_layer y = sim_layer_price(&c, &m, &l);
        double layers = (double) m.layers / l.pipeline, idle;
        double hop =
            2 * 1024 * (double) (l.micro_batch * m.hidden) / (c.net_per_s * 0.85) + c.net_s;
        for (int k = 0; k < 3; k++)
            for (int s = 0; s < 4; s++) {
                int v = s == 1 ? (int) layers : 1;
                sn_sim_pipeline(kind[s], l.pipeline, v, rows[i].m[k], layers * y.forward,
                                layers * y.backward, layers * y.weights, hop, &idle);
                add(f, (sn_sim_fact){.table = "ICLR'24 table 4",
                                     .row = sn_arena_printf(f->arena, "%s, %lld, %s", m.name,
                                                            (long long) rows[i].m[k], schedule[s]),
                                     .unit = "idle",
                                     .absolute = true,
                                     .measured = rows[i].rate[k][s],
                                     .model = idle});
            }
    }
}

int sn_sim_truth(sn_arena *arena, sn_sim_fact **ret)
{
    facts f = {.arena = arena};
    add_steps(&f);
    add_llama(&f);
    add_memory(&f);
    add_bubbles(&f);
    *ret = f.fact;
    return f.count;
}

double sn_sim_truth_error(const sn_sim_fact *fact, int count, const char *table, bool unseen)
{
    double sum = 0;
    int n = 0;
    for (int i = 0; i < count; i++) {
        if (strcmp(fact[i].table, table) || (unseen && fact[i].fit))
            continue;
        double off = fact[i].model - fact[i].measured;
        sum += fabs(fact[i].absolute ? off : off / fact[i].measured);
        n++;
    }
    return n ? sum / n : NAN;
}
