/* SPDX-License-Identifier: Apache-2.0
 *
 * state — the f32 masters and moments that this card keeps: drawn, or named for a checkpoint.
 *
 *   parameter  [ … ( block of this card: begin, extent ) … ]
 *   block, flattened  [ … ( flat_begin, flat_count ) … ]  = elements of one slot from slot_at on
 *
 * What all have seen of a master (compression) begins as the master.
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
        bool weight =
            s->kind == SN_SLOT_MASTER || s->kind == SN_SLOT_SEEN || s->kind == SN_SLOT_STATE;
        if (!weight || v->init == SN_INIT_ZERO)
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
    return kind == SN_SLOT_MOMENT1   ? "adam.m/"
           : kind == SN_SLOT_MOMENT2 ? "adam.v/"
           : kind == SN_SLOT_SEEN    ? "compress.seen/"
                                     : "";
}

static sn_status copy_master(const sn_program *program, const sn_piece *piece, int seen)
{
    int i = seen;
    while (i >= 0 && (program->state[i].kind != SN_SLOT_MASTER ||
                      program->state[i].value != program->state[seen].value))
        i--;
    if (i < 0 || piece[i].flat_begin != piece[seen].flat_begin)
        return sn_fail(SN_ECORRUPT, "%s has no master", piece[seen].name);
    memcpy(piece[seen].data, piece[i].data, (size_t) piece[i].flat_count * sizeof(float));
    return SN_OK;
}

static bool has(const sn_ckpt *c, const char *name)
{
    for (int i = 0; i < sn_ckpt_tensors(c); i++)
        if (!strcmp(sn_ckpt_tensor(c, i, &(sn_dtype){0}, &(sn_shape){0}), name))
            return true;
    return false;
}

sn_status train_state_load(const sn_program *program, const sn_ckpt *c, sn_piece *piece, int pieces)
{
    sn_arena *arena = sn_arena_create();
    sn_piece *there = SN_NEW_N(arena, sn_piece, SN_MAX(1, pieces));
    int *missing = SN_NEW_N(arena, int, SN_MAX(1, pieces)), n = 0, m = 0;
    for (int i = 0; i < pieces; i++)
        if (program->state[i].kind == SN_SLOT_SEEN && !has(c, piece[i].name))
            missing[m++] = i;
        else
            there[n++] = piece[i];
    sn_status status = sn_ckpt_load(c, there, n);
    for (int i = 0; i < m && status >= 0; i++)
        status = copy_master(program, piece, missing[i]);
    sn_arena_free(arena);
    return status;
}

int train_state_pieces(const sn_plan *plan, const sn_program *program, sn_exec *exec, bool owned,
                       sn_arena *arena, sn_piece **ret)
{
    sn_piece *piece = SN_NEW_N(arena, sn_piece, SN_MAX(1, program->states));
    int n = 0;
    for (int i = 0; i < program->states; i++) {
        const sn_state *s = &program->state[i];
        const sn_value *v = &plan->graph->value[s->value];
        if (owned && !s->owner)
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
