/* SPDX-License-Identifier: Apache-2.0
 *
 * Creating a segment is a small agreement: sizes and free memory first, so that all members refuse
 * alike what does not fit; then everybody makes its part and tells how that went; then the parts
 * are handed over and mapped, and everybody tells again. */
#include "gmem/segment.h"

#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- how it went, everywhere ---- */

typedef struct verdict {
    int32_t status;
    char text[252];
} verdict;

sn_status gmem_agree(sn_segment *seg, sn_status mine, sn_time deadline)
{
    const int *members = seg->members;
    verdict v = {.status = mine};
    if (mine < 0)
        snprintf(v.text, sizeof v.text, "%s", sn_errmsg());
    verdict *all = sn_alloc((size_t) seg->n * sizeof *all);
    sn_status status = sn_net_gather(seg->net, members, seg->n, &v, sizeof v, deadline, all);
    for (int i = 0; i < seg->n && status >= 0; i++)
        if (all[i].status < 0)
            status = sn_fail((sn_status) all[i].status, "rank %d (%s): %.*s", members[i],
                             sn_net_host_name(seg->net, members[i]), (int) sizeof all[i].text,
                             all[i].text);
    free(all);
    return status;
}

/* ---- does it fit? ---- */

typedef struct wish {
    uint64_t bytes;             /* asked */
    uint64_t available;         /* memory on my host, as I see it before anybody has begun */
    uint64_t file_max, map_max; /* this process's limits */
} wish;

static uint64_t limit_of(int what)
{
    struct rlimit r;
    return getrlimit((__rlimit_resource_t) what, &r) || r.rlim_cur == RLIM_INFINITY
               ? UINT64_MAX
               : (uint64_t) r.rlim_cur;
}

static uint64_t mapped_bytes(uint64_t bytes)
{
    uint64_t page = (uint64_t) sysconf(_SC_PAGESIZE);
    return SN_ALIGN_UP(SN_GMEM_HEAD + bytes, page) +
           SN_ALIGN_UP(SN_WINDOWS_MAX * sizeof(sn_flag_line), page);
}

/* The judgement about the host of member `i`; the same on every member, from the same numbers. */
static sn_status check_host(const sn_segment *seg, const wish *wishes, int i)
{
    uint64_t sum = 0, available = wishes[i].available;
    char asked[32], there[32];
    for (int k = 0; k < seg->n; k++)
        if (sn_net_host_index(seg->net, seg->parts[k].rank) ==
            sn_net_host_index(seg->net, seg->parts[i].rank))
            sum += mapped_bytes(wishes[k].bytes);
    const char *host = sn_net_host_name(seg->net, seg->parts[i].rank);
    if (sum > available)
        return sn_fail(SN_ENOMEM, "the segment's parts on %s need %s, %s are available", host,
                       sn_fmt_bytes(asked, (double) sum), sn_fmt_bytes(there, (double) available));
    if (sum > wishes[i].map_max)
        return sn_fail(SN_ENOMEM,
                       "the segment's parts on %s need %s of address space, the limit of rank %d "
                       "(%s) is %s (ulimit -v)",
                       host, sn_fmt_bytes(asked, (double) sum), seg->parts[i].rank, host,
                       sn_fmt_bytes(there, (double) wishes[i].map_max));
    if (mapped_bytes(wishes[i].bytes) > wishes[i].file_max)
        return sn_fail(SN_ENOMEM, "rank %d (%s) asks for %s, its file size limit is %s (ulimit -f)",
                       seg->parts[i].rank, host, sn_fmt_bytes(asked, (double) wishes[i].bytes),
                       sn_fmt_bytes(there, (double) wishes[i].file_max));
    return SN_OK;
}

static sn_status check_fit(sn_segment *seg, uint64_t bytes, sn_time deadline)
{
    const int *members = seg->members;
    wish mine = {bytes, sn_memory_available(), limit_of(RLIMIT_FSIZE), limit_of(RLIMIT_AS)};
    wish *wishes = sn_alloc((size_t) seg->n * sizeof *wishes);
    sn_status status =
        sn_net_gather(seg->net, members, seg->n, &mine, sizeof mine, deadline, wishes);
    for (int i = 0; i < seg->n && status >= 0; i++) {
        seg->parts[i].bytes = wishes[i].bytes;
        if (wishes[i].bytes > UINT64_MAX / 4096)
            status = sn_fail(SN_ENOMEM, "rank %d asks for %.3g bytes", members[i],
                             (double) wishes[i].bytes);
    }
    for (int i = 0; i < seg->n && status >= 0; i++)
        status = check_host(seg, wishes, i);
    free(wishes);
    return status;
}

/* ---- my part ---- */

static sn_status map(gmem_part *p, int fd)
{
    void *at = mmap(NULL, p->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return sn_fail(SN_ENOMEM, "cannot map %llu bytes: %s", (unsigned long long) p->mapped,
                       strerror(errno));
    p->map = at;
    return SN_OK;
}

/* Every page there and in my page tables: one pass, which reports a lack of memory as an error
 * where a touch would be a SIGBUS. Kernels before 5.14 get at least the pages. */
static bool back(const gmem_part *p, int fd)
{
    if (madvise(p->map, p->mapped, MADV_POPULATE_WRITE) == 0)
        return true;
    return errno == EINVAL && fallocate(fd, 0, 0, (off_t) p->mapped) == 0;
}

/* Backed, and of a size that nobody can change: a mapping of it can never fault. */
static sn_status fill(gmem_part *p, int fd)
{
    char asked[32];
    if (ftruncate(fd, (off_t) p->mapped))
        return sn_fail(SN_ENOMEM, "no memory for a part of %s: %s",
                       sn_fmt_bytes(asked, (double) p->mapped), strerror(errno));
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        return sn_fail(SN_EIO, "cannot seal a memfd: %s", strerror(errno));
    SN_TRY(map(p, fd));
    if (!back(p, fd))
        return sn_fail(SN_ENOMEM, "no memory for a part of %s: %s",
                       sn_fmt_bytes(asked, (double) p->mapped), strerror(errno));
    return SN_OK;
}

static sn_status make_part(sn_segment *seg, int *ret_fd)
{
    gmem_part *p = &seg->parts[seg->me];
    p->mapped = mapped_bytes(p->bytes);
    int fd = memfd_create("sn-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return sn_fail(SN_EIO, "cannot make a memfd: %s", strerror(errno));
    *ret_fd = fd;
    return fill(p, fd);
}

/* ---- the others' parts ---- */

static sn_status map_other(sn_segment *seg, int i, int fd)
{
    gmem_part *p = &seg->parts[i];
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    p->mapped = mapped_bytes(p->bytes);
    if (fstat(fd, &st) || (uint64_t) st.st_size < p->mapped || seals < 0 ||
        !(seals & F_SEAL_SHRINK))
        return sn_fail(SN_ECORRUPT, "rank %d handed over what is no segment part", p->rank);
    return map(p, fd);
}

static sn_status map_others(sn_segment *seg, int my_fd, sn_time deadline)
{
    int n = 0;
    int *mates = sn_alloc((size_t) seg->n * sizeof *mates);
    int *index = sn_alloc((size_t) seg->n * sizeof *index);
    int *fds = sn_alloc((size_t) seg->n * sizeof *fds);
    for (int i = 0; i < seg->n; i++)
        if (sn_net_same_host(seg->net, seg->parts[i].rank)) {
            mates[n] = seg->parts[i].rank;
            index[n++] = i;
        }
    sn_status status = n > 1 ? sn_net_share_fds(seg->net, mates, n, my_fd, deadline, fds) : SN_OK;
    bool shared = n > 1 && status >= 0;
    for (int k = 0; shared && k < n; k++) {
        if (index[k] != seg->me && status >= 0)
            status = map_other(seg, index[k], fds[k]);
        close(fds[k]);
    }
    free(mates);
    free(index);
    free(fds);
    return status;
}

/* ---- the segment ---- */

static sn_segment *create(sn_net *net, const int *members, int n)
{
    sn_segment *seg = sn_alloc(sizeof *seg);
    seg->net = net;
    seg->n = n;
    seg->refs = 1;
    seg->parts = sn_alloc((size_t) n * sizeof *seg->parts);
    seg->members = sn_alloc((size_t) n * sizeof *seg->members);
    for (int i = 0; i < n; i++) {
        seg->members[i] = members[i];
        seg->parts[i].rank = members[i];
        if (members[i] == sn_net_rank(net))
            seg->me = i;
    }
    return seg;
}

static sn_status build(sn_segment *seg, uint64_t bytes, sn_time deadline, int *fd)
{
    SN_TRY(check_fit(seg, bytes, deadline));
    SN_TRY(gmem_agree(seg, make_part(seg, fd), deadline));
    return gmem_agree(seg, map_others(seg, *fd, deadline), deadline);
}

sn_status sn_gmem_create(sn_net *net, const int *members, int n, uint64_t bytes, sn_time deadline,
                         sn_segment **ret)
{
    if (n < 1 || n > sn_net_world(net))
        return sn_fail(SN_EINVAL, "a segment of %d members in a world of %d", n, sn_net_world(net));
    sn_segment *seg = create(net, members, n);
    int fd = -1;
    sn_status status = build(seg, bytes, deadline, &fd);
    if (fd >= 0)
        close(fd);
    if (status < 0) {
        sn_gmem_free(seg);
        return sn_fail_in(status, "cannot create a segment of %d members", n);
    }
    *ret = seg;
    return SN_OK;
}

/* UCX writes what comes from another host to the address it was told, whoever owns it by then. So
 * where something may still come, memory of no value takes the part's place. */
static void unmap_mine(const sn_segment *seg, const gmem_part *p)
{
    if (!seg->maybe_written ||
        mmap(p->map, p->mapped, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        munmap(p->map, p->mapped);
}

void gmem_unref(sn_segment *seg)
{
    if (--seg->refs)
        return;
    for (int i = 0; i < seg->n; i++)
        if (i == seg->me && seg->parts[i].map)
            unmap_mine(seg, &seg->parts[i]);
        else if (seg->parts[i].map)
            munmap(seg->parts[i].map, seg->parts[i].mapped);
    free(seg->parts);
    free(seg->members);
    free(seg);
}

void sn_gmem_free(sn_segment *seg)
{
    if (seg)
        gmem_unref(seg);
}

sn_flag_line *gmem_window_line(const sn_segment *seg, int member, int slot)
{
    const gmem_part *p = &seg->parts[member];
    char *end = p->map + p->mapped;
    return (sn_flag_line *) (void *) (end - SN_WINDOWS_MAX * sizeof(sn_flag_line)) + slot;
}

void *sn_gmem_base(const sn_segment *seg, int member)
{
    char *map = seg->parts[member].map;
    return map ? map + SN_GMEM_HEAD : NULL;
}

void *sn_gmem_head(const sn_segment *seg, int member)
{
    return seg->parts[member].map;
}

uint64_t sn_gmem_bytes(const sn_segment *seg, int member)
{
    return seg->parts[member].bytes;
}

int sn_gmem_members(const sn_segment *seg)
{
    return seg->n;
}

int sn_gmem_me(const sn_segment *seg)
{
    return seg->me;
}

int sn_gmem_rank(const sn_segment *seg, int member)
{
    return seg->parts[member].rank;
}

sn_status sn_gmem_alloc(sn_segment *seg, uint64_t bytes, void **ret)
{
    uint64_t room = seg->parts[seg->me].bytes;
    uint64_t at = SN_ALIGN_UP(seg->used, 64);
    char asked[32], left[32];
    if (at > room || bytes > room - at)
        return sn_fail(SN_EFIT, "the segment part of rank %d has %s left, %s are asked",
                       seg->parts[seg->me].rank,
                       sn_fmt_bytes(left, at < room ? (double) (room - at) : 0),
                       sn_fmt_bytes(asked, (double) bytes));
    seg->used = at + bytes;
    *ret = (char *) sn_gmem_base(seg, seg->me) + at;
    return SN_OK;
}

bool sn_gmem_find(const sn_segment *seg, const void *p, uint64_t bytes, uint64_t *ret_offset)
{
    uintptr_t base = (uintptr_t) sn_gmem_base(seg, seg->me), at = (uintptr_t) p;
    uint64_t room = seg->parts[seg->me].bytes;
    if (at < base || at - base > room || bytes > room - (at - base))
        return false;
    *ret_offset = at - base;
    return true;
}
