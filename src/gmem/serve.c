/* SPDX-License-Identifier: Apache-2.0
 *
 * The target's side of a window: parcels from other hosts, applied by this rank's worker. What does
 * not lie in the window or is no record ends the reading of its parcel: nothing a peer sends may do
 * harm. */
#include "gmem/window.h"
#include "gmem/word.h"

#include <string.h>

static void answer(sn_window *win, int member, const window_record *record, const void *payload)
{
    const window_member *m = &win->members[member];
    char *parcel = sn_net_parcel_take(win->net, true);
    if (!parcel)
        return; /* it takes no answers: its own deadline tells it */
    memcpy(parcel, record, sizeof *record);
    if (record->bytes)
        memcpy(parcel + sizeof *record, payload, record->bytes);
    sn_net_parcel_send(win->net, m->rank, m->port, parcel,
                       sizeof *record + SN_ALIGN_UP(record->bytes, 8));
}

static char *memory(const sn_window *win, uint64_t at, uint64_t bytes, uint64_t align)
{
    const window_member *mine = &win->members[win->me];
    if (at > mine->bytes || bytes > mine->bytes - at || (uintptr_t) (mine->base + at) % align)
        return NULL;
    return mine->base + at;
}

static bool accumulate(sn_window *win, const window_record *r, const char *payload)
{
    sn_dtype dtype = (sn_dtype) r->what;
    sn_red red = (sn_red) r->how;
    if (r->what >= SN_DTYPE_COUNT || !gmem_can_accumulate(dtype, red))
        return false;
    size_t width = sn_dtype_bytes(dtype);
    char *at = memory(win, r->at, r->bytes, width);
    if (!at || r->bytes % width)
        return false;
    gmem_accumulate(at, payload, (int64_t) (r->bytes / width), dtype, red);
    return true;
}

/* FETCH: value, id. CAS: expected, desired, id. */
static bool word(sn_window *win, int member, const window_record *r, const char *payload)
{
    uint64_t arg[3] = {0}, old;
    bool cas = r->kind == WINDOW_CAS;
    if (r->bytes != (cas ? 3 : 2) * sizeof arg[0] || (r->how != 4 && r->how != 8))
        return false;
    memcpy(arg, payload, r->bytes);
    char *at = memory(win, r->at, r->how, r->how);
    if (!at || (!cas && r->what >= SN_FETCHES))
        return false;
    old = cas ? gmem_word_cas(at, r->how, arg[0], arg[1])
              : gmem_word_fetch(at, r->how, (sn_fetch) r->what, arg[0]);
    window_record reply = {.kind = WINDOW_OLD, .bytes = sizeof old, .at = arg[cas ? 2 : 1]};
    answer(win, member, &reply, &old);
    return true;
}

static bool put(sn_window *win, const window_record *r, const char *payload)
{
    char *at = memory(win, r->at, r->bytes, 1);
    if (at && r->bytes)
        gmem_store(at, payload, r->bytes);
    return at != NULL;
}

/* What a peer answered or signalled. */
static bool hear(sn_window *win, int member, const window_record *r, const char *payload)
{
    window_member *m = &win->members[member];
    if (r->kind == WINDOW_DONE && r->at <= m->asked) {
        m->done = SN_MAX(m->done, r->at);
    } else if (r->kind == WINDOW_OLD && r->bytes == sizeof win->answer && r->at == win->id) {
        memcpy(&win->answer, payload, sizeof win->answer);
        win->answered = r->at;
    } else if (r->kind == WINDOW_FENCE && r->what < WINDOW_BROKEN) {
        sn_gmem_store_u32(&win->line->word[r->what], (uint32_t) r->at);
    } else {
        return r->kind == WINDOW_OLD; /* of a fetch that was given up */
    }
    return true;
}

static bool serve(sn_window *win, int member, const window_record *r, const char *payload)
{
    switch (r->kind) {
    case WINDOW_PUT:
        return put(win, r, payload);
    case WINDOW_ADD:
        return accumulate(win, r, payload);
    case WINDOW_FETCH:
    case WINDOW_CAS:
        return word(win, member, r, payload);
    case WINDOW_FLUSH:
        answer(win, member, &(window_record){.kind = WINDOW_DONE, .at = r->at}, NULL);
        return true;
    default:
        return hear(win, member, r, payload);
    }
}

void window_serve(void *ctx, int from, const void *data, size_t bytes)
{
    sn_window *win = ctx;
    const char *at = data;
    int member = win->member_of[from];
    for (window_record r; member >= 0 && win->line && bytes >= sizeof r;) {
        memcpy(&r, at, sizeof r);
        size_t whole = sizeof r + SN_ALIGN_UP((size_t) r.bytes, 8);
        if (whole > bytes || !serve(win, member, &r, at + sizeof r))
            return;
        at += whole;
        bytes -= whole;
    }
}
