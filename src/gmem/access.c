/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of a window: on my host memory is accessed here and now, to another host the operation
 * goes into the target's parcel or to UCX. */
#include "gmem/window.h"
#include "gmem/word.h"

#include "os/os.h"

#include <stdlib.h>
#include <string.h>

static sn_status outside(const sn_window *win, int member, uint64_t at, uint64_t bytes)
{
    if (member < 0 || member >= win->n)
        return sn_fail(SN_EINVAL, "member %d of a window of %d", member, win->n);
    const window_member *m = &win->members[member];
    return sn_fail(SN_EINVAL, "bytes %llu to %llu of the window of rank %d (%s), which has %llu",
                   (unsigned long long) at, (unsigned long long) (at + bytes), m->rank,
                   sn_net_host_name(win->net, m->rank), (unsigned long long) m->bytes);
}

static inline sn_status check(const sn_window *win, int member, uint64_t at, uint64_t bytes)
{
    if (win->broken < 0)
        return sn_fail(win->broken, "an operation of this window failed before: free it");
    if (member < 0 || member >= win->n || at > win->members[member].bytes ||
        bytes > win->members[member].bytes - at)
        return outside(win, member, at, bytes);
    return SN_OK;
}

static sn_status check_aligned(const sn_window *win, int member, uint64_t at, uint64_t bytes,
                               uint64_t width)
{
    SN_TRY(check(win, member, at, bytes));
    return at % width ? sn_fail(SN_EINVAL, "byte %llu of a window is not aligned to %llu",
                                (unsigned long long) at, (unsigned long long) width)
                      : SN_OK;
}

/* Where memory is accessed here and now; who spins on it may wait for a rank on another host, which
 * may wait for an answer of mine. */
static inline char *mapped(sn_window *win, int member)
{
    if (win->far)
        sn_net_progress(win->net);
    return win->members[member].base;
}

/* ---- put and get ---- */

sn_status sn_window_put(sn_window *win, int member, uint64_t at, const void *buf, uint64_t bytes,
                        sn_time deadline)
{
    SN_TRY(check(win, member, at, bytes));
    char *base = mapped(win, member);
    if (base) {
        gmem_store(base + at, buf, bytes);
        return SN_OK;
    }
    sn_status status;
    window_record record = {.kind = WINDOW_PUT, .bytes = (uint32_t) bytes, .at = at};
    if (bytes <= WINDOW_SMALL)
        status = window_add(win, member, &record, buf, deadline);
    else
        status =
            window_bulk_start(win, member, true, at, (void *) (uintptr_t) buf, bytes, deadline);
    return status < 0 ? window_failed(win, status, member, "a put") : SN_OK;
}

sn_status sn_window_get(sn_window *win, int member, uint64_t at, void *buf, uint64_t bytes,
                        sn_time deadline)
{
    SN_TRY(check(win, member, at, bytes));
    char *base = mapped(win, member);
    if (base) {
        gmem_load(buf, base + at, bytes);
        return SN_OK;
    }
    if (!bytes)
        return SN_OK;
    sn_status status = window_bulk_start(win, member, false, at, buf, bytes, deadline);
    return status < 0 ? window_failed(win, status, member, "a get") : SN_OK;
}

/* ---- accumulate ---- */

static sn_status accumulate_far(sn_window *win, int member, uint64_t at, const char *buf,
                                uint64_t bytes, sn_dtype dtype, sn_red red, sn_time deadline)
{
    enum { MOST = (SN_PARCEL_BYTES - sizeof(window_record)) / 8 * 8 };
    for (uint64_t done = 0; done < bytes; done += MOST) {
        window_record record = {.kind = WINDOW_ADD,
                                .what = (uint8_t) dtype,
                                .how = (uint8_t) red,
                                .bytes = (uint32_t) SN_MIN(bytes - done, (uint64_t) MOST),
                                .at = at + done};
        SN_TRY(window_add(win, member, &record, buf + done, deadline));
    }
    return SN_OK;
}

sn_status sn_window_accumulate(sn_window *win, int member, uint64_t at, const void *buf,
                               int64_t count, sn_dtype dtype, sn_red red, sn_time deadline)
{
    if (!gmem_can_accumulate(dtype, red))
        return sn_fail(SN_ENOTSUP, "a window does not accumulate %s of %s", sn_red_name(red),
                       sn_dtype_name(dtype));
    uint64_t width = sn_dtype_bytes(dtype);
    if (count < 0 || (uint64_t) count > UINT64_MAX / width)
        return sn_fail(SN_EINVAL, "an accumulate of %lld elements", (long long) count);
    uint64_t bytes = (uint64_t) count * width;
    SN_TRY(check_aligned(win, member, at, bytes, width));
    char *base = mapped(win, member);
    if (base) {
        gmem_accumulate(base + at, buf, count, dtype, red);
        return SN_OK;
    }
    sn_status status = accumulate_far(win, member, at, buf, bytes, dtype, red, deadline);
    return status < 0 ? window_failed(win, status, member, "an accumulate") : SN_OK;
}

/* ---- words ---- */

/* Sends the record as the last of its parcel and waits for the word's old value. `payload` ends
 * with the number that tells this answer from that of another fetch. */
static sn_status ask_word(sn_window *win, int member, const window_record *record,
                          uint64_t *payload, sn_time deadline, uint64_t *ret_old)
{
    payload[record->bytes / sizeof *payload - 1] = ++win->id;
    SN_TRY(window_add(win, member, record, payload, deadline));
    SN_TRY(window_send(win, member));
    sn_status status = SN_OK;
    sn_net_expect(win->net, 1);
    for (int turn = 0; status >= 0 && win->answered != win->id;)
        status = window_turn(win, &turn, member, deadline);
    sn_net_expect(win->net, -1);
    if (status < 0)
        return status;
    win->members[member].unconfirmed = false; /* what was sent before is applied too */
    *ret_old = win->answer;
    return SN_OK;
}

static sn_status fetch(sn_window *win, int member, uint64_t at, int width, sn_fetch op,
                       uint64_t value, sn_time deadline, uint64_t *ret_old)
{
    if ((unsigned) op >= SN_FETCHES)
        return sn_fail(SN_EINVAL, "fetch operation %d: there are %d", (int) op, SN_FETCHES);
    SN_TRY(check_aligned(win, member, at, (uint64_t) width, (uint64_t) width));
    char *base = mapped(win, member);
    if (base) {
        *ret_old = gmem_word_fetch(base + at, width, op, value);
        return SN_OK;
    }
    window_record record = {.kind = WINDOW_FETCH,
                            .what = (uint8_t) op,
                            .how = (uint8_t) width,
                            .bytes = 2 * sizeof value,
                            .at = at};
    sn_status status = ask_word(win, member, &record, (uint64_t[]){value, 0}, deadline, ret_old);
    return status < 0 ? window_failed(win, status, member, "a fetch") : SN_OK;
}

static sn_status cas(sn_window *win, int member, uint64_t at, int width, uint64_t expected,
                     uint64_t desired, sn_time deadline, uint64_t *ret_old)
{
    SN_TRY(check_aligned(win, member, at, (uint64_t) width, (uint64_t) width));
    char *base = mapped(win, member);
    if (base) {
        *ret_old = gmem_word_cas(base + at, width, expected, desired);
        return SN_OK;
    }
    window_record record = {
        .kind = WINDOW_CAS, .how = (uint8_t) width, .bytes = 3 * sizeof expected, .at = at};
    sn_status status =
        ask_word(win, member, &record, (uint64_t[]){expected, desired, 0}, deadline, ret_old);
    return status < 0 ? window_failed(win, status, member, "a compare-and-swap") : SN_OK;
}

sn_status sn_window_fetch_u64(sn_window *win, int member, uint64_t at, sn_fetch op, uint64_t value,
                              sn_time deadline, uint64_t *ret_old)
{
    return fetch(win, member, at, 8, op, value, deadline, ret_old);
}

sn_status sn_window_fetch_u32(sn_window *win, int member, uint64_t at, sn_fetch op, uint32_t value,
                              sn_time deadline, uint32_t *ret_old)
{
    uint64_t old;
    SN_TRY(fetch(win, member, at, 4, op, value, deadline, &old));
    *ret_old = (uint32_t) old;
    return SN_OK;
}

sn_status sn_window_cas_u64(sn_window *win, int member, uint64_t at, uint64_t expected,
                            uint64_t desired, sn_time deadline, uint64_t *ret_old)
{
    return cas(win, member, at, 8, expected, desired, deadline, ret_old);
}

sn_status sn_window_cas_u32(sn_window *win, int member, uint64_t at, uint32_t expected,
                            uint32_t desired, sn_time deadline, uint32_t *ret_old)
{
    uint64_t old;
    SN_TRY(cas(win, member, at, 4, expected, desired, deadline, &old));
    *ret_old = (uint32_t) old;
    return SN_OK;
}

/* ---- flush ---- */

static sn_status there(const sn_window *win, int from, int to)
{
    SN_TRY(sn_net_look(win->net));
    for (int i = from; i < to; i++)
        if (sn_net_left(win->net, win->members[i].rank))
            return sn_fail(SN_EPEER, "rank %d (%s) has left the job", win->members[i].rank,
                           sn_net_host_name(win->net, win->members[i].rank));
    return SN_OK;
}

sn_status sn_window_flush(sn_window *win, int member, sn_time deadline)
{
    SN_TRY(check(win, member == SN_EVERYONE ? 0 : member, 0, 0));
    int from = member == SN_EVERYONE ? 0 : member;
    int to = member == SN_EVERYONE ? win->n : member + 1;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    sn_status status = there(win, from, to);
    if (status < 0)
        return window_failed(win, status, member, "a flush");
    return win->far ? window_flush_far(win, from, to, deadline) : SN_OK;
}
