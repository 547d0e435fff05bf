/* SPDX-License-Identifier: Apache-2.0
 *
 * Every split of a model over a cluster. The price of a layer depends on few of the choices, so it
 * is asked for once for each of them; what is left of a candidate is arithmetic. */
#include "sim/private.h"

#include <string.h>

#define USABLE 0.93 /* of a card's memory: the rest is the libraries' and gaps */

typedef struct search {
    const sn_sim_cluster *c;
    const sn_sim_model *m;
    int64_t batch;
    sn_sim_answer *a;
    bool any;
} search;

static bool better(const sn_sim_found *x, const sn_sim_found *y)
{
    if (x->step.seconds != y->step.seconds)
        return x->step.seconds < y->step.seconds;
    return x->step.memory < y->step.memory;
}

static bool same_split(const sn_sim_layout *x, const sn_sim_layout *y)
{
    return x->tensor == y->tensor && x->pipeline == y->pipeline && x->data == y->data &&
           x->context == y->context;
}

/* Keep the best of each split, and of those the best few. */
static void keep(sn_sim_answer *a, const sn_sim_found *f)
{
    int at = 0, most = (int) SN_COUNT(a->best);
    while (at < a->count && !same_split(&a->best[at].layout, &f->layout))
        at++;
    if (at < a->count && !better(f, &a->best[at]))
        return;
    if (at == a->count && a->count == most) {
        if (!better(f, &a->best[--at]))
            return;
    } else if (at == a->count) {
        a->count++;
    }
    for (; at > 0 && better(f, &a->best[at - 1]); at--)
        a->best[at] = a->best[at - 1];
    a->best[at] = *f;
}

static void judge(search *s, const sn_sim_layout *l, const sim_layer *y)
{
    sn_sim_found f = {.layout = *l};
    sim_step_price(s->c, s->m, l, s->batch, y, &f.step);
    s->a->candidates++;
    if (!s->any || f.step.memory < s->a->leanest.step.memory)
        s->a->leanest = f;
    s->any = true;
    if (f.step.memory > USABLE * s->c->card->memory)
        return;
    s->a->fitting++;
    keep(s->a, &f);
}

/* What a split leaves open. */
static void vary(search *s, sn_sim_layout l, const sim_layer *y)
{
    static const int shards[] = {0, 1, 3};
    int64_t micros = s->batch / (l.data * l.micro_batch), layers = s->m->layers;
    for (int r = 0; r < SN_SIM_RECOMPUTES; r++)
        for (size_t z = 0; z < SN_COUNT(shards); z++)
            for (int k = 0; k < SN_SIM_SCHEDULES; k++)
                for (int v = 1; v <= 16; v++) {
                    bool parts = v == 1 || (k == SN_SIM_1F1B && layers % (l.pipeline * v) == 0 &&
                                            micros % l.pipeline == 0);
                    if (l.pipeline == 1 && (k || v > 1))
                        break;
                    if (!parts || (shards[z] && l.data * l.context == 1))
                        continue;
                    l.recompute = (sn_sim_recompute) r;
                    l.schedule = (sn_sim_schedule) k;
                    l.shards = shards[z];
                    l.virtual_stages = v;
                    judge(s, &l, y);
                }
}

static void of_split(search *s, sn_sim_layout l)
{
    int64_t each = s->batch / l.data;
    for (int64_t b = 1; b <= each && b <= 64; b *= 2) {
        if (each % b)
            break;
        l.micro_batch = b;
        for (int sp = 0; sp <= (l.tensor > 1); sp++) {
            l.sequence_parallel = sp;
            sim_layer y = sim_layer_price(s->c, s->m, &l);
            vary(s, l, &y);
        }
    }
}

/* The most data groups that the cards and the batch allow. */
static int data_of(const search *s, int64_t others)
{
    for (int64_t d = s->c->cards / others; d > 0; d--)
        if (s->batch % d == 0)
            return (int) d;
    return 0;
}

static bool may_cut(const sn_sim_model *m, int64_t p)
{
    return p <= m->layers && (m->layers % p == 0 || (p & (p - 1)) == 0);
}

static void every_split(search *s)
{
    for (int t = 1; t <= s->m->heads && t <= s->c->cards && t <= 2 * s->c->domain; t++) {
        if (s->m->heads % t || s->m->hidden % t || (t & (t - 1)))
            continue;
        for (int64_t p = 1; p <= s->m->layers && t * p <= s->c->cards; p++)
            for (int64_t c = 1; may_cut(s->m, p) && c <= 64 && t * p * c <= s->c->cards; c *= 2) {
                if (c > 1 && s->m->sequence / c < 4096)
                    break; /* shorter parts gain nothing that a smaller micro-batch does not */
                sn_sim_layout l = {.tensor = t,
                                   .pipeline = (int) p,
                                   .context = (int) c,
                                   .data = data_of(s, t * p * c),
                                   .virtual_stages = 1,
                                   .fused_sum = true};
                if (l.data > 0)
                    of_split(s, l);
            }
    }
}

static sn_status nothing_fits(const search *s)
{
    char need[32], has[32], all[32];
    const sn_sim_found *f = &s->a->leanest;
    double states = 18 * sn_sim_parameters(s->m);
    return sn_fail(
        SN_EFIT,
        "%s does not fit %d cards of kind %s: the leanest split (tensor %d x pipeline %d "
        "x data %d) needs %s a card, %s are usable; parameters and optimizer alone are "
        "%s, so take at least %.0f cards",
        s->m->name, s->c->cards, s->c->card->name, f->layout.tensor, f->layout.pipeline,
        f->layout.data, sn_fmt_bytes(need, f->step.memory),
        sn_fmt_bytes(has, USABLE * s->c->card->memory), sn_fmt_bytes(all, states),
        1.2 * f->step.memory / (USABLE * s->c->card->memory) * s->c->cards);
}

sn_status sn_sim_search(const sn_sim_cluster *c, const sn_sim_model *m, int64_t batch,
                        sn_sim_answer *ret)
{
    search s = {.c = c, .m = m, .batch = batch, .a = ret};
    memset(ret, 0, sizeof(*ret));
    if (batch < 1 || c->cards < 1)
        return sn_fail(SN_EINVAL, "a step of %lld samples on %d cards", (long long) batch,
                       c->cards);
    every_split(&s);
    if (!s.any)
        return sn_fail(SN_EFIT,
                       "no split of %s over %d cards divides its %lld heads and %lld "
                       "layers and a batch of %lld",
                       m->name, c->cards, (long long) m->heads, (long long) m->layers,
                       (long long) batch);
    return ret->count > 0 ? SN_OK : nothing_fits(&s);
}
