/* SPDX-License-Identifier: Apache-2.0
 *
 * wait — how a worker waits for its peers when there are more workers than cores: spin for less
 * than a microsecond, then yield to whoever has work, then sleep until a peer rings.
 *
 * The bell is an event count. A sleeper says that it sleeps, looks once more, and sleeps only while
 * nobody rang since; a peer stores what it has to say, then looks whether the other sleeps. Both
 * put a full fence in between, so one of them sees the other. */
#include "coll/coll_private.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__) || defined(__i386__)
#define RELAX() __builtin_ia32_pause()
#else
#define RELAX() __atomic_signal_fence(__ATOMIC_SEQ_CST)
#endif

#define YIELDS 60         /* before sleeping */
#define YIELDS_NET 400    /* the same while bytes are expected from another host */
#define SLEEP (SN_MS)     /* at most, between looks around */
#define SLEEP_NET 100000  /* ns; the net rings no bell */
#define SAY_AFTER (SN_MS) /* a wait this long is told on the control page */

static void futex(uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
    syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

void coll_ring_bell(coll_bell *bell)
{
    if (__atomic_load_n(&bell->sleeping, __ATOMIC_RELAXED) == 0)
        return;
    __atomic_fetch_add(&bell->rung, 1, __ATOMIC_RELEASE);
    futex(&bell->rung, FUTEX_WAKE, INT_MAX, NULL);
}

void coll_ring_members(sn_coll_group *g)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    for (int i = 0; i < g->locals; i++)
        coll_ring_bell(g->member[g->local[i]].bell);
}

/* The lock is held before and after, but not while it sleeps. */
static void sleep_on_bell(sn_coll *c, sn_time ns)
{
    uint32_t rung = __atomic_load_n(&c->bell->rung, __ATOMIC_ACQUIRE);
    __atomic_store_n(&c->bell->sleeping, 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    bool moved = coll_progress(c);
    coll_unlock(c);
    if (!moved) {
        struct timespec t = {.tv_nsec = ns};
        futex(&c->bell->rung, FUTEX_WAIT, rung, &t);
    }
    coll_lock(c);
    __atomic_store_n(&c->bell->sleeping, 0, __ATOMIC_RELAXED);
}

/* ---- looking around while nothing moves ---- */

static int waits_for(const sn_coll_req *r)
{
    return r->kind == COLL_REQ_GROUP ? coll_op_waits_for(r) : r->peer;
}

/* Whom the request waits for, "" when for nobody in particular. */
static const char *culprit(const sn_coll_req *r, char out[120])
{
    const sn_coll *c = r->coll;
    int rank = waits_for(r);
    if (rank < 0)
        return "";
    snprintf(out, 120, "no signal from rank %d (%s)", rank, sn_net_host_name(c->net, rank));
    return out;
}

static void fail(sn_coll_req *r, sn_status status)
{
    if (r->kind == COLL_REQ_GROUP) {
        coll_op_fail(r, status);
        return;
    }
    coll_p2p_withdraw(r, status);
    coll_end(r, status, sn_errmsg());
}

static void out_of_time(sn_coll_req *r, sn_time now)
{
    char who[120], what[200];
    sn_coll *c = r->coll;
    double waited = (double) (now - r->since) / 1e9;
    const char *whom = culprit(r, who);
    sn_fail(SN_ETIME, "rank %d (%s): %s: %s for %.1f s", c->rank, sn_net_host_name(c->net, c->rank),
            coll_req_text(r, what), whom[0] != '\0' ? whom : "not finished", waited);
    fail(r, SN_ETIME);
}

static void peer_has_left(sn_coll_req *r)
{
    sn_coll *c = r->coll;
    char what[200];
    sn_fail(SN_EPEER, "rank %d (%s): %s: rank %d (%s) has left", c->rank,
            sn_net_host_name(c->net, c->rank), coll_req_text(r, what), r->peer,
            sn_net_host_name(c->net, r->peer));
    fail(r, SN_EPEER);
}

static void look_at(sn_coll_req *r, sn_status alive, sn_time now)
{
    sn_coll *c = r->coll;
    char what[200];
    if (r->since == 0)
        r->since = now;
    if (alive < 0) {
        alive = sn_net_alive(c->net);
        sn_fail_in(alive, "rank %d (%s): %s", c->rank, sn_net_host_name(c->net, c->rank),
                   coll_req_text(r, what));
        fail(r, alive);
    } else if (r->kind == COLL_REQ_GROUP ? coll_peer_gave_up(r) : r->status != SN_PENDING) {
        return;
    } else if (r->kind != COLL_REQ_GROUP && coll_p2p_peer_left(r)) {
        peer_has_left(r);
    } else if (r->status == SN_PENDING && now > r->deadline) {
        out_of_time(r, now);
    }
}

void coll_look_around(sn_coll *c)
{
    coll_news_listen(c);
    coll_aborts(c);
    if (c->retired != NULL)
        coll_groups_sweep(c, false);
    sn_status alive = sn_net_look(c->net);
    sn_time now = sn_now();
    c->looked_around = now;
    for (sn_coll_req *r = c->active; r != NULL; r = r->next)
        if (r->status == SN_PENDING)
            look_at(r, alive, now);
}

static void say(sn_coll_req *r)
{
    char what[200];
    sn_page *page = sn_net_page(r->coll->net);
    if (r->since == 0 || sn_now() - r->since < SAY_AFTER)
        return;
    sn_recorder_wait(r->coll->recorder, r->record, waits_for(r));
    if (r->told || page == NULL)
        return;
    r->told = true;
    if (r->coll->told++ == 0) /* whoever wrote there before gets it back */
        sn_page_op_read(page, r->coll->said_before, NULL);
    sn_page_op(page, coll_req_text(r, what), r->deadline);
}

/* ---- the public waits ---- */

static void relax(sn_coll *c, int n)
{
    if (!c->threads && n % 4 == 1) /* takes the time of a pause */
        c->looked = sn_recorder_now(c->recorder);
    else
        RELAX();
}

static void yield(sn_coll *c)
{
    coll_unlock(c);
    sched_yield();
    coll_lock(c);
}

void coll_idle(sn_coll *c, sn_coll_req *r, int n)
{
    int spins = c->crowded ? 1 : c->threads ? 8 : 400; /* a crowded core is what others wait for */
    int yields = c->nets > 0 ? YIELDS_NET : YIELDS;
    if (n <= spins) {
        relax(c, n);
        return;
    }
    c->looked = 0;
    if (n % 8 == 0 || n > spins + yields) {
        coll_look_around(c);
        say(r);
    }
    if (r->status != SN_PENDING)
        return;
    if (n <= spins + yields)
        yield(c);
    else
        sleep_on_bell(c, SN_MIN(c->nets > 0 ? SLEEP_NET : SLEEP,
                                SN_MAX(r->deadline - c->looked_around, 1000)));
}

/* ---- the public waits ---- */

/* Hand the outcome to the caller and the request back to its pool. */
static sn_status take(sn_coll_req *r)
{
    sn_status status = r->status;
    if (r->since != 0)
        sn_recorder_wait(r->coll->recorder, 0, -1);
    if (r->told && --r->coll->told == 0)
        sn_page_op(sn_net_page(r->coll->net), r->coll->said_before, 0);
    if (status < 0)
        sn_fail(status, "%s", r->text);
    coll_give_back(r);
    return status;
}

/* While things move nobody looks around by itself. */
#define LOOK_MOVES 64

static void wait_alone(sn_coll_req *r)
{
    sn_coll *c = r->coll;
    int moves = 0;
    for (int n = 1; r->status == SN_PENDING; n++) {
        if (coll_progress(c)) {
            n = 0, c->looked = 0;
            if (++moves % LOOK_MOVES == 0)
                coll_look_around(c);
        } else if (r->status == SN_PENDING) {
            coll_idle(c, r, n);
        }
    }
    c->looked = 0;
}

sn_status coll_wait(sn_coll_req *r)
{
    if (r->coll->threads)
        coll_threads_wait(r);
    else
        wait_alone(r);
    return take(r);
}

sn_status sn_coll_wait(sn_coll_req *req)
{
    sn_coll *c = req->coll;
    coll_lock(c);
    sn_status status = coll_wait(req);
    coll_unlock(c);
    return status;
}

/* Who only asks now and then has deadlines and deaths looked after too. */
static void glance(sn_coll *c)
{
    if (sn_now() - c->looked_around >= SN_MS)
        coll_look_around(c);
}

sn_status sn_coll_test(sn_coll_req *req)
{
    sn_coll *c = req->coll;
    coll_lock(c);
    if (req->status == SN_PENDING && !coll_progress(c))
        glance(c);
    sn_status status = req->status == SN_PENDING ? SN_PENDING : take(req);
    coll_unlock(c);
    return status;
}

void sn_coll_progress(sn_coll *c)
{
    coll_lock(c);
    if (!coll_progress(c) && c->active != NULL)
        glance(c);
    coll_unlock(c);
}
