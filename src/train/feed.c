/* SPDX-License-Identifier: Apache-2.0
 *
 * feed — which bytes are the samples of a step.
 *
 *   sample i of step s:  text[o … o + T) → text[o + 1 … o + T],  o = hash(seed, s, i) mod (bytes −
 * T)
 *
 *   step      | micro-batch 0       | micro-batch 1       | …      i = micro · Bmicro
 *   micro     | data rank 0 | rank 1 |                                 + data rank · Blocal + j
 *
 * So what a step learns from depends on (seed, s) alone: not on the split, not on the number of
 * micro-batches, not on where a run was resumed. */
#include "train/parts.h"

#include <string.h>

static bool named(const sn_plan *plan, const sn_slot *slot, const char *name)
{
    return slot->value >= 0 && plan->graph->value[slot->value].name &&
           !strcmp(plan->graph->value[slot->value].name, name);
}

sn_status train_feed_init(const sn_plan *plan, const sn_program *program, sn_exec *exec,
                          sn_arena *arena, train_feed *ret)
{
    int tensor, stage;
    train_feed f = {.input = SN_NEW_N(arena, train_input, program->slots)};
    sn_plan_coords(plan, program->rank, &tensor, &stage, &f.data);
    f.sequence = plan->opts.tokens_per_sample;
    f.micro_batch = plan->opts.batch / SN_MAX(1, plan->opts.accumulation);
    for (int i = 0; i < program->slots; i++) {
        const sn_slot *slot = &program->slot[i];
        if (slot->kind != SN_SLOT_INPUT)
            continue;
        bool targets = named(plan, slot, "targets");
        if ((!targets && !named(plan, slot, "ids")) || slot->dtype != SN_I32 ||
            slot->shape.rank != 2 || slot->shape.dim[0] != f.sequence)
            return sn_fail(SN_ENOTSUP, "text cannot feed the input %s of rank %d's program",
                           slot->name ? slot->name : "?", program->rank);
        f.input[f.inputs++] = (train_input){.at = sn_exec_slot(exec, i),
                                            .micro = SN_MAX(0, slot->micro),
                                            .samples = slot->shape.dim[1],
                                            .targets = targets};
    }
    *ret = f;
    return SN_OK;
}

/* Column j of [sequence][samples]: the `have` bytes at `from`, then `pad`. */
static void fill(const train_input *in, int64_t j, int64_t sequence, const uint8_t *from,
                 int64_t have, int32_t pad)
{
    for (int64_t t = 0; t < sequence; t++)
        in->at[t * in->samples + j] = t < have ? from[t] : pad;
}

static int64_t sample_of(const train_feed *f, const train_input *in, int64_t j)
{
    return in->micro * f->micro_batch + f->data * in->samples + j;
}

void train_feed_step(const train_feed *f, const sn_text *text, uint64_t seed, int64_t step)
{
    uint64_t places = (uint64_t) (sn_text_train_bytes(text) - f->sequence);
    for (int k = 0; k < f->inputs; k++) {
        const train_input *in = &f->input[k];
        for (int64_t j = 0; j < in->samples; j++) {
            uint64_t drawn =
                sn_hash64(seed, (uint64_t) step, (uint64_t) sample_of(f, in, j)) % places;
            fill(in, j, f->sequence, sn_text_train(text) + drawn + in->targets, f->sequence, 0);
        }
    }
}

int64_t train_held_windows(const sn_text *text, int64_t sequence)
{
    return (sn_text_held_bytes(text) - 1 + sequence - 1) / sequence;
}

void train_feed_held(const train_feed *f, const sn_text *text, const int64_t *window,
                     int64_t windows)
{
    for (int k = 0; k < f->inputs; k++) {
        const train_input *in = &f->input[k];
        for (int64_t j = 0; j < in->samples; j++) {
            int64_t i = sample_of(f, in, j);
            int64_t begin = i < windows ? window[i] * f->sequence : 0;
            int64_t have = i < windows ? sn_text_held_bytes(text) - 1 - begin : 0;
            fill(in, j, f->sequence, sn_text_held(text) + begin + in->targets,
                 SN_MIN(have, f->sequence), in->targets ? -1 : 0);
        }
    }
}
