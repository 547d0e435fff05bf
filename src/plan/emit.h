/* SPDX-License-Identifier: Apache-2.0
 *
 * plan/emit — the state of writing one card's program; what emit.c, reshard.c and optimizer.c
 * share.
 *
 *   slots of values:  per micro-batch and value a list of (form on the tensor axis, form on the
 * data axis, slot): the same value in the same form is made once tickets:          an instruction
 * that touches a slot with something in flight first waits for it
 */
#ifndef SN_PLAN_EMIT_H
#define SN_PLAN_EMIT_H

#include "plan/private.h"

#define EMIT_IN_FLIGHT 32 /* collectives of one group; coll's pool holds 64 */

typedef struct emit_instance {
    int8_t form[PLAN_AXES];
    int slot, next;
} emit_instance;

typedef struct emit_ticket {
    bool done;
    int group, crossing; /* -1 none; crossing: a send of this value to this stage, value · stages +
                            stage */
} emit_ticket;

typedef struct emitter {
    const sn_plan *plan;
    const plan_model *m;
    const plan_layout *layout;
    sn_arena *arena;
    sn_program *p;
    size_t slot_cap, instr_cap, ticket_cap, pending_cap, instance_cap, wire_cap;
    int t, s, d;
    int micros, warm; /* of this program; the plan's own, or fewer (closed.c) */
    int *unit_at;     /* where each unit begins, NULL: nobody asks */
    sn_phase phase;   /* stamped on what is emitted */
    int micro, node;
    int instances;
    emit_instance *instance;
    int *head; /* [micros + 1][values] index into instance + 1, 0 none; the last row: what all
                  micro-batches share */
    emit_ticket *ticket;
    int open;     /* all tickets before it are done */
    int gathers;  /* the tickets of gathering are those before it */
    int *pending; /* [slots] ticket that will fill the slot + 1, 0 none */
    int params, grads, master, moment1, moment2, seen; /* flat slots, -1 none */
    int *param_slot, *grad_slot;                       /* [values] views, -1 none */
    int *missing;  /* [buckets] contributions that the step still waits for */
    int *shard;    /* [buckets] slot of my reduced part, F32 or BF16 */
    int *summed;   /* [buckets] ticket of an all_reduce in place, -1 none */
    bool *started; /* [values] of a parameter: its gradient holds something */
} emitter;

/* ---- emit.c */
int emit_slot(emitter *e, sn_slot_kind kind, const char *name, sn_dtype dtype, sn_shape shape,
              int value);
/* A part of `base`, `at` elements from its start. */
int emit_view(emitter *e, int base, const char *name, int64_t at, sn_shape shape);
void emit_instr(emitter *e, sn_instr instr); /* waits for what its slots need, then appends */
void emit_kernel(emitter *e, sn_op op, sn_attr attr, const int *in, int ins, const int *out,
                 int outs, uint32_t accumulate);
void emit_coll(emitter *e, sn_group_axis axis, sn_coll_op op, sn_red red, int in, int out,
               int64_t count, int priority);
/* The same over the data axis with the bytes between hosts encoded; the vector is bucket `index`.
 * Its ticket: who reads what it wrote in place must wait for it. */
int emit_wire(emitter *e, sn_coll_op op, int index, int in, int out, int64_t count, int priority);
void emit_wait(emitter *e, int ticket);
void emit_wait_all(emitter *e);

/* ---- reshard.c */
int emit_get(emitter *e, int value, int micro, int8_t tensor, int8_t data);
void emit_put(emitter *e, int value, int micro, int8_t tensor, int8_t data, int slot);

/* ---- wire.c */
bool emit_encodes(const emitter *e, sn_coll_op op);      /* is the data group's op encoded? */
int emit_new_wire(emitter *e, sn_coll_op op, int index); /* of a bucket; its number + 1 */

/* ---- optimizer.c */
void emit_persistent(emitter *e); /* parameters, gradients, masters, moments, scalars */
/* slot -1: it is in its gradient already */
void emit_contribution(emitter *e, int value, int slot);
int emit_gradient_slot(emitter *e, int value, uint32_t *ret_accumulate); /* -1: not directly */
void emit_gather(emitter *e); /* working parameters from the masters, as they are needed */
void emit_optimizer(emitter *e);
void emit_states(emitter *e);
void emit_block(const emitter *e, int v, int64_t begin[SN_RANK_MAX], int64_t extent[SN_RANK_MAX]);

#endif
