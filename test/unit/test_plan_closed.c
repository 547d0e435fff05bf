/* SPDX-License-Identifier: Apache-2.0
 *
 * The search's closed form against the price of the whole programs, on a thousand random
 * candidates: networks, machines, splits, micro-batches, precisions, bucket sizes. */
#include "plan/private.h"
#include "unit/plan_models.h"
#include "unit/sn_test.h"

#include <math.h>

enum { CANDIDATES = 1000 };
#define PRICE_WITHIN 0.03
#define MEMORY_WITHIN                                                                              \
    0.12 /* of the search: gaps differ; what is chosen is weighed by its programs */

typedef struct draw {
    sn_prng rng;
    sn_gpt gpt;
    int64_t mlp[4];
    sn_plan_opts o;
} draw;

static int pick(draw *d, int choices)
{
    return (int) sn_prng_below(&d->rng, choices);
}

static void draw_candidate(draw *d, const sn_topo *topo)
{
    bool gpt = pick(d, 3) > 0;
    d->gpt = (sn_gpt){.layers = 1 + pick(d, 6),
                      .hidden = 32 << pick(d, 3),
                      .heads = 4,
                      .sequence = 16 << pick(d, 3),
                      .vocab = 64};
    d->mlp[0] = 12, d->mlp[1] = 8 << pick(d, 4), d->mlp[2] = 16 << pick(d, 4), d->mlp[3] = 8;
    int tensor = 1 << pick(d, 3), data = 1 << pick(d, 3), pipeline = 1 + pick(d, 8);
    int accumulation = 4 + pick(d, 9);
    d->o = (sn_plan_opts){.topo = topo,
                          .tensor = tensor,
                          .pipeline = SN_MIN(pipeline, topo->cards / tensor / data),
                          .data = data,
                          .batch = (int64_t) accumulation * data * (1 + pick(d, 3)),
                          .accumulation = accumulation,
                          .tokens_per_sample = gpt ? d->gpt.sequence : 1,
                          .precision = pick(d, 2) ? SN_BF16 : SN_F32,
                          .bucket_bytes = UINT64_C(10000) << pick(d, 6),
                          .build = gpt ? build_gpt : build_mlp,
                          .ctx = gpt ? (void *) &d->gpt : (void *) d->mlp};
}

static bool near(double a, double b, double within)
{
    return fabs(a - b) <= within * fmax(a, b);
}

/* Returns how far the closed form is from the programs, in parts of the step. */
static double compare(const sn_plan *plan, int number)
{
    sn_plan_cost closed, whole, exact;
    assert_ok(plan_cost_closed(plan, false, &closed));
    assert_ok(plan_cost_closed(plan, true, &exact));
    assert_ok(plan_cost(plan, &whole));
    if (!near(closed.step_ns, whole.step_ns, PRICE_WITHIN) ||
        !near((double) closed.memory_bytes, (double) whole.memory_bytes, MEMORY_WITHIN))
        fail_msg("candidate %d, tensor %d pipeline %d data %d, %lld micro-batches: step %.0f, "
                 "programs %.0f ns; memory %llu, programs %llu",
                 number, plan->tensor, plan->pipeline, plan->data,
                 (long long) plan->opts.accumulation, closed.step_ns, whole.step_ns,
                 (unsigned long long) closed.memory_bytes, (unsigned long long) whole.memory_bytes);
    assert_true(exact.memory_bytes == whole.memory_bytes);
    assert_true(closed.flops == whole.flops && closed.plain_bytes == whole.plain_bytes);
    assert_true(near(closed.compute_ns, whole.compute_ns, PRICE_WITHIN));
    return fabs(closed.step_ns / whole.step_ns - 1);
}

static void closed_form_is_the_price_of_programs(void **state)
{
    sn_topo *machines[] = {machine(1, 8), machine_of(2, 8, 0.05), machine_of(4, 8, 20)};
    draw d = {.rng = {4}};
    double worst = 0, sum = 0;
    for (int n = 0; n < CANDIDATES;) {
        sn_plan *plan;
        draw_candidate(&d, machines[pick(&d, SN_COUNT(machines))]);
        if (sn_plan_make(&d.o, &plan) < 0)
            continue; /* more stages than operations, more splits than heads or columns */
        double off = compare(plan, n++);
        worst = fmax(worst, off);
        sum += off;
        sn_plan_free(plan);
    }
    print_message("off by %.3f %% on average, %.2f %% at most\n", 100 * sum / CANDIDATES,
                  100 * worst);
    for (size_t i = 0; i < SN_COUNT(machines); i++)
        sn_topo_free(machines[i]);
}

/* A deep network is cut into few kinds of stages: the search's work does not grow with depth. */
static void same_price_at_any_depth(void **state)
{
    sn_topo *t = machine_of(4, 8, 1);
    for (int stages = 8; stages <= 32; stages *= 2) {
        sn_gpt gpt = {.layers = 2 * stages, .hidden = 64, .heads = 4, .sequence = 32, .vocab = 64};
        sn_plan_opts o = {.topo = t,
                          .tensor = 1,
                          .pipeline = stages,
                          .data = 1,
                          .batch = 16,
                          .accumulation = 16,
                          .tokens_per_sample = 32,
                          .precision = SN_F32,
                          .build = build_gpt,
                          .ctx = &gpt};
        sn_plan *plan;
        assert_ok(sn_plan_make(&o, &plan));
        compare(plan, stages);
        sn_plan_free(plan);
    }
    sn_topo_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_form_is_the_price_of_programs),
        cmocka_unit_test(same_price_at_any_depth),
    };
    return sn_test_run(tests);
}
