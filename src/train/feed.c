/* SPDX-License-Identifier: Apache-2.0
 *
 * feed — which tokens are the samples of a step.
 *
 *   epoch e:   | skip | window 0 | window 1 | …          windows of T tokens that do not overlap
 *   sample k:  window permute(seed, e, k mod windows) of epoch e = k / windows:
 *              tokens[o … o + T) → tokens[o + 1 … o + T]
 *
 * Each epoch takes every window once and begins at another token of the text.
 *
 *   step      | micro-batch 0       | micro-batch 1       | …      i = micro · Bmicro
 *   micro     | data rank 0 | rank 1 |                                 + data rank · Blocal + j
 *
 * So what a step learns from depends on the seed and the number of samples before it: not on the
 * split, not on the number of micro-batches, not on where a run was resumed. */
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

static int64_t sample_of(const train_feed *f, const train_input *in, int64_t j)
{
    return in->micro * f->micro_batch + f->data * in->samples + j;
}

/* First token of sample k of all. The tokens hold a sequence + 1. */
static int64_t place_of(int64_t tokens, int64_t sequence, uint64_t seed, uint64_t k)
{
    int64_t windows = SN_MAX(1, (tokens - sequence) / sequence);
    uint64_t epoch = k / (uint64_t) windows, skips = (uint64_t) (tokens - windows * sequence);
    uint64_t skip = sn_hash64(seed, UINT64_C(0x736b6970), epoch) % skips;
    uint64_t w = train_permute(seed, epoch, (uint64_t) windows, k % (uint64_t) windows);
    return (int64_t) (skip + w * (uint64_t) sequence);
}

void train_feed_step(const train_feed *f, const sn_tokens *t, uint64_t seed, int64_t first)
{
    int64_t tokens = sn_tokens_train(t);
    for (int k = 0; k < f->inputs; k++) {
        const train_input *in = &f->input[k];
        for (int64_t j = 0; j < in->samples; j++) {
            uint64_t sample = (uint64_t) (first + sample_of(f, in, j));
            int64_t at = place_of(tokens, f->sequence, seed, sample) + in->targets;
            sn_tokens_read(t, false, at, f->sequence, in->at + j, in->samples);
        }
    }
}

int64_t train_held_windows(const sn_tokens *t, int64_t sequence)
{
    return (sn_tokens_held(t) - 1 + sequence - 1) / sequence;
}

void train_feed_held(const train_feed *f, const sn_tokens *t, const int64_t *window,
                     int64_t windows)
{
    for (int k = 0; k < f->inputs; k++) {
        const train_input *in = &f->input[k];
        for (int64_t j = 0; j < in->samples; j++) {
            int64_t i = sample_of(f, in, j);
            int64_t begin = i < windows ? window[i] * f->sequence : 0;
            int64_t have = i < windows ? sn_tokens_held(t) - 1 - begin : 0;
            have = SN_MIN(have, f->sequence);
            sn_tokens_read(t, true, begin + in->targets, have, in->at + j, in->samples);
            for (int64_t p = have; p < f->sequence; p++)
                in->at[p * in->samples + j] = in->targets ? -1 : 0;
        }
    }
}
