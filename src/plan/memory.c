/* SPDX-License-Identifier: Apache-2.0
 *
 * Places: persistent slots first, one after the other; then activations in the order of their
 * births, each in the tightest gap between those alive.
 *
 *   offset ^        ┌──────┐
 *          │ ┌────┐ │  c   │      a slot lives from the instruction that makes it to the last that
 *          │ │ a  │ └──────┘      touches it; for one in flight that is the wait
 *          │ └────┘┌──────────┐
 *          └───────┴────b─────┴─> instruction */
#include "plan/private.h"

#include <stdlib.h>

#define PLACE_ALIGN 64

static int root_of(const sn_program *p, int slot)
{
    return p->slot[slot].base >= 0 ? p->slot[slot].base : slot;
}

static bool persistent(const sn_slot *s)
{
    return s->kind != SN_SLOT_ACTIVATION && s->kind != SN_SLOT_RESULT;
}

static void touch(sn_program *p, int slot, int at)
{
    for (int k = 0; slot >= 0 && k < 2; k++) {
        sn_slot *s = &p->slot[k ? root_of(p, slot) : slot];
        s->first = SN_MIN(s->first, at);
        s->last = SN_MAX(s->last, at);
    }
}

static void lifetimes(sn_program *p)
{
    int *post = SN_NEW_N(p->arena, int, p->tickets + 1);
    for (int i = 0; i < p->slots; i++) {
        p->slot[i].first = p->instrs;
        p->slot[i].last = -1;
    }
    for (int i = 0; i < p->instrs; i++) {
        const sn_instr *in = &p->instr[i];
        const sn_instr *of = in;
        if (in->kind == SN_INSTR_WAIT)
            of = &p->instr[post[in->ticket]];
        else if (in->kind != SN_INSTR_KERNEL)
            post[in->ticket] = i;
        for (int k = 0; k < of->ins; k++)
            touch(p, of->in[k], i);
        for (int k = 0; k < of->outs; k++)
            touch(p, of->out[k], i);
    }
    for (int i = 0; i < p->slots; i++) {
        sn_slot *s = &p->slot[i];
        if (s->kind == SN_SLOT_RESULT)
            touch(p, i, p->instrs - 1);
        if (persistent(s)) {
            s->first = 0;
            s->last = p->instrs - 1;
        }
    }
}

typedef struct birth {
    int first, slot;
    uint64_t bytes;
} birth;

static int by_birth(const void *a, const void *b)
{
    const birth *x = a, *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->slot - y->slot;
}

typedef struct alive { /* ordered by offset */
    uint64_t offset, end;
    int last;
} alive;

/* Take the tightest gap that fits; returns how many are alive now. */
static int settle(alive *a, int n, sn_slot *s, uint64_t base, uint64_t *top)
{
    uint64_t need = SN_ALIGN_UP(SN_MAX(s->bytes, UINT64_C(1)), PLACE_ALIGN), best = UINT64_MAX;
    uint64_t from = base;
    int kept = 0, where;
    for (int i = 0; i < n; i++)
        if (a[i].last >= s->first)
            a[kept++] = a[i];
    n = where = kept;
    s->offset = n ? a[n - 1].end : base;
    for (int i = 0; i < n; i++) {
        uint64_t gap = a[i].offset - from;
        if (gap >= need && gap < best) {
            best = gap;
            s->offset = from;
            where = i;
        }
        from = a[i].end;
    }
    for (int i = n; i > where; i--)
        a[i] = a[i - 1];
    a[where] = (alive){s->offset, s->offset + need, s->last};
    *top = SN_MAX(*top, s->offset + need);
    return n + 1;
}

void plan_memory_place(sn_program *p)
{
    uint64_t base = 0;
    int births = 0, n = 0;
    lifetimes(p);
    birth *b = SN_NEW_N(p->arena, birth, p->slots + 1);
    alive *a = SN_NEW_N(p->arena, alive, p->slots + 1);
    for (int i = 0; i < p->slots; i++) {
        sn_slot *s = &p->slot[i];
        if (s->base >= 0)
            continue;
        if (persistent(s)) {
            s->offset = base;
            base += SN_ALIGN_UP(SN_MAX(s->bytes, UINT64_C(1)), PLACE_ALIGN);
        } else if (s->last >= 0) {
            b[births++] = (birth){s->first, i, s->bytes};
        }
    }
    qsort(b, (size_t) births, sizeof *b, by_birth);
    p->memory_bytes = base;
    for (int i = 0; i < births; i++)
        n = settle(a, n, &p->slot[b[i].slot], base, &p->memory_bytes);
    for (int i = 0; i < p->slots; i++)
        if (p->slot[i].base >= 0)
            p->slot[i].offset = p->slot[p->slot[i].base].offset + p->slot[i].at;
}
