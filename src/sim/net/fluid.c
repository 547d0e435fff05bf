/* SPDX-License-Identifier: Apache-2.0
 *
 * The controller that nobody can build: every flow has its max-min fair rate at once, on the same
 * paths, with no queue. What a real one is short of this is its own doing; what this one is short
 * of the load is the doing of ECMP and of the traffic.
 *
 * Progressive filling: the link with the least to give to each of its flows fixes their rate, is
 * taken out with what they use elsewhere, and so on. Source: Bertsekas & Gallager, "Data networks",
 * section 6.5.2. */
#include "fabric.h"

#include <math.h>
#include <stdlib.h>

typedef struct fluid_flow {
    int32_t flow;
    bool fixed;
    double left, rate; /* wire bytes; a picosecond */
} fluid_flow;

typedef struct fluid {
    roce_run *r;
    fluid_flow *active;
    int n, next;          /* next: flow to begin */
    double *room;         /* [ports] bytes a picosecond not yet given away */
    int32_t *users;       /* [ports] flows not yet fixed */
    double now, measured; /* payload delivered while measured */
} fluid;

static int narrowest(const fluid *f, double *ret_share)
{
    int least = -1;
    for (int p = 0; p < f->r->tree.ports; p++)
        if (f->users[p] && (least < 0 || f->room[p] / f->users[p] < *ret_share)) {
            *ret_share = f->room[p] / f->users[p];
            least = p;
        }
    return least;
}

static bool crosses(const roce_flow *flow, int port)
{
    bool found = false;
    for (int h = 0; h < flow->hops; h++)
        found = found || flow->path[h] == port;
    return found;
}

static void share_out(fluid *f)
{
    double share = 0;
    for (int p = 0; p < f->r->tree.ports; p++) {
        f->room[p] = 1 / f->r->ps_per_byte;
        f->users[p] = 0;
    }
    for (int i = 0; i < f->n; i++) {
        const roce_flow *flow = &f->r->flow[f->active[i].flow];
        f->active[i].fixed = false;
        for (int h = 0; h < flow->hops; h++)
            f->users[flow->path[h]]++;
    }
    for (int port; (port = narrowest(f, &share)) >= 0;)
        for (int i = 0; i < f->n; i++) {
            const roce_flow *flow = &f->r->flow[f->active[i].flow];
            if (f->active[i].fixed || !crosses(flow, port))
                continue;
            f->active[i].fixed = true;
            f->active[i].rate = share;
            for (int h = 0; h < flow->hops; h++) {
                f->users[flow->path[h]]--;
                f->room[flow->path[h]] = fmax(f->room[flow->path[h]] - share, 0);
            }
        }
}

/* All rates hold from f->now to `until`: the payload goes into its windows. */
static void flow_on(fluid *f, double until)
{
    roce_run *r = f->r;
    double payload = 0, whole = until - f->now;
    for (int i = 0; i < f->n; i++) {
        const roce_flow *flow = &r->flow[f->active[i].flow];
        f->active[i].left -= f->active[i].rate * whole;
        payload += f->active[i].rate * (double) flow->total / flow->wire;
    }
    for (double at = fmax(f->now, (double) r->from), end; at < fmin(until, (double) r->until);
         at = end) {
        int64_t w = (int64_t) ((at - (double) r->from) / (double) r->window_ps);
        end = fmin(fmin(until, (double) r->until), (double) (r->from + (w + 1) * r->window_ps));
        if (w < r->windows)
            r->window[w] += payload * (end - at);
        f->measured += payload * (end - at);
    }
    f->now = until;
}

static void finish(fluid *f)
{
    roce_run *r = f->r;
    for (int i = f->n - 1; i >= 0; i--) {
        roce_flow *flow = &r->flow[f->active[i].flow];
        if (f->active[i].left > 0.5)
            continue;
        double behind =
            flow->alone_ps - flow->wire * r->ps_per_byte; /* the way, after the last byte */
        flow->end = (roce_ps) (f->now + behind);
        r->finished++;
        f->active[i] = f->active[--f->n];
    }
}

int64_t roce_fluid(roce_run *r)
{
    int64_t events = 0;
    fluid f = {.r = r};
    f.active = calloc((size_t) r->flows + 1, sizeof(*f.active));
    f.room = calloc((size_t) r->tree.ports, sizeof(*f.room));
    f.users = calloc((size_t) r->tree.ports, sizeof(*f.users));
    SN_ASSERT(f.active && f.room && f.users); /* smaller than what the run has already */
    while (r->finished < r->flows) {
        double next = f.next < r->flows ? (double) r->flow[f.next].start : INFINITY;
        share_out(&f);
        for (int i = 0; i < f.n; i++)
            next = fmin(next, f.now + f.active[i].left / f.active[i].rate);
        flow_on(&f, next);
        finish(&f);
        for (; f.next < r->flows && (double) r->flow[f.next].start <= f.now; f.next++)
            f.active[f.n++] = (fluid_flow){.flow = f.next, .left = r->flow[f.next].wire};
        events++;
    }
    for (int i = 0; i < r->flows; i++)
        r->sent += r->flow[i].total;
    r->delivered = r->sent;
    r->delivered_measured = (int64_t) f.measured;
    r->now = (roce_ps) f.now;
    free(f.active);
    free(f.room);
    free(f.users);
    return events;
}
