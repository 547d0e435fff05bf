/* SPDX-License-Identifier: Apache-2.0
 *
 * The search: every (tensor, pipeline, data) that uses the cards, in both orders where hosts
 * differ, is planned, priced in closed form and weighed against the memory of a card. The fastest
 * is kept if its programs fit as well; the others leave a sentence. */
#include "plan/private.h"

#include <stdlib.h>

typedef struct search {
    const sn_plan_opts *opts;
    sn_arena *arena; /* candidates and their sentences until the end */
    int cards;
    uint64_t memory;   /* of the smallest card, 0 unlimited */
    int found, chosen; /* candidates; the one that `best` is of */
    size_t cap;
    sn_candidate *candidate;
    sn_plan *best;
} search;

/* ---- one candidate */

static sn_status divides(const sn_plan_opts *o, int data)
{
    int64_t unit = o->accumulation * data;
    if (o->batch % unit == 0)
        return SN_OK;
    int64_t below = o->batch / unit * unit;
    return sn_fail(SN_EFIT,
                   "batch_size %lld is not divisible by gradient_accumulation %lld × data %d: "
                   "batch_size may be %lld%s%lld",
                   (long long) o->batch, (long long) o->accumulation, data,
                   (long long) (below ? below : unit), below ? " or " : ", or ",
                   (long long) (below ? below + unit : 2 * unit));
}

static sn_status plan_one(const sn_plan_opts *opts, const sn_candidate *c, sn_plan **ret)
{
    SN_TRY(divides(opts, c->data));
    sn_arena *arena = sn_arena_create();
    sn_plan *p = SN_NEW(arena, sn_plan);
    *p = (sn_plan){.arena = arena,
                   .tensor = c->tensor,
                   .pipeline = c->pipeline,
                   .data = c->data,
                   .world = c->tensor * c->pipeline * c->data,
                   .pipeline_near = c->pipeline_near,
                   .topo = opts->topo,
                   .opts = *opts,
                   .private_ = SN_NEW(arena, struct sn_plan_private)};
    sn_status status;
    plan_mesh_groups(p);
    SN_TRY_OR(plan_price_init(&p->private_->price, p, arena), free_arena);
    SN_TRY_OR(plan_model_make(p, &p->private_->price, arena, &p->private_->model), free_arena);
    p->graph = p->private_->model->g;
    bool asked = opts->tensor && opts->pipeline && opts->data;
    SN_TRY_OR(plan_cost_closed(p, asked, &p->cost), free_arena);
    *ret = p;
    return SN_OK;
free_arena:
    sn_arena_free(arena);
    return status;
}

/* Does it fit with this cost? */
static void weigh(search *s, sn_candidate *c, const sn_plan_cost *cost)
{
    char need[32], have[32];
    c->cost = *cost;
    c->feasible = !s->memory || c->cost.memory_bytes <= s->memory;
    if (!c->feasible)
        c->why = sn_arena_printf(s->arena, "needs %s a card, %s are there",
                                 sn_fmt_bytes(need, (double) c->cost.memory_bytes),
                                 sn_fmt_bytes(have, (double) s->memory));
}

static void consider(search *s, int tensor, int pipeline, int data, bool near)
{
    s->candidate = sn_arena_grow(s->arena, s->candidate, (size_t) s->found, (size_t) s->found + 1,
                                 sizeof *s->candidate, &s->cap);
    sn_candidate *c = &s->candidate[s->found++];
    sn_plan *plan = NULL;
    *c =
        (sn_candidate){.tensor = tensor, .pipeline = pipeline, .data = data, .pipeline_near = near};
    if (plan_one(s->opts, c, &plan) < 0) {
        c->why = sn_arena_str(s->arena, sn_errmsg());
        return;
    }
    weigh(s, c, &plan->cost);
    if (c->feasible && (!s->best || c->cost.step_ns < s->best->cost.step_ns)) {
        sn_plan_free(s->best);
        s->best = plan;
        s->chosen = s->found - 1;
    } else {
        sn_plan_free(plan);
    }
}

/* The fastest of what is left. */
static void choose_again(search *s)
{
    sn_plan_free(s->best);
    s->best = NULL;
    s->chosen = -1;
    for (int i = 0; i < s->found; i++)
        if (s->candidate[i].feasible &&
            (s->chosen < 0 || s->candidate[i].cost.step_ns < s->candidate[s->chosen].cost.step_ns))
            s->chosen = i;
    if (s->chosen >= 0 && plan_one(s->opts, &s->candidate[s->chosen], &s->best) < 0)
        s->best = NULL;
}

/* The choice needs what its programs need; should they not fit, the next one is taken. */
static void settle(search *s)
{
    while (s->best) {
        sn_plan_cost exact;
        sn_candidate *c = &s->candidate[s->chosen];
        if (plan_cost_closed(s->best, true, &exact) == SN_OK)
            weigh(s, c, &exact);
        else
            c->feasible = false;
        s->best->cost = c->cost;
        if (c->feasible)
            return;
        choose_again(s);
    }
}

static int hosts_used(const sn_topo *topo, int cards)
{
    return topo->card[cards - 1].host + 1;
}

/* All splits of exactly `used` cards that agree with what was given; the best is kept. */
static void consider_all(search *s, int used)
{
    const sn_plan_opts *o = s->opts;
    for (int t = 1; t <= used; t++)
        for (int p = 1; used % t == 0 && p <= used / t; p++) {
            int d = used / t / p;
            if (t * p * d != used || (o->tensor && t != o->tensor) ||
                (o->pipeline && p != o->pipeline) || (o->data && d != o->data))
                continue;
            consider(s, t, p, d, true);
            if (p > 1 && d > 1 && hosts_used(o->topo, used) > 1)
                consider(s, t, p, d, false);
        }
    settle(s);
}

/* ---- what is said about it */

static const char *shape_of(sn_arena *arena, const sn_candidate *c)
{
    return sn_arena_printf(arena, "tensor %d × pipeline %d × data %d", c->tensor, c->pipeline,
                           c->data);
}

/* What grew most between the choice and a loser. */
static const char *blame(const sn_plan_cost *best, const sn_plan_cost *c)
{
    const struct {
        const char *name;
        double more;
    } part[] = {{"computation", c->compute_ns - best->compute_ns},
                {"collectives", c->collective_ns - best->collective_ns},
                {"bubble and transfers between stages", c->pipeline_ns - best->pipeline_ns},
                {"optimizer", c->optimizer_ns - best->optimizer_ns}};
    size_t most = 0;
    for (size_t i = 1; i < SN_COUNT(part); i++)
        if (part[i].more > part[most].more)
            most = i;
    return part[most].name;
}

static int by_merit(const void *a, const void *b)
{
    const sn_candidate *x = a, *y = b;
    if (x->feasible != y->feasible)
        return x->feasible ? -1 : 1;
    if (x->feasible && x->cost.step_ns != y->cost.step_ns)
        return x->cost.step_ns < y->cost.step_ns ? -1 : 1;
    if (x->tensor != y->tensor)
        return x->tensor - y->tensor;
    if (x->pipeline != y->pipeline)
        return x->pipeline - y->pipeline;
    return y->pipeline_near - x->pipeline_near;
}

static const char *reason(const search *s, sn_arena *arena)
{
    const sn_candidate *best = &s->candidate[0];
    const sn_plan_cost *c = &best->cost;
    const char *order = best->pipeline > 1 && best->data > 1
                            ? (best->pipeline_near ? ", stages of a pipeline next to each other"
                                                   : ", data groups next to each other")
                            : "";
    char step[32];
    const char *text = sn_arena_printf(
        arena,
        "%s%s: predicted %s a step (compute %.0f %%, collectives %.0f %%, pipeline %.0f %%, "
        "optimizer %.0f %%)",
        shape_of(arena, best), order, sn_fmt_ns(step, c->step_ns), 100 * c->compute_ns / c->step_ns,
        100 * c->collective_ns / c->step_ns, 100 * c->pipeline_ns / c->step_ns,
        100 * c->optimizer_ns / c->step_ns);
    if (s->found > 1 && s->candidate[1].feasible)
        return sn_arena_printf(arena, "%s; next best %s is %.1f %% slower", text,
                               shape_of(arena, &s->candidate[1]),
                               100 * (s->candidate[1].cost.step_ns / c->step_ns - 1));
    return sn_arena_printf(arena, "%s; %s", text,
                           s->found > 1 ? "nothing else fits" : "as asked for");
}

static void explain(search *s)
{
    sn_plan *plan = s->best;
    qsort(s->candidate, (size_t) s->found, sizeof *s->candidate, by_merit);
    plan->candidates = s->found;
    plan->candidate =
        sn_arena_copy(plan->arena, s->candidate, sizeof *s->candidate * (size_t) s->found);
    for (int i = 0; i < s->found; i++) {
        sn_candidate *c = &plan->candidate[i];
        if (i == 0)
            c->why = "the choice";
        else if (c->feasible)
            c->why = sn_arena_printf(plan->arena, "%.1f %% slower: %s",
                                     100 * (c->cost.step_ns / plan->cost.step_ns - 1),
                                     blame(&plan->cost, &c->cost));
        else
            c->why = sn_arena_str(plan->arena, c->why);
    }
    plan->reason = reason(s, plan->arena);
}

/* Nothing fits: say why the given split (or the first of all) does not, and what would. */
static sn_status refuse(search *s)
{
    sn_candidate asked = s->candidate[0];
    for (int i = 0; i < s->found; i++) /* the one that needs least memory, if memory it is */
        if (s->candidate[i].cost.memory_bytes &&
            (!asked.cost.memory_bytes ||
             s->candidate[i].cost.memory_bytes < asked.cost.memory_bytes))
            asked = s->candidate[i];
    if (!asked.cost.memory_bytes || s->opts->forward_only)
        return sn_fail(SN_EFIT, "%s: %s", shape_of(s->arena, &asked), asked.why);
    sn_plan_opts all = *s->opts;
    search wider = {
        .opts = &all, .arena = s->arena, .cards = s->opts->topo->cards, .memory = s->memory};
    all.tensor = all.pipeline = all.data = 0;
    consider_all(&wider, wider.cards);
    char need[32];
    if (wider.best)
        sn_fail(SN_EFIT, "%s %s: tensor %d × pipeline %d × data %d would need %s",
                shape_of(s->arena, &asked), asked.why, wider.best->tensor, wider.best->pipeline,
                wider.best->data, sn_fmt_bytes(need, (double) wider.best->cost.memory_bytes));
    else
        sn_fail(SN_EFIT,
                "%s %s: no split over %d cards fits; a smaller micro-batch (larger "
                "gradient_accumulation), a smaller model or more cards would",
                shape_of(s->arena, &asked), asked.why, wider.cards);
    sn_plan_free(wider.best);
    return SN_EFIT;
}

/* ---- the question */

static sn_status check_opts(const sn_plan_opts *o, int cards)
{
    if (o->tensor < 0 || o->pipeline < 0 || o->data < 0)
        return sn_fail(SN_EINVAL, "tensor, pipeline and data must be positive or auto");
    if (cards < 1 || cards > o->topo->cards)
        return sn_fail(SN_EFIT, "%d cards asked, %d exist", cards, o->topo->cards);
    if (o->batch < 1 || o->accumulation < 1 || o->tokens_per_sample < 1)
        return sn_fail(SN_EINVAL, "batch_size and gradient_accumulation must be at least 1");
    if (o->accumulation > INT32_MAX / 4)
        return sn_fail(SN_EINVAL, "gradient_accumulation %lld is beyond %d",
                       (long long) o->accumulation, INT32_MAX / 4);
    if (o->precision != SN_F32 && o->precision != SN_BF16)
        return sn_fail(SN_ENOTSUP, "precision %s is not offered: f32 and bf16 are",
                       sn_dtype_name(o->precision));
    int64_t given = (int64_t) SN_MAX(o->tensor, 1) * SN_MAX(o->pipeline, 1) * SN_MAX(o->data, 1);
    if (given > cards)
        return sn_fail(SN_EFIT, "tensor %d × pipeline %d × data %d needs %lld cards, %d are there",
                       SN_MAX(o->tensor, 1), SN_MAX(o->pipeline, 1), SN_MAX(o->data, 1),
                       (long long) given, cards);
    return SN_OK;
}

static uint64_t memory_of(const sn_plan_opts *o, int cards)
{
    uint64_t least = o->memory_limit;
    for (int c = 0; c < cards && !o->memory_limit; c++)
        if (o->topo->card[c].memory_bytes && (!least || o->topo->card[c].memory_bytes < least))
            least = o->topo->card[c].memory_bytes;
    return least;
}

static sn_status decide(search *s)
{
    const sn_plan_opts *o = s->opts;
    int given = SN_MAX(o->tensor, 1) * SN_MAX(o->pipeline, 1) * SN_MAX(o->data, 1);
    if (o->tensor && o->pipeline && o->data)
        consider_all(s, given);
    for (int used = s->cards; !s->best && !(o->tensor && o->pipeline && o->data) && used >= given;
         used--)
        consider_all(s, used);
    if (!s->best)
        return refuse(s);
    explain(s);
    return SN_OK;
}

sn_status sn_plan_make(const sn_plan_opts *opts, sn_plan **ret)
{
    int cards = opts->cards ? opts->cards : opts->topo->cards;
    SN_TRY(check_opts(opts, cards));
    search s = {
        .opts = opts, .arena = sn_arena_create(), .cards = cards, .memory = memory_of(opts, cards)};
    sn_status status = decide(&s);
    if (status == SN_OK)
        *ret = s.best;
    sn_arena_free(s.arena);
    return status;
}

void sn_plan_free(sn_plan *plan)
{
    if (plan)
        sn_arena_free(plan->arena);
}
