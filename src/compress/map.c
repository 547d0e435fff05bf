/* SPDX-License-Identifier: Apache-2.0
 *
 * map — where the members of a group are, as a grid of hosts. Pure. */
#include "compress/compress_private.h"

#include <stdlib.h>

static int number_of(compress_map *m, const int *host, int i)
{
    for (int j = 0; j < i; j++)
        if (host[j] == host[i])
            return m->host[j];
    return m->hosts++;
}

static void place(compress_map *m)
{
    m->member = sn_alloc((size_t) m->hosts * (size_t) m->most * sizeof(int));
    for (int i = 0; i < m->hosts * m->most; i++)
        m->member[i] = -1;
    m->natural = m->uniform;
    for (int i = 0; i < m->n; i++) {
        m->member[m->host[i] * m->most + m->local[i]] = i;
        m->natural = m->natural && m->host[i] * m->most + m->local[i] == i;
    }
}

void compress_map_make(compress_map *m, const int *host, int n, int me)
{
    *m = (compress_map){.n = n, .me = me};
    m->host = sn_alloc((size_t) n * sizeof(int));
    m->local = sn_alloc((size_t) n * sizeof(int));
    m->size = sn_alloc((size_t) n * sizeof(int));
    for (int i = 0; i < n; i++) {
        m->host[i] = number_of(m, host, i);
        m->local[i] = m->size[m->host[i]]++;
    }
    m->relays = n;
    for (int h = 0; h < m->hosts; h++) {
        m->most = SN_MAX(m->most, m->size[h]);
        m->relays = SN_MIN(m->relays, m->size[h]);
    }
    m->uniform = m->relays == m->most;
    place(m);
}

void compress_map_free(compress_map *m)
{
    free(m->host);
    free(m->local);
    free(m->size);
    free(m->member);
}

bool compress_map_relay(const compress_map *m)
{
    return m->uniform || m->local[m->me] == 0;
}
