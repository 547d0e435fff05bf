/* SPDX-License-Identifier: Apache-2.0
 *
 * record — what the flight recorder is told.
 *
 * A long operation is recorded before its first turn. A short one after its first signal is stored:
 * what is written until the peers have it and answer costs nobody anything. */
#include "coll/coll_private.h"

#define LONG 4096 /* bytes: from here on the first turn takes longer than the record */

enum { WORD_SEND = SN_COLL_OPS, WORD_RECEIVE, WORD_RED = 16, WORD_ALGORITHM = 24 };

_Static_assert((int) WORD_RECEIVE < (int) WORD_RED, "words of operations");
_Static_assert((int) WORD_RED + (int) SN_REDS <= (int) WORD_ALGORITHM, "words of reductions");

void coll_record_open(sn_coll *c)
{
    const sn_algo_row *const *rows;
    int n = sn_algo_rows(&rows);
    for (int i = 0; i < SN_COLL_OPS; i++)
        sn_recorder_word(c->recorder, i, sn_coll_op_name((sn_coll_op) i));
    sn_recorder_word(c->recorder, WORD_SEND, "send to");
    sn_recorder_word(c->recorder, WORD_RECEIVE, "receive from");
    for (int i = 0; i < SN_REDS; i++)
        sn_recorder_word(c->recorder, WORD_RED + i, sn_red_name((sn_red) i));
    for (int i = 0; i < n; i++)
        sn_recorder_word(c->recorder, WORD_ALGORITHM + i, rows[i]->name);
}

static bool started(const sn_coll_req *r)
{
    return r->group != NULL ? r->stage != COLL_QUEUED : r->mail != NULL || r->net != NULL;
}

static sn_record_state state_of(const sn_coll_req *r)
{
    if (r->status == SN_OK)
        return SN_RECORD_DONE;
    return started(r) ? SN_RECORD_STARTED : SN_RECORD_POSTED;
}

static sn_record_what of_group(const sn_coll_req *r)
{
    sn_coll_op op = r->call.op;
    bool reduces = op == SN_ALL_REDUCE || op == SN_REDUCE_SCATTER;
    bool rooted = op == SN_BROADCAST || op == SN_GATHER || op == SN_SCATTER;
    return (sn_record_what){.op = (uint8_t) op,
                            .red =
                                reduces ? (uint8_t) (WORD_RED + r->call.red) : SN_RECORDER_NO_WORD,
                            .algorithm = (uint8_t) (WORD_ALGORITHM + r->print.algorithm),
                            .dtype = (uint8_t) r->call.dtype,
                            .group = r->group->recorded,
                            .peer = rooted ? r->call.root : -1,
                            .seq = r->seq,
                            .count = (uint64_t) r->call.count,
                            .blocks = (uint32_t) coll_blocks_most(r)};
}

static sn_record_what of_pair(const sn_coll_req *r)
{
    bool sends = r->kind == COLL_REQ_SEND || r->kind == COLL_REQ_NET_SEND;
    return (sn_record_what){.op = sends ? WORD_SEND : WORD_RECEIVE,
                            .red = SN_RECORDER_NO_WORD,
                            .algorithm = SN_RECORDER_NO_WORD,
                            .dtype = SN_U8,
                            .group = SN_RECORDER_PAIR,
                            .peer = r->peer,
                            .seq = r->tag,
                            .count = r->bytes,
                            .blocks = 1};
}

/* So short that its first turn takes less time than the record. */
static bool brief(const sn_coll_req *r)
{
    if (r->group == NULL)
        return r->bytes < LONG;
    uint64_t elements = (uint64_t) r->call.count * (uint64_t) coll_blocks_most(r);
    return elements * sn_dtype_bytes(r->call.dtype) < LONG;
}

static void post(sn_coll_req *r, sn_record_state state)
{
    sn_recorder *to = r->coll->recorder;
    sn_record_what what = r->group != NULL ? of_group(r) : of_pair(r);
    r->posted = sn_recorder_now(to);
    r->record = sn_recorder_post(to, &what, state, r->posted);
}

/* A signal was stored; what is done until the peer sees it costs nothing. */
void coll_record_signalled(sn_coll_req *r)
{
    post(r, SN_RECORD_STARTED);
    r->coll->looked = r->posted;
}

void coll_record_launch(sn_coll_req *r)
{
    sn_recorder *to = r->coll->recorder;
    if (r->making != NULL) { /* no operation of the caller's */
        coll_advance(r);
        return;
    }
    r->brief = brief(r);
    if (!r->brief)
        post(r, SN_RECORD_POSTED);
    coll_advance(r);
    if (r->record != 0)
        return;
    post(r, state_of(r));
    if (r->status < 0)
        sn_recorder_end(to, r->record, r->status);
}

/* While a waiter spins it looks at the clock at leisure; the last look is when a short operation
 * ended, near enough, and costs nothing then. */
void coll_record_end(sn_coll_req *r)
{
    sn_recorder *to = r->coll->recorder;
    uint64_t looked = r->brief ? r->coll->looked : 0;
    sn_recorder_end_at(to, r->record, r->status, looked ? looked : sn_recorder_now(to));
}
