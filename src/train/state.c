/* SPDX-License-Identifier: Apache-2.0
 *
 * state — the f32 masters and moments that this card keeps: drawn, or named for a checkpoint.
 *
 *   parameter  [ … ( block of this card: begin, extent ) … ]
 *   block, flattened  [ … ( flat_begin, flat_count ) … ]  = elements of one slot from slot_at on
 *
 * A weight is drawn from (seed, its name, its index in the whole parameter), so every split starts
 * from the same model. */
#include <string.h>

#include "train/parts.h"

static float *place(const sn_state *s, sn_exec *exec)
{
    return (float *) sn_exec_slot(exec, s->slot) + s->slot_at;
}

/* Index in the whole parameter of element `flat` of the block. */
static int64_t whole_index(const sn_state *s, sn_shape shape, int64_t flat)
{
    int64_t index = 0, step = 1;
    for (int d = shape.rank - 1; d >= 0; d--) {
        index += (s->begin[d] + flat % s->extent[d]) * step;
        flat /= s->extent[d];
        step *= shape.dim[d];
    }
    return index;
}

static void draw(const sn_value *v, const sn_state *s, uint64_t seed, float *to)
{
    uint64_t stream = sn_hash_bytes(v->name, strlen(v->name));
    for (int64_t k = 0; k < s->flat_count; k++) {
        uint64_t index = (uint64_t) whole_index(s, v->shape, s->flat_begin + k);
        to[k] = (float) (sn_hash_normal(seed, stream, index) * v->init_std);
    }
}

void train_state_init(const sn_plan *plan, const sn_program *program, sn_exec *exec, uint64_t seed)
{
    for (int i = 0; i < program->states; i++) {
        const sn_state *s = &program->state[i];
        const sn_value *v = &plan->graph->value[s->value];
        float *to = place(s, exec);
        memset(to, 0, (size_t) s->flat_count * sizeof(*to));
        if (s->kind != SN_SLOT_MASTER || v->init == SN_INIT_ZERO)
            continue;
        if (v->init == SN_INIT_NORMAL)
            draw(v, s, seed, to);
        else
            for (int64_t k = 0; k < s->flat_count; k++)
                to[k] = 1;
    }
}

static const char *prefix(sn_slot_kind kind)
{
    return kind == SN_SLOT_MOMENT1 ? "adam.m/" : kind == SN_SLOT_MOMENT2 ? "adam.v/" : "";
}

int train_state_pieces(const sn_plan *plan, const sn_program *program, sn_exec *exec, bool owned,
                       sn_arena *arena, sn_piece **ret)
{
    sn_piece *piece = SN_NEW_N(arena, sn_piece, SN_MAX(1, program->states));
    int n = 0;
    for (int i = 0; i < program->states; i++) {
        const sn_state *s = &program->state[i];
        const sn_value *v = &plan->graph->value[s->value];
        if ((owned && !s->owner) || s->flat_count == 0)
            continue;
        sn_piece *p = &piece[n++];
        p->name = sn_arena_printf(arena, "%s%s", prefix(s->kind), v->name);
        p->dtype = SN_F32;
        p->shape = v->shape;
        memcpy(p->begin, s->begin, sizeof(p->begin));
        memcpy(p->extent, s->extent, sizeof(p->extent));
        p->flat_begin = s->flat_begin;
        p->flat_count = s->flat_count;
        p->data = place(s, exec);
    }
    *ret = piece;
    return n;
}
