/* SPDX-License-Identifier: Apache-2.0
 *
 * plan/closed — what alike.c tells closed.c about the stages of a pipeline: which are alike, and
 * over which links values cross between them.
 *
 *   link      one value on its way to one stage; numbered over the whole pipeline
 *   in, out   the links of a stage: received in the order of values, sent in the order of nodes.
 *             Stages that are alike have the k-th of them at the same place of their programs. */
#ifndef SN_PLAN_CLOSED_H
#define SN_PLAN_CLOSED_H

#include "plan/private.h"

typedef struct plan_link {
    int value, stage; /* sent to */
} plan_link;

typedef struct plan_alike {
    int links;
    plan_link *link;
    int *in_at, *in;   /* of stage s: in[in_at[s] … in_at[s + 1]) are numbers of links */
    int *out_at, *out; /* the same */
    int kinds;
    int *kind;  /* [stages] */
    int *first; /* [kinds] the first stage of that kind */
} plan_alike;

void plan_alike_find(const sn_plan *plan, sn_arena *arena, plan_alike *ret);

#endif
