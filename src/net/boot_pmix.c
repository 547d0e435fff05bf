/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding each other under a launcher that speaks PMIx: each all-gather puts one key, fences, and
 * reads everybody's key. Calls that PMIx may never finish run with a callback and a ticket that is
 * shared with it, so that giving up at the deadline leaves nothing dangling. */
#include "net/boot.h"

#include "os/os.h"

#include <pmix.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct boot_pmix {
    sn_boot boot;
    pmix_proc_t me;
} boot_pmix;

/* What callbacks write; freed by whoever comes last. */
typedef struct ticket {
    pthread_mutex_t lock; /* of everything below */
    pthread_cond_t changed;
    int holders, open; /* callbacks not yet come, and the caller while it holds on */
    pmix_status_t status;
    bool *here; /* [ranks] for the question who is missing, else NULL */
} ticket;

typedef struct ticket_use {
    ticket *t;
    int rank;
} ticket_use;

static ticket *ticket_create(int ranks)
{
    ticket *t = sn_alloc(sizeof *t);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&t->changed, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&t->lock, NULL);
    t->holders = 1;
    t->here = ranks ? sn_alloc((size_t) ranks) : NULL;
    return t;
}

/* Called with the lock held; lets go of both. */
static void ticket_drop(ticket *t)
{
    bool last = --t->holders == 0;
    pthread_mutex_unlock(&t->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->changed);
    free(t->here);
    free(t);
}

static ticket_use *ticket_take(ticket *t, int rank)
{
    ticket_use *use = sn_alloc(sizeof *use);
    *use = (ticket_use){t, rank};
    pthread_mutex_lock(&t->lock);
    t->holders++;
    t->open++;
    pthread_mutex_unlock(&t->lock);
    return use;
}

static void ticket_answer(ticket_use *use, pmix_status_t status)
{
    ticket *t = use->t;
    pthread_mutex_lock(&t->lock);
    t->open--;
    t->status = status;
    if (t->here && status == PMIX_SUCCESS)
        t->here[use->rank] = true;
    pthread_cond_signal(&t->changed);
    ticket_drop(t);
    free(use);
}

/* True when all callbacks came before the deadline. Returns with the lock held. */
static bool ticket_wait(ticket *t, sn_time deadline)
{
    struct timespec until = {.tv_sec = deadline / SN_SEC, .tv_nsec = deadline % SN_SEC};
    pthread_mutex_lock(&t->lock);
    while (t->open && pthread_cond_timedwait(&t->changed, &t->lock, &until) == 0)
        continue;
    return t->open == 0;
}

static void on_fence(pmix_status_t status, void *ctx)
{
    ticket_answer(ctx, status);
}

static void on_value(pmix_status_t status, pmix_value_t *value, void *ctx)
{
    ticket_answer(ctx, status);
}

static sn_status refused(const char *what, pmix_status_t code)
{
    return sn_fail(SN_EIO, "%s: %s", what, PMIx_Error_string(code));
}

static void key_of(uint32_t seq, pmix_key_t key)
{
    snprintf(key, PMIX_MAX_KEYLEN, "supernode.%u", seq);
}

static sn_status publish(boot_pmix *p, const void *blob, size_t bytes)
{
    pmix_key_t key;
    key_of(p->boot.seq, key);
    pmix_value_t value = {.type = PMIX_BYTE_OBJECT};
    value.data.bo.bytes = (char *) blob;
    value.data.bo.size = bytes;
    pmix_status_t code = PMIx_Put(PMIX_GLOBAL, key, &value);
    if (code != PMIX_SUCCESS)
        return refused("PMIx refused to take a blob", code);
    code = PMIx_Commit();
    return code == PMIX_SUCCESS ? SN_OK : refused("PMIx refused to commit", code);
}

/* Name who has not published its key: ask for all of them, give the answers a moment. */
static sn_status late(boot_pmix *p, double seconds)
{
    ticket *t = ticket_create(p->boot.world);
    pmix_key_t key;
    key_of(p->boot.seq, key);
    t->here[p->boot.rank] = true;
    for (int r = 0; r < p->boot.world; r++) {
        pmix_proc_t who;
        PMIX_LOAD_PROCID(&who, p->me.nspace, (pmix_rank_t) r);
        if (r == p->boot.rank)
            continue;
        ticket_use *use = ticket_take(t, r);
        pmix_status_t code = PMIx_Get_nb(&who, key, NULL, 0, on_value, use);
        if (code != PMIX_SUCCESS)
            ticket_answer(use, code);
    }
    ticket_wait(t, sn_now() + 300 * SN_MS);
    sn_str names = {0};
    boot_name_missing(t->here, p->boot.world, &names);
    ticket_drop(t);
    sn_status status =
        sn_fail(SN_ETIME, "still waiting for %s after %.1f s", sn_str_get(&names), seconds);
    sn_str_done(&names);
    return status;
}

static sn_status fence(boot_pmix *p, sn_time deadline)
{
    sn_time began = sn_now();
    bool collect = true;
    pmix_info_t info;
    PMIX_INFO_CONSTRUCT(&info);
    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    ticket *t = ticket_create(0);
    ticket_use *use = ticket_take(t, 0);
    pmix_proc_t all;
    PMIX_LOAD_PROCID(&all, p->me.nspace, PMIX_RANK_WILDCARD);
    pmix_status_t code = PMIx_Fence_nb(&all, 1, &info, 1, on_fence, use);
    if (code != PMIX_SUCCESS)
        ticket_answer(use, code == PMIX_OPERATION_SUCCEEDED ? PMIX_SUCCESS : code);
    bool done = ticket_wait(t, deadline);
    code = t->status;
    ticket_drop(t);
    PMIX_INFO_DESTRUCT(&info);
    if (!done)
        return late(p, (double) (sn_now() - began) / SN_SEC);
    return code == PMIX_SUCCESS ? SN_OK : refused("the PMIx fence failed", code);
}

/* One rank's blob onto the end of the answer. */
static sn_status fetch(boot_pmix *p, int rank, sn_str *all)
{
    pmix_key_t key;
    key_of(p->boot.seq, key);
    pmix_proc_t who;
    PMIX_LOAD_PROCID(&who, p->me.nspace, (pmix_rank_t) rank);
    pmix_value_t *value = NULL;
    pmix_status_t code = PMIx_Get(&who, key, NULL, 0, &value);
    if (code != PMIX_SUCCESS)
        return sn_fail(SN_EPEER, "no blob of rank %d: %s", rank, PMIx_Error_string(code));
    sn_status status = SN_OK;
    if (value->type != PMIX_BYTE_OBJECT || value->data.bo.size > BOOT_BLOB_MAX) {
        status = sn_fail(SN_ECORRUPT, "rank %d published what is no boot blob", rank);
    } else {
        uint32_t n = (uint32_t) value->data.bo.size;
        sn_str_add_n(all, (const char *) &n, sizeof n);
        if (n)
            sn_str_add_n(all, value->data.bo.bytes, n);
    }
    PMIX_VALUE_RELEASE(value);
    return status;
}

static sn_status fence_allgather(sn_boot *boot, const void *blob, size_t bytes, sn_time deadline)
{
    boot_pmix *p = (boot_pmix *) boot;
    SN_TRY(publish(p, blob, bytes));
    SN_TRY(fence(p, deadline));
    sn_str all = {0};
    for (int r = 0; r < boot->world; r++) {
        sn_status status = fetch(p, r, &all);
        if (status < 0) {
            sn_str_done(&all);
            return status;
        }
    }
    return boot_cut(boot, all.data, all.len); /* takes the string's memory */
}

static void finalize(sn_boot *boot)
{
    PMIx_Finalize(NULL, 0);
}

static sn_status world_of(const pmix_proc_t *me, uint32_t *ret)
{
    pmix_proc_t all;
    PMIX_LOAD_PROCID(&all, me->nspace, PMIX_RANK_WILDCARD);
    pmix_value_t *value = NULL;
    pmix_status_t code = PMIx_Get(&all, PMIX_JOB_SIZE, NULL, 0, &value);
    if (code != PMIX_SUCCESS)
        return refused("PMIx does not tell the job's size", code);
    uint32_t world = value->type == PMIX_UINT32 ? value->data.uint32 : 0;
    PMIX_VALUE_RELEASE(value);
    if (world == 0 || me->rank >= world)
        return sn_fail(SN_EIO, "PMIx says rank %u of a world of %u", me->rank, world);
    *ret = world;
    return SN_OK;
}

sn_status sn_boot_pmix(sn_boot **ret)
{
    static const boot_way way = {.allgather = fence_allgather, .free = finalize};
    pmix_proc_t me;
    uint32_t world = 0;
    pmix_status_t code = PMIx_Init(&me, NULL, 0);
    if (code != PMIX_SUCCESS)
        return sn_fail(SN_ENOTFOUND,
                       "no PMIx server (%s): start with mpirun or srun --mpi=pmix, or let "
                       "supernode start the workers",
                       PMIx_Error_string(code));
    sn_status status = world_of(&me, &world);
    if (status < 0) {
        PMIx_Finalize(NULL, 0);
        return status;
    }
    boot_pmix *p = sn_alloc(sizeof *p);
    boot_init(&p->boot, &way, (int) me.rank, (int) world);
    p->me = me;
    *ret = &p->boot;
    return SN_OK;
}
