/* SPDX-License-Identifier: Apache-2.0
 *
 * All ranks' programs run in one process on plain memory: what a world of workers would compute,
 * without workers. Kernels are the caller's. Each rank runs until it waits for something that the
 * others have not done; a collective happens when its last member posts it, a transfer when both
 * ends have. */
#ifndef SN_TEST_PLAN_INTERP_H
#define SN_TEST_PLAN_INTERP_H

#include "plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef sn_status (*interp_kernel)(void *ctx, const sn_program *p, const sn_instr *in,
                                   const void *const *ins, void *const *outs);

typedef struct interp_rank {
    sn_program *p;
    char *memory;
    int at, last; /* the range being run */
    int *post;    /* [tickets] instruction that took the ticket, -1 */
    bool *done;   /* [tickets] */
} interp_rank;

typedef struct interp {
    const sn_plan *plan;
    interp_rank *rank;
    interp_kernel kernel;
    void *ctx;
} interp;

static void *interp_slot(const interp *w, int rank, int slot)
{
    return w->rank[rank].memory + w->rank[rank].p->slot[slot].offset;
}

static sn_status interp_open(const sn_plan *plan, interp_kernel kernel, void *ctx, interp *w)
{
    *w = (interp){plan, calloc((size_t) plan->world, sizeof(interp_rank)), kernel, ctx};
    for (int r = 0; r < plan->world; r++) {
        interp_rank *k = &w->rank[r];
        SN_TRY(sn_plan_program(plan, r, &k->p));
        /* poison, so that a read of what nobody wrote shows; persistent slots start as zeros */
        k->memory = malloc(k->p->memory_bytes + 64);
        memset(k->memory, 0xff, k->p->memory_bytes);
        for (int i = 0; i < k->p->slots; i++) {
            const sn_slot *s = &k->p->slot[i];
            if (s->kind != SN_SLOT_ACTIVATION && s->kind != SN_SLOT_RESULT)
                memset(interp_slot(w, r, i), 0, s->bytes);
        }
        k->post = calloc((size_t) k->p->tickets + 1, sizeof(int));
        k->done = calloc((size_t) k->p->tickets + 1, sizeof(bool));
    }
    return SN_OK;
}

static void interp_close(interp *w)
{
    for (int r = 0; r < w->plan->world; r++) {
        free(w->rank[r].memory);
        free(w->rank[r].post);
        free(w->rank[r].done);
        sn_program_free(w->rank[r].p);
    }
    free(w->rank);
}

static float interp_load(const void *p, sn_dtype t, int64_t i)
{
    return t == SN_BF16 ? sn_bf16_to_f32(((const uint16_t *) p)[i]) : ((const float *) p)[i];
}

static void interp_store(void *p, sn_dtype t, int64_t i, float x)
{
    if (t == SN_BF16)
        ((uint16_t *) p)[i] = sn_f32_to_bf16(x);
    else
        ((float *) p)[i] = x;
}

/* The posted, unfinished instruction of `rank` that has ticket order nearest to the start and meets
 * `like`: same group (collectives are matched in order) or the other end of a transfer. */
static const sn_instr *interp_meeting(const interp *w, int rank, int from, const sn_instr *like)
{
    const interp_rank *k = &w->rank[rank];
    for (int t = 0; t < k->p->tickets; t++) {
        if (k->post[t] < 0 || k->done[t])
            continue;
        const sn_instr *in = &k->p->instr[k->post[t]];
        if (like->kind == SN_INSTR_COLL && in->kind == SN_INSTR_COLL && in->group == like->group)
            return in;
        if (like->kind == SN_INSTR_SEND && in->kind == SN_INSTR_RECV && in->peer == from &&
            in->tag == like->tag)
            return in;
        if (like->kind == SN_INSTR_RECV && in->kind == SN_INSTR_SEND && in->peer == from &&
            in->tag == like->tag)
            return in;
    }
    return NULL;
}

static void interp_collective(interp *w, const sn_plan_group *g, const sn_instr *const *in)
{
    int p = g->members;
    int64_t n = in[0]->count, total = in[0]->coll == SN_ALL_REDUCE ? n : n * p;
    size_t unit = sn_dtype_bytes(in[0]->dtype);
    char *result = malloc((size_t) total * unit + 1);
    for (int m = 0; m < p; m++) {
        const void *src = interp_slot(w, g->rank[m], in[m]->in[0]);
        if (in[0]->coll == SN_ALL_GATHER)
            memcpy(result + (size_t) (m * n) * unit, src, (size_t) n * unit);
    }
    for (int64_t i = 0; in[0]->coll != SN_ALL_GATHER && i < total; i++) {
        float x = interp_load(interp_slot(w, g->rank[0], in[0]->in[0]), in[0]->dtype, i);
        for (int m = 1; m < p; m++) {
            float y = interp_load(interp_slot(w, g->rank[m], in[m]->in[0]), in[0]->dtype, i);
            x = in[0]->red == SN_SUM ? x + y : x > y ? x : y;
        }
        interp_store(result, in[0]->dtype, i, x);
    }
    for (int m = 0; m < p; m++) {
        bool part = in[0]->coll == SN_REDUCE_SCATTER;
        memcpy(interp_slot(w, g->rank[m], in[m]->out[0]), result + (part ? m * n : 0) * unit,
               (size_t) (part ? n : total) * unit);
    }
    free(result);
}

/* Try to finish what `in`, just posted by `rank`, is part of. */
static void interp_try(interp *w, int rank, const sn_instr *in)
{
    if (in->kind == SN_INSTR_COLL) {
        const sn_plan_group *g = &w->plan->group[in->group];
        const sn_instr **all = calloc((size_t) g->members, sizeof *all);
        bool there = true;
        for (int m = 0; m < g->members; m++)
            there &= (all[m] = interp_meeting(w, g->rank[m], rank, in)) != NULL;
        if (there)
            interp_collective(w, g, all);
        for (int m = 0; there && m < g->members; m++)
            w->rank[g->rank[m]].done[all[m]->ticket] = true;
        free(all);
        return;
    }
    const sn_instr *other = interp_meeting(w, in->peer, rank, in);
    if (!other)
        return;
    const sn_instr *send = in->kind == SN_INSTR_SEND ? in : other;
    const sn_instr *recv = in->kind == SN_INSTR_SEND ? other : in;
    memcpy(interp_slot(w, send->peer, recv->out[0]), interp_slot(w, recv->peer, send->in[0]),
           (size_t) in->count * sn_dtype_bytes(in->dtype));
    w->rank[rank].done[in->ticket] = w->rank[in->peer].done[other->ticket] = true;
}

static sn_status interp_rank_run(interp *w, int rank, bool *moved)
{
    interp_rank *k = &w->rank[rank];
    for (; k->at < k->last; k->at++, *moved = true) {
        const sn_instr *in = &k->p->instr[k->at];
        if (in->kind == SN_INSTR_WAIT) {
            if (!k->done[in->ticket])
                return SN_OK;
            continue;
        }
        if (in->kind == SN_INSTR_KERNEL) {
            const void *ins[SN_OP_IN_MAX];
            void *outs[SN_OP_OUT_MAX];
            for (int i = 0; i < in->ins; i++)
                ins[i] = in->in[i] < 0 ? NULL : interp_slot(w, rank, in->in[i]);
            for (int o = 0; o < in->outs; o++)
                outs[o] = in->out[o] < 0 ? NULL : interp_slot(w, rank, in->out[o]);
            SN_TRY(w->kernel(w->ctx, k->p, in, ins, outs));
            continue;
        }
        k->post[in->ticket] = k->at;
        interp_try(w, rank, in);
    }
    return SN_OK;
}

/* Run the whole program, or only its gather part, on all ranks. SN_EFAIL: a deadlock. */
static sn_status interp_run(interp *w, bool gather_only)
{
    bool moved = true, all = true;
    for (int r = 0; r < w->plan->world; r++) {
        interp_rank *k = &w->rank[r];
        k->at = gather_only ? k->p->gather_first : 0;
        k->last = gather_only ? k->p->gather_last : k->p->instrs;
        for (int t = 0; t < k->p->tickets; t++)
            k->post[t] = -1;
        memset(k->done, 0, (size_t) k->p->tickets);
    }
    while (moved) {
        moved = false;
        for (int r = 0; r < w->plan->world; r++)
            SN_TRY(interp_rank_run(w, r, &moved));
    }
    for (int r = 0; r < w->plan->world; r++)
        all &= w->rank[r].at == w->rank[r].last;
    return all ? SN_OK : sn_fail(SN_EFAIL, "the programs wait for each other");
}

#endif
