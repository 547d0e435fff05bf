/* SPDX-License-Identifier: Apache-2.0
 *
 * The heartbeat thread's own memory: its stack and all that it writes each tick.
 *
 * While a process forks, whoever writes to a private page of it waits until the kernel has copied
 * its page tables: 0.1 s and more for 2 GiB in small pages, and nobody may take that for death.
 * Memory that children do not get has nothing to be copied: writing to it never waits.
 *
 *   at   what they write | guard page | stack of the ticks     not for children
 *        the top of the stack, which the thread library uses   for children: it looks at it there
 */
#include "net/net_private.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define STACK_BYTES (128 << 10) /* of the ticks */
#define LIBRARY_BYTES (128 << 10)

sn_status net_den_open(net_den *den, size_t bytes)
{
    size_t page = (size_t) sysconf(_SC_PAGESIZE);
    size_t own = SN_ALIGN_UP(bytes, page) + page + STACK_BYTES;
    char *at = mmap(NULL, own + LIBRARY_BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (at == MAP_FAILED)
        return sn_fail(SN_ENOMEM, "no memory for the heartbeat thread: %s", strerror(errno));
    madvise(at, own, MADV_DONTFORK);
    *den = (net_den){.at = at, .own = own, .bytes = own + LIBRARY_BYTES};
    den->room = SN_ALIGN_UP(bytes, page);
    den->stack = at + den->room + page;
    mprotect(den->stack - page, page, PROT_NONE);
    return SN_OK;
}

void *net_den_alloc(net_den *den, size_t bytes)
{
    size_t at = SN_ALIGN_UP(den->used, 64);
    SN_ASSERT(at + bytes <= den->room); /* net_den_open was told of all that comes */
    den->used = at + bytes;
    return den->at + at;
}

int net_den_thread(net_den *den, pthread_attr_t *attr, void *(*run)(void *), void *ctx,
                   pthread_t *ret)
{
    size_t bytes = (size_t) (den->at + den->bytes - den->stack);
    int code = pthread_attr_setstack(attr, den->stack, bytes);
    if (!code)
        code = pthread_create(ret, attr, run, ctx);
    if (code != EINVAL)
        return code;
    den->stack = NULL; /* a program whose threads need more room: then forks may hold it up */
    return pthread_create(ret, NULL, run, ctx);
}

__attribute__((noinline)) void net_den_descend(const net_den *den, void (*run)(void *), void *ctx)
{
    volatile char frame[4096];
    frame[0] = 0;
    if (den->stack && (const volatile char *) frame + sizeof frame > den->at + den->own)
        net_den_descend(den, run, ctx);
    else
        run(ctx);
    frame[1] = frame[0]; /* so that this is no tail call */
}

void net_den_close(net_den *den)
{
    if (den->at)
        munmap(den->at, den->bytes);
    den->at = NULL;
}
