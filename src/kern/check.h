/* SPDX-License-Identifier: Apache-2.0
 *
 * check — what the rule tables of check_*.c are made of: a rule per op, small questions about
 * shapes. A table has a row for each op of its family; check.c asks all of them. */
#ifndef SN_KERN_CHECK_H
#define SN_KERN_CHECK_H

#include "kern/card.h"

#include <string.h>

typedef struct kern_rule {
    int ins_min, ins_max, outs;
    uint32_t integer_in;                                   /* operands that are I32 */
    uint32_t only_f32;                                     /* outputs that may not be BF16 */
    uint32_t optional_in;                                  /* inputs that may be absent */
    bool (*shapes)(const sn_kernel_spec *s, kern_dims *d); /* NULL: not of this family */
    uint32_t integer_out;                                  /* outputs that are I32 */
} kern_rule;

/* [SN_OP_COUNT] each */
extern const kern_rule kern_rules_core[], kern_rules_vision[], kern_rules_model[];

#define BIT(i) (1u << (i))
#define IN(i) (s->in[i].shape)
#define OUT(o) (s->out[o].shape)

static inline bool kern_has(const sn_kernel_spec *s, int in)
{
    return in < s->ins && !s->in[in].absent;
}

static inline int64_t kern_last(sn_shape a)
{
    return a.rank ? a.dim[a.rank - 1] : 1;
}

static inline int64_t kern_product(sn_shape a, int from, int to)
{
    int64_t n = 1;
    for (int i = from; i < to; i++)
        n *= a.dim[i];
    return n;
}

static inline bool kern_is_vector(sn_shape a, int64_t n)
{
    return sn_shape_count(a) == n;
}

/* b is a without its last dimension, or with another one. */
static inline bool kern_leads(sn_shape a, sn_shape b, int64_t other)
{
    if (a.rank < 1 || b.rank != a.rank - (other ? 0 : 1))
        return false;
    for (int i = 0; i < a.rank - 1; i++)
        if (a.dim[i] != b.dim[i])
            return false;
    return !other || b.dim[b.rank - 1] == other;
}

static inline bool kern_same(sn_shape a, sn_shape b)
{
    return sn_shape_equal(a, b);
}

static inline void kern_rows_cols(sn_shape a, kern_dims *d)
{
    d->cols = kern_last(a);
    d->rows = kern_product(a, 0, a.rank - 1);
}

#endif
