/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue of events: a heap with four children a node, so that a path to the top touches half the
 * cache lines of a binary one. Equal times come out in the order of posting: a run is the same
 * whatever the shape of the heap was. */
#include "private.h"

#include <stdlib.h>

static inline bool before(const roce_event *a, const roce_event *b)
{
    return a->time != b->time ? a->time < b->time : a->order < b->order;
}

void roce_heap_push(roce_heap *h, roce_ps time, roce_kind kind, int at, uint32_t generation)
{
    if (h->n == h->cap) {
        h->cap = h->cap ? 2 * h->cap : 1024;
        h->e = realloc(h->e, (size_t) h->cap * sizeof(*h->e));
        SN_ASSERT(h->e != NULL); /* bounded by the packets under way, which the buffers bound */
    }
    roce_event e = {time, h->posted++ << 8 | (uint64_t) kind, at, generation};
    int i = h->n++;
    for (int up; i > 0 && before(&e, &h->e[up = (i - 1) / 4]); i = up)
        h->e[i] = h->e[up];
    h->e[i] = e;
}

bool roce_heap_pop(roce_heap *h, roce_event *ret)
{
    if (h->n == 0)
        return false;
    *ret = h->e[0];
    roce_event e = h->e[--h->n];
    int i = 0;
    for (;;) {
        int first = 4 * i + 1, end = SN_MIN(first + 4, h->n), least = first;
        if (first >= h->n)
            break;
        for (int c = first + 1; c < end; c++)
            if (before(&h->e[c], &h->e[least]))
                least = c;
        if (!before(&h->e[least], &e))
            break;
        h->e[i] = h->e[least];
        i = least;
    }
    h->e[i] = e;
    return true;
}
