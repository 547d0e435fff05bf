/* SPDX-License-Identifier: Apache-2.0
 *
 * The origin's side of a window across hosts. */
#include "gmem/window.h"

#include <string.h>

/* ---- parcels ---- */

sn_status window_send(sn_window *win, int member)
{
    window_member *m = &win->members[member];
    char *parcel = m->parcel;
    if (!parcel)
        return SN_OK;
    m->parcel = NULL;
    return sn_net_parcel_send(win->net, m->rank, m->port, parcel, m->fill);
}

/* A parcel may be long in coming while the target takes none; what it waits for may be my answer,
 * so this drives progress. */
static sn_status begin_parcel(sn_window *win, int member, sn_time deadline)
{
    window_member *m = &win->members[member];
    sn_status status = SN_OK;
    m->fill = 0;
    m->parcel = sn_net_parcel_take(win->net, false);
    if (m->parcel)
        return SN_OK;
    for (int i = 0; i < win->n && status >= 0; i++) /* mine may be the ones that are missing */
        status = window_send(win, i);
    sn_net_expect(win->net, 1);
    for (int turn = 0; status >= 0 && !m->parcel;) {
        status = window_turn(win, &turn, member, deadline);
        if (status >= 0)
            m->parcel = sn_net_parcel_take(win->net, false);
    }
    sn_net_expect(win->net, -1);
    return status;
}

sn_status window_add(sn_window *win, int member, const window_record *record, const void *payload,
                     sn_time deadline)
{
    window_member *m = &win->members[member];
    size_t bytes = sizeof *record + SN_ALIGN_UP(record->bytes, 8);
    if (m->parcel && m->fill + bytes > SN_PARCEL_BYTES)
        SN_TRY(window_send(win, member));
    if (!m->parcel)
        SN_TRY(begin_parcel(win, member, deadline));
    memcpy(m->parcel + m->fill, record, sizeof *record);
    if (record->bytes)
        memcpy(m->parcel + m->fill + sizeof *record, payload, record->bytes);
    m->fill += bytes;
    m->unconfirmed |= record->kind == WINDOW_PUT || record->kind == WINDOW_ADD;
    return SN_OK;
}

/* ---- bulk transfers ---- */

static sn_status end_bulk(sn_window *win, window_bulk *b, sn_time deadline)
{
    sn_net_req *req = b->req;
    b->req = NULL;
    return sn_net_wait(win->net, req, deadline, NULL);
}

/* Room for one more: one that has ended, else the first, waited for. */
static sn_status bulk_room(sn_window *win, sn_time deadline, window_bulk **ret)
{
    for (int i = 0; i < WINDOW_BULK; i++) {
        window_bulk *b = &win->bulk[i];
        if (b->req) {
            sn_status status = sn_net_test(win->net, b->req);
            if (status == SN_PENDING)
                continue;
            b->req = NULL;
            SN_TRY(status);
        }
        *ret = b;
        return SN_OK;
    }
    *ret = &win->bulk[0];
    return end_bulk(win, *ret, deadline);
}

sn_status window_bulk_start(sn_window *win, int member, bool put, uint64_t at, void *buf,
                            uint64_t bytes, sn_time deadline)
{
    window_bulk *b;
    sn_status status = SN_AGAIN;
    for (int turn = 0; status == SN_AGAIN;) {
        SN_TRY(bulk_room(win, deadline, &b));
        status = put ? sn_net_put(win->region, member, at, buf, bytes, &b->req)
                     : sn_net_get(win->region, member, at, buf, bytes, &b->req);
        if (status == SN_AGAIN) /* others hold all requests */
            SN_TRY(window_turn(win, &turn, member, deadline));
    }
    SN_TRY(status);
    b->member = member;
    win->members[member].bulk |= put;
    return SN_OK;
}

static sn_status end_bulks(sn_window *win, int member, sn_time deadline)
{
    for (int i = 0; i < WINDOW_BULK; i++)
        if (win->bulk[i].req && win->bulk[i].member == member)
            SN_TRY(end_bulk(win, &win->bulk[i], deadline));
    window_member *m = &win->members[member];
    if (!m->bulk)
        return SN_OK;
    sn_net_req *req;
    sn_status status;
    for (int turn = 0; (status = sn_net_flush(win->net, m->rank, &req)) == SN_AGAIN;)
        SN_TRY(window_turn(win, &turn, member, deadline));
    SN_TRY(status);
    m->bulk = false;
    return sn_net_wait(win->net, req, deadline, NULL);
}

void window_abandon(sn_window *win)
{
    for (int i = 0; i < win->n; i++) {
        sn_net_parcel_drop(win->net, win->members[i].parcel);
        win->members[i].parcel = NULL;
    }
    for (int i = 0; i < WINDOW_BULK; i++) {
        sn_net_cancel(win->net, win->bulk[i].req);
        win->bulk[i].req = NULL;
    }
}

/* ---- flush ---- */

static sn_status ask(sn_window *win, int member, sn_time deadline)
{
    window_member *m = &win->members[member];
    if (m->unconfirmed) {
        window_record record = {.kind = WINDOW_FLUSH, .at = m->asked + 1};
        SN_TRY(window_add(win, member, &record, NULL, deadline));
        m->unconfirmed = false;
        m->asked++;
    }
    return window_send(win, member);
}

static sn_status confirm(sn_window *win, int member, sn_time deadline)
{
    window_member *m = &win->members[member];
    sn_status status = end_bulks(win, member, deadline);
    sn_net_expect(win->net, 1);
    for (int turn = 0; status >= 0 && m->done < m->asked;)
        status = window_turn(win, &turn, member, deadline);
    sn_net_expect(win->net, -1);
    return status;
}

/* All are asked before the first is waited for. */
sn_status window_flush_far(sn_window *win, int from, int to, sn_time deadline)
{
    for (int i = from; i < to; i++) {
        sn_status status = ask(win, i, deadline);
        if (status < 0)
            return window_failed(win, status, i, "a flush");
    }
    for (int i = from; i < to; i++) {
        sn_status status = confirm(win, i, deadline);
        if (status < 0)
            return window_failed(win, status, i, "a flush");
    }
    return SN_OK;
}
