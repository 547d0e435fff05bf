/* SPDX-License-Identifier: Apache-2.0
 *
 * The control page: one memfd per worker, sealed against resizing so that no reader can meet
 * SIGBUS. Text goes in and out as relaxed 32-bit words between two sequence numbers. */
#include "mon/mon.h"
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef uint32_t __attribute__((may_alias)) word; /* four characters of a text field */

enum { WORD = sizeof(word), TRIES = 256, TRIES_SPUN = 32 };

_Static_assert(SN_PAGE_TEXT % WORD == 0, "the op text is a whole number of words");
_Static_assert(offsetof(sn_page, op) % WORD == 0, "the op text is aligned for words");

static sn_status map_whole(int fd, sn_page **ret)
{
    void *p = mmap(NULL, SN_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return sn_fail(SN_EIO, "cannot map a control page: %s", strerror(errno));
    *ret = p;
    return SN_OK;
}

static void fill(sn_page *page, int rank, int host, const char *host_name)
{
    page->version = SN_PAGE_VERSION;
    page->rank = rank;
    page->host = host;
    page->victim = -1;
    for (int i = 0; i < SN_PAGE_RING; i++)
        page->ring[i].step = -1;
    page->loss = page->grad_norm = page->val_loss = NAN;
    snprintf(page->host_name, sizeof page->host_name, "%s", host_name ? host_name : "");
    __atomic_store_n(&page->magic, SN_PAGE_MAGIC, __ATOMIC_RELEASE); /* last: now it is a page */
}

sn_status sn_page_create(int rank, int host, const char *host_name, int *ret_fd, sn_page **ret)
{
    int fd = memfd_create("supernode-page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return sn_fail(SN_EIO, "cannot create the control page of rank %d: %s", rank,
                       strerror(errno));
    if (ftruncate(fd, SN_PAGE_BYTES) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)) {
        sn_status status =
            sn_fail(SN_EIO, "cannot size the control page of rank %d: %s", rank, strerror(errno));
        close(fd);
        return status;
    }
    sn_page *page;
    sn_status status = map_whole(fd, &page);
    if (status < 0) {
        close(fd);
        return sn_fail_in(status, "rank %d", rank);
    }
    fill(page, rank, host, host_name);
    *ret_fd = fd;
    *ret = page;
    return SN_OK;
}

sn_status sn_page_map(int fd, sn_page **ret)
{
    struct stat st;
    if (fstat(fd, &st))
        return sn_fail(SN_EIO, "descriptor %d is no control page: %s", fd, strerror(errno));
    if (st.st_size < SN_PAGE_BYTES)
        return sn_fail(SN_ECORRUPT, "a control page of %lld bytes, %d expected",
                       (long long) st.st_size, SN_PAGE_BYTES);
    sn_page *page;
    SN_TRY(map_whole(fd, &page));
    uint32_t magic = __atomic_load_n(&page->magic, __ATOMIC_ACQUIRE);
    uint32_t version = page->version;
    if (magic == SN_PAGE_MAGIC && version == SN_PAGE_VERSION) {
        *ret = page;
        return SN_OK;
    }
    sn_page_unmap(page);
    if (magic != SN_PAGE_MAGIC)
        return sn_fail(SN_ECORRUPT, "descriptor %d is no control page: magic %08x", fd, magic);
    return sn_fail(SN_EMISMATCH, "control page version %u, this program reads version %d", version,
                   SN_PAGE_VERSION);
}

void sn_page_unmap(sn_page *page)
{
    if (page)
        munmap(page, SN_PAGE_BYTES);
}

void sn_page_set_state(sn_page *page, sn_worker_state state)
{
    if (!page)
        return;
    if (state == SN_WORKER_JOINING)
        __atomic_store_n(&page->pid, getpid(), __ATOMIC_RELAXED);
    __atomic_store_n(&page->state, (uint32_t) state, __ATOMIC_RELEASE);
}

/* Only as many words as the text needs: the rest may hold an older, longer one behind the NUL. */
static void put_text(char *to, const char *text)
{
    size_t n = strnlen(text, SN_PAGE_TEXT - 1);
    for (size_t at = 0; at <= n; at += WORD) {
        word w = 0;
        if (at < n)
            memcpy(&w, text + at, SN_MIN((size_t) WORD, n - at));
        __atomic_store_n((word *) (to + at), w, __ATOMIC_RELAXED);
    }
}

static void get_text(char out[SN_PAGE_TEXT], const char *from)
{
    for (size_t at = 0; at < SN_PAGE_TEXT; at += WORD) {
        word w = __atomic_load_n((const word *) (from + at), __ATOMIC_RELAXED);
        memcpy(out + at, &w, WORD);
    }
    out[SN_PAGE_TEXT - 1] = 0;
}

void sn_page_op(sn_page *page, const char *text, sn_time deadline)
{
    if (!page)
        return;
    uint32_t odd = (page->op_seq + 1) | 1; /* also after a writer that died half way */
    __atomic_store_n(&page->op_seq, odd, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    put_text(page->op, text ? text : "");
    __atomic_store_n(&page->op_since_ns, sn_now(), __ATOMIC_RELAXED);
    __atomic_store_n(&page->deadline_ns, deadline, __ATOMIC_RELAXED);
    __atomic_store_n(&page->op_seq, odd + 1, __ATOMIC_RELEASE);
}

bool sn_page_op_read(const sn_page *page, char out[SN_PAGE_TEXT], sn_time *ret_since)
{
    bool whole = false;
    sn_time since = 0;
    for (int i = 0; i < TRIES && !whole; i++) {
        if (i >= TRIES_SPUN)
            sched_yield(); /* the writer may want this very core to finish */
        uint32_t before = __atomic_load_n(&page->op_seq, __ATOMIC_ACQUIRE);
        get_text(out, page->op);
        since = __atomic_load_n(&page->op_since_ns, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        uint32_t after = __atomic_load_n(&page->op_seq, __ATOMIC_RELAXED);
        whole = before == after && !(before & 1);
    }
    if (ret_since)
        *ret_since = since;
    return whole;
}

void sn_page_fail(sn_page *page, sn_status status, const char *text)
{
    if (!page || __atomic_load_n(&page->state, __ATOMIC_RELAXED) == SN_WORKER_FAILED)
        return; /* the first failure is the cause, what follows are its consequences */
    snprintf(page->error, sizeof page->error, "%s", text ? text : "");
    page->error_status = status;
    __atomic_store_n(&page->state, SN_WORKER_FAILED, __ATOMIC_RELEASE);
}

const char *sn_worker_state_name(sn_worker_state state)
{
    static const char *const name[] = {"new",    "joining", "ready", "training",
                                       "saving", "done",    "failed"};
    return (size_t) state < SN_COUNT(name) ? name[state] : "unknown";
}
