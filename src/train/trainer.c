/* SPDX-License-Identifier: Apache-2.0
 *
 * trainer — a program on one card, fed and stepped by the caller.
 *
 *   learner    the training program: state, inputs by micro-batch, loss
 *   predictor  a second program, forward only, of the same batch; made when first asked for. Its
 *              working parameters come from the learner's masters when those have changed. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "os/os.h"
#include "train/parts.h"

#define PATIENCE (600 * SN_SEC) /* one card waits for nobody */

typedef struct side { /* a program and what runs it */
    sn_plan *plan;
    sn_program *program;
    sn_exec *exec;
} side;

struct sn_trainer {
    sn_trainer_opts opts;
    sn_topo *topo;
    sn_card *card;
    side learner, predictor;
    sn_arena *arena;
    int64_t steps, updates; /* updates: of the masters, for `seen` */
    int64_t seen;           /* updates that the predictor has */
};

/* ---- opening ---- */

static sn_status open_side(sn_trainer *t, bool forward_only, side *ret)
{
    const sn_trainer_opts *o = &t->opts;
    sn_plan_opts opts = {.topo = t->topo,
                         .cards = 1,
                         .tensor = 1,
                         .pipeline = 1,
                         .data = 1,
                         .batch = o->batch,
                         .accumulation = forward_only ? 1 : o->accumulation,
                         .tokens_per_sample = 1,
                         .precision = o->precision,
                         .memory_limit = o->memory_limit,
                         .forward_only = forward_only,
                         .build = o->build,
                         .ctx = o->ctx};
    SN_TRY(sn_plan_make(&opts, &ret->plan));
    SN_TRY(sn_plan_program(ret->plan, 0, &ret->program));
    return sn_exec_create(ret->plan, ret->program, t->card, NULL, 0, &ret->exec);
}

static void close_side(side *s)
{
    sn_exec_free(s->exec);
    sn_program_free(s->program);
    sn_plan_free(s->plan);
}

/* Working parameters from the masters. */
static sn_status gather(side *s)
{
    int64_t time_ns[SN_TIME_KINDS] = {0};
    return sn_exec_gather(s->exec, sn_now() + PATIENCE, time_ns);
}

static sn_status open_all(sn_trainer *t)
{
    sn_trainer_opts *o = &t->opts;
    if (!o->build || o->batch < 1)
        return sn_fail(SN_EINVAL, "a trainer needs a build function and a batch of at least 1");
    if (o->precision != SN_F32 && o->precision != SN_BF16)
        return sn_fail(SN_ENOTSUP, "precision %s; F32 and BF16 are offered",
                       sn_dtype_name(o->precision));
    o->accumulation = SN_MAX(1, o->accumulation);
    o->card = o->card ? o->card : "cpu";
    if (o->adamw.beta1 <= 0 && o->adamw.beta2 <= 0)
        o->adamw.beta1 = 0.9, o->adamw.beta2 = 0.999;
    o->adamw.eps = o->adamw.eps > 0 ? o->adamw.eps : 1e-8;
    t->topo = train_one_card(o->card);
    SN_TRY(sn_card_open(o->card, &(sn_card_opts){.threads = 1}, &t->card));
    SN_TRY(open_side(t, false, &t->learner));
    train_state_init(t->learner.plan, t->learner.program, t->learner.exec, o->seed);
    return gather(&t->learner);
}

sn_status sn_trainer_open(const sn_trainer_opts *opts, sn_trainer **ret)
{
    sn_trainer *t = sn_alloc(sizeof *t);
    t->opts = *opts;
    t->seen = -1;
    t->arena = sn_arena_create();
    sn_status status = open_all(t);
    if (status < 0) {
        sn_trainer_close(t);
        return status;
    }
    *ret = t;
    return SN_OK;
}

void sn_trainer_close(sn_trainer *t)
{
    if (!t)
        return;
    close_side(&t->learner);
    close_side(&t->predictor);
    sn_card_close(t->card);
    sn_topo_free(t->topo);
    sn_arena_free(t->arena);
    free(t);
}

/* ---- inputs ---- */

static const char *value_name(const side *s, const sn_slot *slot)
{
    const char *name = slot->value >= 0 ? s->plan->graph->value[slot->value].name : NULL;
    return name ? name : "";
}

/* Bytes before, of one sample's run, and how often, around the dimension that counts samples. */
static void runs_of(const side *s, const sn_slot *slot, int64_t *outer, size_t *inner)
{
    int batch_dim = s->plan->graph->value[slot->value].batch_dim;
    *outer = 1;
    *inner = sn_dtype_bytes(slot->dtype);
    for (int d = 0; d < slot->shape.rank; d++)
        if (d < batch_dim)
            *outer *= slot->shape.dim[d];
        else if (d > batch_dim)
            *inner *= (size_t) slot->shape.dim[d];
}

/* Samples [first, first + local) of `all` in data ↔ the slot. */
static void copy_samples(const side *s, int index, int64_t all, int64_t first, char *data, bool out)
{
    const sn_slot *slot = &s->program->slot[index];
    int batch_dim = s->plan->graph->value[slot->value].batch_dim;
    char *at = sn_exec_slot(s->exec, index);
    int64_t outer;
    size_t inner;
    if (batch_dim < 0) { /* the same for all samples */
        memcpy(out ? data : at, out ? at : data, slot->bytes);
        return;
    }
    runs_of(s, slot, &outer, &inner);
    size_t local = (size_t) slot->shape.dim[batch_dim] * inner;
    for (int64_t o = 0; o < outer; o++) {
        char *there = data + ((size_t) (o * all + first)) * inner, *here = at + (size_t) o * local;
        memcpy(out ? there : here, out ? here : there, local);
    }
}

static sn_status no_input(const sn_trainer *t, const char *name)
{
    sn_str all = {0};
    const side *s = &t->learner;
    for (int i = 0; i < s->program->slots; i++)
        if (s->program->slot[i].kind == SN_SLOT_INPUT && s->program->slot[i].micro <= 0)
            sn_str_printf(&all, "%s%s", all.len ? ", " : "", value_name(s, &s->program->slot[i]));
    sn_status status = sn_fail(SN_ENOTFOUND,
                               "the graph has no input '%.60s' that the loss depends "
                               "on; there are: %s",
                               name, sn_str_get(&all));
    sn_str_done(&all);
    return status;
}

static size_t whole_bytes(const side *s, const sn_slot *slot, int64_t batch)
{
    int batch_dim = s->plan->graph->value[slot->value].batch_dim;
    return batch_dim < 0 ? slot->bytes
                         : slot->bytes / (size_t) slot->shape.dim[batch_dim] * (size_t) batch;
}

/* Into every micro-batch's slot of one program; how many there were. */
static int fill(sn_trainer *t, side *s, const char *name, const void *data, size_t bytes,
                sn_status *status)
{
    int found = 0;
    for (int i = 0; i < s->program->slots && *status >= 0; i++) {
        const sn_slot *slot = &s->program->slot[i];
        if (slot->kind != SN_SLOT_INPUT || strcmp(value_name(s, slot), name) != 0)
            continue;
        int batch_dim = s->plan->graph->value[slot->value].batch_dim;
        size_t want = whole_bytes(s, slot, t->opts.batch);
        if (bytes != want)
            *status = sn_fail(SN_EINVAL, "input %s takes %zu bytes a step, %zu were given", name,
                              want, bytes);
        else
            copy_samples(s, i, t->opts.batch,
                         batch_dim < 0 ? 0 : SN_MAX(0, slot->micro) * slot->shape.dim[batch_dim],
                         (char *) data, false);
        found++;
    }
    return found;
}

sn_status sn_trainer_input(sn_trainer *t, const char *name, const void *data, size_t bytes)
{
    sn_status status = SN_OK;
    if (!fill(t, &t->learner, name, data, bytes, &status))
        return no_input(t, name);
    return status;
}

/* ---- steps ---- */

static void set_hyper(sn_trainer *t, double lr)
{
    float *h = sn_exec_slot(t->learner.exec, t->learner.program->hyper);
    double n = (double) (t->steps + 1);
    if (!h)
        return;
    h[0] = (float) lr;
    h[1] = (float) t->opts.adamw.beta1;
    h[2] = (float) t->opts.adamw.beta2;
    h[3] = (float) t->opts.adamw.eps;
    h[4] = (float) t->opts.adamw.weight_decay;
    h[5] = (float) (1 / (1 - pow(t->opts.adamw.beta1, n)));
    h[6] = (float) (1 / (1 - pow(t->opts.adamw.beta2, n)));
    h[7] = (float) t->opts.adamw.clip;
}

sn_status sn_trainer_step(sn_trainer *t, double lr, double *ret_loss, double *ret_grad_norm)
{
    int64_t time_ns[SN_TIME_KINDS] = {0};
    side *s = &t->learner;
    set_hyper(t, lr);
    sn_status status = sn_exec_run(s->exec, sn_now() + PATIENCE, time_ns);
    if (status < 0)
        return sn_fail_in(status, "step %" PRId64, t->steps);
    const float *scalars = sn_exec_slot(s->exec, s->program->scalars);
    t->steps++;
    t->updates++;
    if (ret_loss)
        *ret_loss = (double) scalars[0];
    if (ret_grad_norm)
        *ret_grad_norm = sqrt((double) scalars[1]);
    return SN_OK;
}

int64_t sn_trainer_steps(const sn_trainer *t)
{
    return t->steps;
}

sn_status sn_trainer_loss(sn_trainer *t, double *ret_loss)
{
    int64_t time_ns[SN_TIME_KINDS] = {0};
    side *s = &t->learner;
    SN_TRY(sn_exec_run_forward(s->exec, sn_now() + PATIENCE, time_ns));
    *ret_loss = (double) ((const float *) sn_exec_slot(s->exec, s->program->scalars))[0];
    return SN_OK;
}

/* ---- parameters ---- */

/* Is it what goes by the value's name: a master, or a state of the graph itself? */
static bool named(const sn_state *s)
{
    return s->kind == SN_SLOT_MASTER || s->kind == SN_SLOT_STATE;
}

static float *master(const side *s, const char *name, int64_t *ret_count)
{
    for (int i = 0; i < s->program->states; i++) {
        const sn_state *state = &s->program->state[i];
        const sn_value *v = &s->plan->graph->value[state->value];
        if (named(state) && !strcmp(v->name, name)) {
            *ret_count = state->flat_count;
            return (float *) sn_exec_slot(s->exec, state->slot) + state->slot_at;
        }
    }
    return NULL;
}

static sn_status find_master(const sn_trainer *t, const char *name, int64_t count, float **ret)
{
    const side *s = &t->learner;
    int64_t there;
    float *at = master(s, name, &there);
    if (!at) {
        const char **names = sn_alloc((size_t) SN_MAX(1, s->program->states) * sizeof *names);
        for (int i = 0; i < s->program->states; i++)
            names[i] = s->plan->graph->value[s->program->state[i].value].name;
        const char *near = sn_str_nearest(name, names, s->program->states);
        free(names);
        return sn_fail(SN_ENOTFOUND, "there is no parameter '%.60s'%s%s%s", name,
                       near ? ", did you mean " : "", near ? near : "", near ? "?" : "");
    }
    if (there != count)
        return sn_fail(SN_EINVAL, "parameter %s has %lld elements, not %lld", name,
                       (long long) there, (long long) count);
    *ret = at;
    return SN_OK;
}

sn_status sn_trainer_get(const sn_trainer *t, const char *name, float *ret, int64_t count)
{
    float *at;
    SN_TRY(find_master(t, name, count, &at));
    memcpy(ret, at, (size_t) count * sizeof *ret);
    return SN_OK;
}

sn_status sn_trainer_set(sn_trainer *t, const char *name, const float *data, int64_t count)
{
    float *at;
    SN_TRY(find_master(t, name, count, &at));
    memcpy(at, data, (size_t) count * sizeof *data);
    t->updates++;
    return gather(&t->learner);
}

int64_t sn_trainer_parameters(const sn_trainer *t)
{
    return sn_graph_parameters(t->learner.plan->graph);
}

/* ---- predicting ---- */

static sn_status follow(sn_trainer *t)
{
    side *p = &t->predictor;
    if (!p->exec)
        SN_TRY(open_side(t, true, p));
    if (p->program->result < 0)
        return sn_fail(SN_ENOTSUP, "the graph has no value named \"logits\"");
    if (t->seen == t->updates)
        return SN_OK;
    for (int i = 0; i < p->program->states; i++) {
        const sn_state *state = &p->program->state[i];
        int64_t count;
        const float *from = master(&t->learner, p->plan->graph->value[state->value].name, &count);
        if (!named(state) || !from || count != state->flat_count)
            continue;
        memcpy((float *) sn_exec_slot(p->exec, state->slot) + state->slot_at, from,
               (size_t) count * sizeof *from);
    }
    t->seen = t->updates;
    return gather(p);
}

/* The inputs as the learner has them, micro-batch by micro-batch. */
static void pass_inputs(sn_trainer *t)
{
    side *l = &t->learner, *p = &t->predictor;
    for (int i = 0; i < p->program->slots; i++) {
        const sn_slot *to = &p->program->slot[i];
        if (to->kind != SN_SLOT_INPUT)
            continue;
        for (int k = 0; k < l->program->slots; k++) {
            const sn_slot *from = &l->program->slot[k];
            if (from->kind != SN_SLOT_INPUT || strcmp(value_name(l, from), value_name(p, to)) != 0)
                continue;
            int batch_dim = l->plan->graph->value[from->value].batch_dim;
            int64_t local = batch_dim < 0 ? 0 : from->shape.dim[batch_dim];
            copy_samples(l, k, t->opts.batch, SN_MAX(0, from->micro) * local,
                         sn_exec_slot(p->exec, i), true);
        }
    }
}

sn_status sn_trainer_predict(sn_trainer *t, float *ret, int64_t count)
{
    SN_TRY(follow(t));
    side *p = &t->predictor;
    const sn_slot *slot = &p->program->slot[p->program->result];
    int64_t there = sn_shape_count(slot->shape), time_ns[SN_TIME_KINDS] = {0};
    if (count != there)
        return sn_fail(SN_EINVAL, "logits have %lld elements a batch, not %lld", (long long) there,
                       (long long) count);
    pass_inputs(t);
    SN_TRY(sn_exec_run(p->exec, sn_now() + PATIENCE, time_ns));
    const void *at = sn_exec_slot(p->exec, p->program->result);
    for (int64_t i = 0; i < count; i++)
        ret[i] = slot->dtype == SN_BF16 ? sn_bf16_to_f32(((const uint16_t *) at)[i])
                                        : ((const float *) at)[i];
    return SN_OK;
}

/* ---- checkpoints ---- */

sn_status sn_trainer_save(sn_trainer *t, const char *dir)
{
    side *s = &t->learner;
    sn_arena *arena = sn_arena_create();
    sn_piece *piece;
    sn_str part = {0}, meta = {0};
    int n = train_state_pieces(s->plan, s->program, s->exec, true, arena, &piece);
    sn_str_printf(&meta, "{\"format\": 1, \"trainer\": true, \"step\": %" PRId64 "}", t->steps);
    sn_status status = sn_ckpt_write_part(dir, t->steps, 0, piece, n, &part);
    if (status >= 0) {
        const char *text = sn_str_get(&part);
        status = sn_ckpt_publish(dir, t->steps, &text, 1, sn_str_get(&meta), 0);
    }
    sn_str_done(&part);
    sn_str_done(&meta);
    sn_arena_free(arena);
    return status;
}

sn_status sn_trainer_load(sn_trainer *t, const char *dir)
{
    side *s = &t->learner;
    sn_ckpt *c;
    SN_TRY(sn_ckpt_find(dir, NULL, &c));
    sn_arena *arena = sn_arena_create();
    sn_piece *piece;
    int n = train_state_pieces(s->plan, s->program, s->exec, false, arena, &piece);
    sn_status status = train_state_load(s->program, c, piece, n);
    if (status >= 0) {
        t->steps = sn_ckpt_step(c);
        t->updates++;
        status = gather(s);
    }
    sn_arena_free(arena);
    sn_ckpt_close(c);
    return status < 0 ? sn_fail_in(status, "loading from %s", dir) : SN_OK;
}
