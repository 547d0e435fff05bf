/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows: creating, the fence, freeing.
 *
 * A fence is a dissemination barrier: in round k tell the member 2^k places on, wait to be told by
 * the one 2^k places back. Whoever tells stores into the other's flag line, on another host by a
 * parcel, so waiting is the same for both. */
#include "gmem/window.h"

#include "os/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURNS 50 /* of waiting in a fence before the first look at the others */

/* ---- failing ---- */

sn_status window_failed(sn_window *win, sn_status status, int member, const char *what)
{
    int me = sn_net_rank(win->net);
    const char *host = sn_net_host_name(win->net, me);
    win->broken = status;
    if (win->line)
        sn_gmem_store_u32(&win->line->word[WINDOW_BROKEN], 1);
    if (member < 0)
        return sn_fail_in(status, "rank %d (%s): %s of a window of %d", me, host, what, win->n);
    int rank = win->members[member].rank;
    return sn_fail_in(status, "rank %d (%s): %s at rank %d (%s)", me, host, what, rank,
                      sn_net_host_name(win->net, rank));
}

sn_status window_turn(sn_window *win, int *turn, int member, sn_time deadline)
{
    int rank = win->members[member].rank;
    const char *host = sn_net_host_name(win->net, rank);
    sn_status status = sn_gmem_turn(win->net, turn, NULL, 0, deadline);
    if (status == SN_ETIME)
        return sn_fail(SN_ETIME, "no answer from rank %d (%s) before the deadline", rank, host);
    if (status >= 0 && sn_net_left(win->net, rank))
        return sn_fail(SN_EPEER, "rank %d (%s) has left the job", rank, host);
    return status;
}

/* ---- creating ---- */

typedef struct window_card {
    uint64_t at, bytes; /* from the part's base */
    uint64_t slots;     /* of windows that this member's segment has */
    uint32_t port;
    int32_t status;
    char text[240];
} window_card;

static sn_status place(sn_segment *seg, void *at, uint64_t bytes, window_card *card)
{
    card->bytes = bytes;
    if (!at)
        SN_TRY(sn_gmem_alloc(seg, bytes, &at));
    if (!sn_gmem_find(seg, at, bytes, &card->at))
        return sn_fail(SN_EINVAL, "a window's memory must lie in the rank's part of the segment");
    return SN_OK;
}

static sn_status take_cards(sn_window *win, const window_card *cards)
{
    uint64_t taken = 0;
    for (int i = 0; i < win->n; i++) {
        window_member *m = &win->members[i];
        if (cards[i].status < 0)
            return sn_fail((sn_status) cards[i].status, "rank %d (%s): %.*s", m->rank,
                           sn_net_host_name(win->net, m->rank), (int) sizeof cards[i].text,
                           cards[i].text);
        char *base = sn_gmem_base(win->seg, i);
        m->base = base ? base + cards[i].at : NULL;
        m->bytes = cards[i].bytes;
        m->port = cards[i].port;
        taken |= cards[i].slots;
    }
    if (taken == UINT64_MAX)
        return sn_fail(SN_EFIT, "the segment has %d windows already: free one", SN_WINDOWS_MAX);
    win->slot = __builtin_ctzll(~taken);
    win->seg->windows |= UINT64_C(1) << win->slot;
    return SN_OK;
}

static sn_status exchange(sn_window *win, void *at, uint64_t bytes, sn_time deadline)
{
    window_card mine = {.slots = win->seg->windows};
    mine.status = place(win->seg, at, bytes, &mine);
    if (mine.status >= 0 && win->far)
        mine.status = sn_net_port_open(win->net, window_serve, win, &mine.port);
    if (mine.status < 0)
        snprintf(mine.text, sizeof mine.text, "%s", sn_errmsg());
    win->port = mine.port;
    window_card *cards = malloc((size_t) win->n * sizeof *cards);
    if (!cards)
        return sn_fail(SN_ENOMEM, "no memory for a window of %d members", win->n);
    sn_status status =
        sn_net_gather(win->net, win->seg->members, win->n, &mine, sizeof mine, deadline, cards);
    if (status >= 0)
        status = take_cards(win, cards);
    free(cards);
    return status;
}

static sn_status expose(sn_window *win, sn_time deadline)
{
    const window_member *m = &win->members[win->me];
    return win->far ? sn_net_region_open(win->net, win->seg->members, win->n, m->base, m->bytes,
                                         deadline, &win->region)
                    : SN_OK;
}

/* The line is cleared between two rounds in which everybody takes part: after the last store of a
 * window that had it before, and before the first of this one. */
static sn_status build(sn_window *win, void *at, uint64_t bytes, sn_time deadline)
{
    SN_TRY(exchange(win, at, bytes, deadline));
    win->line = gmem_window_line(win->seg, win->me, win->slot);
    for (int i = 0; i <= WINDOW_ARRIVED; i++)
        __atomic_store_n(&win->line->word[i], 0, __ATOMIC_RELEASE);
    return gmem_agree(win->seg, expose(win, deadline), deadline);
}

static sn_window *create(sn_segment *seg)
{
    sn_window *win = sn_alloc(sizeof *win);
    win->seg = seg;
    win->net = seg->net;
    win->n = seg->n;
    win->me = seg->me;
    win->slot = -1;
    win->members = sn_alloc((size_t) win->n * sizeof *win->members);
    win->member_of = sn_alloc((size_t) sn_net_world(win->net) * sizeof *win->member_of);
    memset(win->member_of, -1, (size_t) sn_net_world(win->net) * sizeof *win->member_of);
    for (int i = 0; i < win->n; i++) {
        win->members[i].rank = seg->members[i];
        win->member_of[seg->members[i]] = i;
        win->far |= !sn_net_same_host(win->net, seg->members[i]);
    }
    while (1 << win->rounds < win->n)
        win->rounds++;
    seg->refs++;
    return win;
}

static void destroy(sn_window *win)
{
    window_abandon(win);
    if (win->port)
        sn_net_port_close(win->net, win->port);
    sn_net_region_close(win->region);
    if (win->slot >= 0)
        win->seg->windows &= ~(UINT64_C(1) << win->slot);
    gmem_unref(win->seg);
    free(win->members);
    free(win->member_of);
    free(win);
}

sn_status sn_window_create(sn_segment *seg, void *at, uint64_t bytes, sn_time deadline,
                           sn_window **ret)
{
    if (seg->n > 1 << WINDOW_BROKEN)
        return sn_fail(SN_ENOTSUP, "a window of %d members: at most %d", seg->n,
                       1 << WINDOW_BROKEN);
    sn_window *win = create(seg);
    sn_status status = build(win, at, bytes, deadline);
    if (status < 0) {
        seg->maybe_written |= win->region != NULL;
        destroy(win);
        return sn_fail_in(status, "cannot create a window of %d members", seg->n);
    }
    *ret = win;
    return SN_OK;
}

void *sn_window_base(const sn_window *win, int member)
{
    return win->members[member].base;
}

uint64_t sn_window_bytes(const sn_window *win, int member)
{
    return win->members[member].bytes;
}

/* ---- the fence ---- */

static sn_status tell(sn_window *win, int member, int round, sn_time deadline)
{
    window_record record = {.kind = WINDOW_FENCE, .what = (uint8_t) round, .at = win->fence};
    if (!win->members[member].base && !sn_net_same_host(win->net, win->members[member].rank)) {
        SN_TRY(window_add(win, member, &record, NULL, deadline));
        return window_send(win, member);
    }
    sn_gmem_store_u32(&gmem_window_line(win->seg, member, win->slot)->word[round], win->fence);
    return SN_OK;
}

static bool has_come(const sn_window *win, int member)
{
    const sn_flag_line *line = gmem_window_line(win->seg, member, win->slot);
    return (int32_t) (__atomic_load_n(&line->word[WINDOW_ARRIVED], __ATOMIC_ACQUIRE) -
                      win->fence) >= 0;
}

static sn_status missing(const sn_window *win, sn_status status, int member, const char *why)
{
    int rank = win->members[member].rank;
    return sn_fail(status, "rank %d (%s) %s", rank, sn_net_host_name(win->net, rank), why);
}

/* Whether all of my host can still come: who left or failed here will not, and those that wait for
 * it would have me wait too. Whose fault it is goes before who gave up because of that. */
static sn_status check_near(const sn_window *win)
{
    int broken = -1;
    for (int i = 0; i < win->n; i++) {
        if (!sn_net_same_host(win->net, win->members[i].rank) || i == win->me)
            continue;
        if (sn_net_left(win->net, win->members[i].rank) && !has_come(win, i))
            return missing(win, SN_EPEER, i, "has left the job");
        const sn_flag_line *line = gmem_window_line(win->seg, i, win->slot);
        if (__atomic_load_n(&line->word[WINDOW_BROKEN], __ATOMIC_ACQUIRE))
            broken = i;
    }
    if (broken < 0)
        return SN_OK;
    SN_TRY(sn_net_look(win->net));
    return missing(win, SN_EPEER, broken, "gave the window up");
}

/* Who of my host has not come; else the member that I wait for, which may itself wait. */
static sn_status not_told(const sn_window *win, int from)
{
    for (int i = 0; i < win->n; i++)
        if (sn_net_same_host(win->net, win->members[i].rank) && !has_come(win, i))
            return missing(win, SN_ETIME, i, "has not come");
    return missing(win, SN_ETIME, from, "gives no signal");
}

static sn_status be_told(sn_window *win, int from, int round, sn_time deadline)
{
    const uint32_t *word = &win->line->word[round];
    bool near = sn_net_same_host(win->net, win->members[from].rank);
    for (int turn = 0;;) {
        uint32_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
        if ((int32_t) (seen - win->fence) >= 0)
            return SN_OK;
        sn_gmem_watch watch = {word, seen};
        sn_status status = sn_gmem_turn(win->net, &turn, &watch, near, deadline);
        if (status >= 0 && turn > TURNS)
            status = check_near(win);
        if (status >= 0 && sn_net_left(win->net, win->members[from].rank) &&
            __atomic_load_n(word, __ATOMIC_ACQUIRE) == seen)
            status = missing(win, SN_EPEER, from, "has left the job");
        if (status == SN_ETIME)
            return not_told(win, from);
        SN_TRY(status);
    }
}

static sn_status barrier(sn_window *win, sn_time deadline)
{
    win->fence++;
    __atomic_store_n(&win->line->word[WINDOW_ARRIVED], win->fence, __ATOMIC_RELEASE);
    for (int k = 0; k < win->rounds; k++) {
        int step = 1 << k;
        SN_TRY(tell(win, (win->me + step) % win->n, k, deadline));
        SN_TRY(be_told(win, (win->me + win->n - step) % win->n, k, deadline));
    }
    return SN_OK;
}

sn_status sn_window_fence(sn_window *win, sn_time deadline)
{
    SN_TRY(sn_window_flush(win, SN_EVERYONE, deadline));
    sn_net_expect(win->net, win->far);
    sn_status status = barrier(win, deadline);
    sn_net_expect(win->net, -win->far);
    return status < 0 ? window_failed(win, status, SN_EVERYONE, "a fence") : SN_OK;
}

sn_status sn_window_free(sn_window *win, sn_time deadline)
{
    if (!win)
        return SN_OK;
    sn_status status = win->broken < 0 ? SN_OK : sn_window_fence(win, deadline);
    if (win->broken < 0)
        win->seg->maybe_written |= win->far;
    destroy(win);
    return status;
}
