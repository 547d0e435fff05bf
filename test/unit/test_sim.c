/* SPDX-License-Identifier: Apache-2.0
 * Foresight against published measurements, and what must hold whatever the constants are. */
#include "sim/sim.h"
#include "unit/sn_test.h"

#include <math.h>
#include <stdio.h>

#define assert_says(text, part) assert_non_null(strstr(text, part))

static void test_truth(void **state)
{
    static const struct {
        const char *table;
        bool unseen;
        double bar;
    } bars[] = {{"SC'21 table 1", false, 0.05},     {"SC'21 table 1", true, 0.05},
                {"MLSys'23 table 5", false, 0.05},  {"Llama 3 table 4", false, 0.08},
                {"MLSys'23 figure 1", false, 0.05}, {"ICLR'24 table 4", false, 0.02}};
    sn_arena *arena = sn_arena_create();
    sn_sim_fact *fact;
    int n = sn_sim_truth(arena, &fact);
    for (int i = 0; i < n; i++)
        print_message("%-20s %-32s %s %9.4f  model %9.4f  %+6.2f %s\n", fact[i].table, fact[i].row,
                      fact[i].fit ? "fit" : "   ", fact[i].measured, fact[i].model,
                      fact[i].absolute ? fact[i].model - fact[i].measured
                                       : 100 * (fact[i].model / fact[i].measured - 1),
                      fact[i].absolute ? "" : "%");
    for (size_t i = 0; i < SN_COUNT(bars); i++)
        print_message("%-20s mean error %.4f, bar %.2f\n", bars[i].table,
                      sn_sim_truth_error(fact, n, bars[i].table, bars[i].unseen), bars[i].bar);
    for (int i = 0; i < n; i++) /* two rows of a model of 14.6 G are beyond 0.02 */
        assert_true(!fact[i].absolute || fabs(fact[i].model - fact[i].measured) < 0.027);
    for (size_t i = 0; i < SN_COUNT(bars); i++)
        assert_true(sn_sim_truth_error(fact, n, bars[i].table, bars[i].unseen) <= bars[i].bar);
    sn_arena_free(arena);
}

/* ---- what must hold whatever the constants are ---- */

static sn_sim_cluster cluster(const char *card, int cards)
{
    return sn_sim_cluster_of(sn_sim_card_find(card), cards, 50e9);
}

static sn_sim_answer *search(const sn_sim_cluster *c, const char *model, int64_t batch)
{
    sn_sim_answer *a = sn_alloc(sizeof(*a));
    assert_int_equal(sn_sim_search(c, sn_sim_model_find(model), batch, a), SN_OK);
    return a;
}

static int pick(sn_prng *rng, int most)
{
    return 1 << sn_prng_below(rng, most);
}

/* No layout that fits is faster than what the search found. */
static void test_search_is_complete(void **state)
{
    sn_prng rng = {.seed = 7};
    sn_sim_cluster c = cluster("h100", 512);
    const sn_sim_model *m = sn_sim_model_find("gpt3-175b");
    sn_sim_answer *a = search(&c, m->name, 1024);
    int tried = 0;
    for (int i = 0; i < 20000; i++) {
        sn_sim_step s;
        sn_sim_layout l = {.tensor = pick(&rng, 4),
                           .pipeline = pick(&rng, 6),
                           .virtual_stages = 1,
                           .context = 1,
                           .micro_batch = pick(&rng, 4),
                           .recompute = (sn_sim_recompute) sn_prng_below(&rng, 3),
                           .sequence_parallel = sn_prng_below(&rng, 2),
                           .shards = (int[]){0, 1, 3}[sn_prng_below(&rng, 3)],
                           .fused_sum = true};
        l.data = c.cards / (l.tensor * l.pipeline);
        if (sn_sim_price(&c, m, &l, 1024, &s) < 0 || s.memory > 0.93 * c.card->memory)
            continue;
        tried++;
        assert_true(s.seconds >= a->best[0].step.seconds);
    }
    assert_true(tried > 500);
    assert_true(a->candidates > 1000 && a->fitting > 0 && a->count > 3);
    for (int i = 1; i < a->count; i++)
        assert_true(a->best[i].step.seconds >= a->best[i - 1].step.seconds);
    free(a);
}

/* The parts make the step; memory likewise. */
static void test_parts_add_up(void **state)
{
    sn_sim_cluster c = cluster("a100", 256);
    sn_sim_answer *a = search(&c, "gpt-39b", 512);
    for (int i = 0; i < a->count; i++) {
        const sn_sim_step *s = &a->best[i].step;
        double sum = s->compute + s->again + s->tensor + s->bubble + s->data + s->optimizer;
        assert_true(fabs(sum / s->seconds - 1) < 1e-9);
        assert_true(s->compute > 0 && s->bubble >= 0 && s->use > 0 && s->use < 1);
        sum = s->parameters + s->gradients + s->states + s->activations;
        assert_true(fabs(sum / s->memory - 1) < 1e-12);
    }
    free(a);
}

static double seconds_of(sn_sim_cluster c, int64_t batch)
{
    sn_sim_answer *a = search(&c, "gpt-76b", batch);
    double s = a->best[0].step.seconds;
    free(a);
    return s;
}

/* More of anything never makes it slower, less never faster. */
static void test_monotonic(void **state)
{
    sn_sim_cluster c = cluster("h100", 512), other = c;
    double base = seconds_of(c, 1024);
    other.oversubscription = 8;
    assert_true(seconds_of(other, 1024) > base);
    other = c;
    other.net_per_s *= 4;
    assert_true(seconds_of(other, 1024) <= base);
    other = c;
    other.scale_up_per_s /= 10;
    assert_true(seconds_of(other, 1024) > base);
    other = c;
    other.cards = 1024;
    double twice = seconds_of(other, 1024);
    assert_true(twice < base && twice > base / 2.05);
    assert_true(seconds_of(c, 2048) > 1.8 * base);
    assert_true(seconds_of(cluster("a100", 512), 1024) > 1.5 * base);
}

static void test_refusals(void **state)
{
    sn_sim_answer *a = sn_alloc(sizeof(*a));
    sn_sim_cluster c = cluster("h100", 8);
    const sn_sim_model *m = sn_sim_model_find("gpt-1t");
    sn_sim_step s;
    assert_int_equal(sn_sim_search(&c, m, 512, a), SN_EFIT);
    assert_says(sn_errmsg(), "does not fit 8 cards of kind h100");
    assert_says(sn_errmsg(), "so take at least ");
    assert_int_equal(sn_sim_search(&c, m, 0, a), SN_EINVAL);
    sn_sim_layout l = {
        .tensor = 8, .pipeline = 2, .virtual_stages = 1, .data = 1, .context = 1, .micro_batch = 1};
    assert_int_equal(sn_sim_price(&c, m, &l, 8, &s), SN_EFIT);
    assert_says(sn_errmsg(), "16 cards, 8 are there");
    l.pipeline = 1;
    l.tensor = 7;
    assert_int_equal(sn_sim_price(&c, m, &l, 8, &s), SN_EFIT);
    assert_says(sn_errmsg(), "160 heads cannot be split over tensor 7");
    l.tensor = 8;
    l.micro_batch = 3;
    assert_int_equal(sn_sim_price(&c, m, &l, 8, &s), SN_EFIT);
    assert_says(sn_errmsg(), "8 samples do not divide");
    assert_null(sn_sim_card_find("abacus"));
    free(a);
}

/* ---- pipelines ---- */

static void test_pipelines(void **state)
{
    double idle;
    for (int p = 2; p <= 64; p *= 2)
        for (int64_t m = p; m <= 8 * p; m *= 2) {
            double one = sn_sim_pipeline(SN_SIM_1F1B, p, 1, m, 1, 1, 1, 0, &idle);
            assert_true(fabs(one - 3 * (double) (m + p - 1)) < 1e-9);
            assert_true(fabs(idle - (p - 1.0) / (double) (m + p - 1)) < 1e-9);
            double parts = sn_sim_pipeline(SN_SIM_1F1B, p, 4, m, 1, 1, 1, 0, &idle);
            double h1 = sn_sim_pipeline(SN_SIM_ZB_H1, p, 1, m, 1, 1, 1, 0, &idle);
            double h2 = sn_sim_pipeline(SN_SIM_ZB_H2, p, 1, m, 1, 1, 1, 0, &idle);
            assert_true(parts < one && h1 < one && h2 < h1);
            assert_true(fabs(h2 - 3 * (double) m) < 1e-9); /* equal units: no bubble */
            assert_true(sn_sim_pipeline(SN_SIM_1F1B, p, 1, m, 1, 1, 1, .1, &idle) > one);
        }
}

/* Unit by unit is what the formula says, and no stage does two things at once. */
typedef struct seen {
    double until[128];
    int64_t units;
} seen;

static void look(void *ctx, const sn_sim_unit *u)
{
    seen *s = ctx;
    assert_true(u->from >= s->until[u->stage] - 1e-12 && u->to > u->from);
    s->until[u->stage] = u->to;
    s->units++;
}

static void test_walk(void **state)
{
    double idle;
    for (int p = 1; p <= 64; p *= 2)
        for (int64_t m = 1; m <= 4 * p; m += p) {
            seen s = {0};
            double walked = sn_sim_walk(p, m, 1, 2, 0, look, &s);
            double formula = sn_sim_pipeline(SN_SIM_1F1B, p, 1, m, 1, 1, 1, 0, &idle);
            assert_int_equal(s.units, 2 * p * m);
            assert_true(fabs(walked / formula - 1) < 1e-9);
        }
}

/* ---- runs ---- */

static sn_sim_plan_of_run days_of(int cards, const sn_sim_recovery *r)
{
    return (sn_sim_plan_of_run){.step_seconds = 6,
                                .tokens_per_step = 16e6,
                                .days = 54,
                                .cards = cards,
                                .per_host = 8,
                                .failures_per_1000_node_days = 6.5,
                                .recovery = *r,
                                .card_watts = 700,
                                .host_watts = 4600,
                                .pue = 1.1,
                                .dollars_per_card_hour = 2.5,
                                .dollars_per_kwh = 0.1,
                                .co2_kg_per_kwh = 0.4,
                                .repair_hours = 24,
                                .seed = 3};
}

/* 16,384 cards for 54 days: this project's recovery keeps 99 % and the availability that the
 * requirements ask; the published ways lie where they were published. */
static void test_54_days(void **state)
{
    const sn_sim_recovery *r;
    int n = sn_sim_recoveries(&r);
    for (int i = 0; i < n; i++) {
        sn_sim_plan_of_run p = days_of(16384, &r[i]);
        sn_sim_ran ran, again;
        assert_ok(sn_sim_run(&p, &ran));
        assert_ok(sn_sim_run(&p, &again));
        assert_memory_equal(&ran, &again, sizeof ran); /* same seed, same run */
        print_message("%-30s useful %.4f, closed form %.4f, %lld failures\n", r[i].name, ran.useful,
                      ran.expected, (long long) ran.failures);
        assert_true(fabs(ran.useful - ran.expected) < 0.02);
        double mean = 2048 * 6.5 / 1000 * 54 * ran.availability; /* none while it restarts */
        assert_true(fabs((double) ran.failures - mean) < 5 * sqrt(mean));
        assert_true(fabs(ran.useful + ran.lost + ran.stalled + ran.restarting - 1) < 0.01);
        if (i == 0)
            assert_true(ran.useful > 0.99 && ran.availability > 0.9995);
        else
            assert_true(ran.useful < 0.97);
    }
}

/* Meta, arXiv:2410.21680: mean time to failure 7.9 h at 1,024 cards, 1.8 h at 16,384 (they project
 * from larger jobs' own rates; the same rate for every node gives 28.8 h and 1.8 h). */
static void test_failure_rates(void **state)
{
    const sn_sim_recovery *r;
    sn_sim_ran ran;
    (void) sn_sim_recoveries(&r);
    sn_sim_plan_of_run p = days_of(16384, r);
    p.days = 2000;
    assert_ok(sn_sim_run(&p, &ran));
    double hours = ran.days * 24 / (double) ran.failures;
    assert_true(fabs(hours - 1.8) < 0.1);
}

/* The interval taken is the best: others are not better. Young's rule is near it. */
static void test_best_interval(void **state)
{
    const sn_sim_recovery *r;
    sn_sim_ran best, other;
    (void) sn_sim_recoveries(&r);
    sn_sim_plan_of_run p = days_of(16384, &r[1]);
    assert_ok(sn_sim_run(&p, &best));
    for (double f = 0.25; f < 5; f *= 1.5) {
        p.recovery.saves_every = best.interval * f;
        assert_ok(sn_sim_run(&p, &other));
        assert_true(other.expected <= best.expected + 1e-12);
    }
    double rate = 2048 * 6.5 / 1000 / 86400, young = sqrt(2 * r[1].save_stalls / rate);
    assert_true(best.interval > 0.8 * young && best.interval < 1.25 * young);
}

static void test_run_refusals(void **state)
{
    const sn_sim_recovery *r;
    sn_sim_ran ran;
    (void) sn_sim_recoveries(&r);
    sn_sim_plan_of_run p = days_of(1 << 22, &r[1]);
    assert_int_equal(sn_sim_run(&p, &ran), SN_EFIT);
    assert_says(sn_errmsg(), "such a run never ends");
    p = days_of(8, r);
    p.days = 0;
    assert_int_equal(sn_sim_run(&p, &ran), SN_EINVAL);
    p.tokens = 16e6 * 100; /* a hundred steps */
    p.failures_per_1000_node_days = 0;
    assert_ok(sn_sim_run(&p, &ran));
    assert_int_equal(ran.failures, 0);
    assert_true(fabs(ran.days * 86400 - 600) < 1);
}

/* ---- flows ---- */

static sn_topo *topology(const char *text)
{
    sn_topo *t;
    assert_ok(sn_topo_parse(text, strlen(text), "test.yaml", &t));
    return t;
}

/* Hosts of one card, `per` of them on each leaf; `up` times 10 GB/s from a leaf to the spine. */
static sn_topo *tree(int leaves, int per, int up)
{
    char text[2048];
    snprintf(
        text, sizeof text,
        "name: tree\n"
        "kinds: {x: {flops_f32: 1TFLOP/s, flops_bf16: 1TFLOP/s, memory: 1GB, memory_bandwidth: "
        "1TB/s}}\n"
        "hosts:\n  - {name: h, count: %d, cores: 1, memory: 1GB, cards: {kind: x, count: 1, "
        "link: {latency: 1us, bandwidth: 10GB/s}}}\n"
        "switches: [{name: leaf, count: %d}, {name: spine}]\n"
        "links:\n"
        "  - {from: \"h*\", to: \"leaf*\", pattern: block, latency: 1us, bandwidth: 10GB/s}\n"
        "  - {from: \"leaf*\", to: spine, pattern: all, latency: 1us, bandwidth: %dGB/s}\n",
        leaves * per, leaves, 10 * up);
    return topology(text);
}

static sn_topo *torus(const char *size, int cards)
{
    char text[1024];
    snprintf(
        text, sizeof text,
        "name: torus\n"
        "kinds: {x: {flops_f32: 1TFLOP/s, flops_bf16: 1TFLOP/s, memory: 1GB, memory_bandwidth: "
        "1TB/s}}\n"
        "hosts:\n  - {name: h, count: %d, cores: 1, memory: 1GB, cards: {kind: x, count: 1, "
        "link: {latency: 1us, bandwidth: 60GB/s}}}\n"
        "links:\n  - {among: \"h*\", pattern: torus, size: %s, latency: 1us, bandwidth: "
        "10GB/s}\n",
        cards, size);
    return topology(text);
}

static double pattern(const sn_topo *t, sn_sim_traffic what)
{
    double s;
    assert_ok(sn_sim_pattern(t, what, t->cards, 1e9, &s));
    return s;
}

/* The bar: the topology decides, and differently for the two. */
static void test_topology_matters(void **state)
{
    sn_topo *fat = tree(8, 8, 8), *thin = tree(8, 8, 2), *cube = torus("[4, 4, 4]", 64);
    double ring[] = {pattern(fat, SN_SIM_RING), pattern(thin, SN_SIM_RING),
                     pattern(cube, SN_SIM_RING)};
    double all[] = {pattern(fat, SN_SIM_ALL_TO_ALL), pattern(thin, SN_SIM_ALL_TO_ALL),
                    pattern(cube, SN_SIM_ALL_TO_ALL)};
    print_message("all-reduce: fat tree %.3f s, oversubscribed %.3f s, torus %.3f s; all-to-all: "
                  "%.3f s, %.3f s, %.3f s\n",
                  ring[0], ring[1], ring[2], all[0], all[1], all[2]);
    assert_true(fabs(ring[0] - 2 * 63 / 64.0 * 0.1) < 1e-9); /* the wire's 10 GB/s */
    assert_true(fabs(ring[1] - ring[0]) < 1e-9); /* one flow crosses from leaf to leaf */
    assert_true(ring[2] <= 2.01 * ring[0]);
    assert_true(all[1] > 2.5 * all[0]); /* a quarter of the bandwidth upward */
    assert_true(all[2] > 1.5 * all[0]);
    sn_topo_free(fat);
    sn_topo_free(thin);
    sn_topo_free(cube);
}

/* No wire carries more than it can, and who gets less than another shares a full wire with it. */
static void test_rates_are_fair(void **state)
{
    enum { FLOWS = 100 };
    sn_topo *t = tree(4, 4, 1);
    sn_prng rng = {.seed = 11};
    for (int round = 0; round < 50; round++) {
        sn_sim_flow flow[FLOWS];
        double rate[FLOWS], load[256] = {0};
        for (int f = 0; f < FLOWS; f++)
            do
                flow[f] = (sn_sim_flow){(int) sn_prng_below(&rng, t->cards),
                                        (int) sn_prng_below(&rng, t->cards)};
            while (flow[f].from == flow[f].to);
        assert_ok(sn_sim_rates(t, flow, FLOWS, rate));
        for (int f = 0; f < FLOWS; f++) {
            sn_path p;
            assert_ok(sn_topo_path(t, flow[f].from, flow[f].to, &p));
            int at = t->card[flow[f].from].vertex;
            for (int k = 0; k < p.links; k++) {
                const sn_topo_link *l = &t->link[p.link[k]];
                load[2 * p.link[k] + (l->a != at)] += rate[f];
                at = l->a == at ? l->b : l->a;
            }
        }
        for (int i = 0; i < 2 * t->links; i++)
            assert_true(load[i] <= t->link[i / 2].bytes_per_s * (1 + 1e-9));
        for (int f = 0; f < FLOWS; f++) { /* each is held by a full wire on which none has more */
            sn_path p;
            bool held = false;
            assert_ok(sn_topo_path(t, flow[f].from, flow[f].to, &p));
            int at = t->card[flow[f].from].vertex;
            for (int k = 0; k < p.links; k++) {
                const sn_topo_link *l = &t->link[p.link[k]];
                held |= load[2 * p.link[k] + (l->a != at)] > l->bytes_per_s * (1 - 1e-9);
                at = l->a == at ? l->b : l->a;
            }
            assert_true(held);
        }
    }
    sn_topo_free(t);
}

/* Eight to one: an eighth each; one more pair elsewhere has all of its wires. */
static void test_incast(void **state)
{
    sn_topo *t = tree(2, 8, 8);
    sn_sim_flow flow[9];
    double rate[9];
    for (int f = 0; f < 8; f++)
        flow[f] = (sn_sim_flow){f + 1, 0};
    flow[8] = (sn_sim_flow){9, 10};
    assert_ok(sn_sim_rates(t, flow, 9, rate));
    for (int f = 0; f < 8; f++)
        assert_true(fabs(rate[f] / 1.25e9 - 1) < 1e-9);
    assert_true(fabs(rate[8] / 10e9 - 1) < 1e-9);
    sn_topo_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_truth),          cmocka_unit_test(test_search_is_complete),
        cmocka_unit_test(test_parts_add_up),   cmocka_unit_test(test_monotonic),
        cmocka_unit_test(test_refusals),       cmocka_unit_test(test_pipelines),
        cmocka_unit_test(test_walk),           cmocka_unit_test(test_54_days),
        cmocka_unit_test(test_failure_rates),  cmocka_unit_test(test_best_interval),
        cmocka_unit_test(test_run_refusals),   cmocka_unit_test(test_topology_matters),
        cmocka_unit_test(test_rates_are_fair), cmocka_unit_test(test_incast)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
