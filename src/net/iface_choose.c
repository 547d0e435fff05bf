/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of an interface, as a function of everybody's addresses.
 *
 * First the family: IPv4 unless IPv6 is better for the rank that is worst off, so that one kind
 * serves all. Then each rank its own address of that family, in this order of what matters:
 *
 *   1. it leads to others: some host has another address in its subnet, or it has a default route
 *   2. its grade: outer before container engines' bridges before loopback
 *   3. how many hosts its subnet reaches          4. a default route          5. speed
 *
 * An address that another host has too (each container engine gives itself 172.17.0.1) leads to
 * nobody. */
#include "net/iface.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct merit {
    bool leads;
    int grade, reach, route;
    uint32_t mbit;
} merit;

static bool same_subnet(const net_address *a, const net_address *b)
{
    if (a->family != b->family)
        return false;
    int whole = a->prefix / 8, rest = a->prefix % 8;
    uint8_t mask = (uint8_t) (0xff00 >> rest);
    return memcmp(a->bytes, b->bytes, (size_t) whole) == 0 &&
           (rest == 0 || ((a->bytes[whole] ^ b->bytes[whole]) & mask) == 0);
}

/* What rank r's addresses say of `a`: 1 reaches, 0 does not, -1 the very same address. */
static int reaches(const net_address *a, const net_addresses *theirs)
{
    int found = 0;
    for (int i = 0; i < theirs->n; i++) {
        const net_address *b = &theirs->list[i];
        if (b->grade == NET_LOOPBACK || !same_subnet(a, b))
            continue;
        if (memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0)
            return -1;
        found = 1;
    }
    return found;
}

typedef struct everybody {
    const net_addresses *lists; /* [world] */
    const int *host_of;
    int world;
    bool one_kernel;
    int *first; /* [firsts] the first rank of each host */
    int firsts;
} everybody;

static merit judge(const everybody *all, int me, const net_address *a)
{
    merit m = {.grade = a->grade, .route = a->route, .mbit = a->mbit};
    if (a->grade == NET_LOOPBACK) {
        m.leads = all->one_kernel;
        m.grade = all->one_kernel ? NET_ASKED : NET_LOOPBACK;
        return m;
    }
    bool twice = false;
    for (int h = 0; h < all->firsts; h++) {
        int r = all->first[h];
        int found = all->host_of[r] == all->host_of[me] ? 0 : reaches(a, &all->lists[r]);
        twice |= found < 0;
        m.reach += found > 0;
    }
    if (twice)
        m.reach = 0;
    m.leads = m.reach > 0 || m.route || a->grade == NET_ASKED;
    return m;
}

static bool better(const merit *a, const merit *b)
{
    if (a->leads != b->leads)
        return a->leads;
    if (a->grade != b->grade)
        return a->grade > b->grade;
    if (a->reach != b->reach)
        return a->reach > b->reach;
    if (a->route != b->route)
        return a->route > b->route;
    return a->mbit > b->mbit;
}

/* The best address of rank `r` in a family, NULL when it has none. */
static const net_address *best_of(const everybody *all, int r, int family, merit *ret)
{
    const net_address *best = NULL;
    for (int i = 0; i < all->lists[r].n; i++) {
        const net_address *a = &all->lists[r].list[i];
        if (a->family != family)
            continue;
        merit m = judge(all, r, a);
        if (best && !better(&m, ret))
            continue;
        best = a;
        *ret = m;
    }
    return best;
}

/* The worst rank's merit in a family; -1 when some rank, *ret_lacks, has no address in it. */
static int family_merit(const everybody *all, int family, int *ret_lacks)
{
    int least = 1000;
    for (int r = 0; r < all->world; r++) {
        merit m;
        if (!best_of(all, r, family, &m)) {
            *ret_lacks = r;
            return -1;
        }
        least = SN_MIN(least, 10 * m.leads + m.grade);
    }
    return least;
}

static const char *grade_name(const merit *m)
{
    static const char *const names[] = {[NET_LOOPBACK] = "nothing but loopback",
                                        [NET_INNER] = "an inner bridge or pair",
                                        [NET_OUTER] = "an outer interface",
                                        [NET_ASKED] = "asked for"};
    return names[m->grade];
}

static void explain(const net_address *a, const merit *m, bool one_kernel, char why[160])
{
    char text[64], speed[32] = "";
    if (m->mbit)
        snprintf(speed, sizeof speed, ", %u Mbit/s", m->mbit);
    if (one_kernel && a->grade == NET_LOOPBACK)
        snprintf(why, 160, "%s %s: all ranks are on one machine", a->name,
                 net_address_text(a, text));
    else
        snprintf(why, 160, "%s %s: %s, its subnet reaches %d other hosts%s%s", a->name,
                 net_address_text(a, text), grade_name(m), m->reach,
                 m->route ? ", default route" : "", speed);
}

static sn_status choose(const everybody *all, int me, net_address *ret, char why[160])
{
    int lacks_4 = 0, lacks_6 = 0;
    int four = family_merit(all, 4, &lacks_4), six = family_merit(all, 6, &lacks_6);
    if (four < 0 && six < 0)
        return sn_fail(SN_ENOTFOUND,
                       "rank %d has no IPv4 address that is up and rank %d no IPv6 address: give "
                       "all ranks addresses of one kind",
                       lacks_4, lacks_6);
    merit m;
    const net_address *best = best_of(all, me, four >= six ? 4 : 6, &m);
    explain(best, &m, all->one_kernel, why);
    *ret = *best;
    return SN_OK;
}

sn_status net_iface_choose(const net_addresses *lists, const int *host_of, int world, int me,
                           bool one_kernel, net_address *ret, char why[160])
{
    everybody all = {.lists = lists, .host_of = host_of, .world = world, .one_kernel = one_kernel};
    int hosts = 0;
    for (int r = 0; r < world; r++)
        hosts = SN_MAX(hosts, host_of[r] + 1);
    all.first = sn_alloc((size_t) world * sizeof *all.first);
    char *seen = sn_alloc((size_t) hosts);
    for (int r = 0; r < world; r++)
        if (!seen[host_of[r]]) {
            seen[host_of[r]] = 1;
            all.first[all.firsts++] = r;
        }
    sn_status status = choose(&all, me, ret, why);
    free(seen);
    free(all.first);
    return status;
}
