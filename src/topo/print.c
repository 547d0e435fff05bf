/* SPDX-License-Identifier: Apache-2.0
 * A topology for people: hosts (equal neighbours once), cards, and what lies between them. */
#include "topo/model.h"

#include <stdlib.h>
#include <string.h>

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

static bool cards_alike(const sn_topo_card *a, const sn_topo_card *b)
{
    return !strcmp(a->kind, b->kind) && a->share == b->share && a->flops_f32 == b->flops_f32 &&
           a->flops_bf16 == b->flops_bf16 && a->memory_bytes == b->memory_bytes &&
           a->memory_bytes_per_s == b->memory_bytes_per_s && (a->core < 0) == (b->core < 0);
}

static bool hosts_alike(const sn_topo *topo, int a, int b)
{
    const sn_topo_host *x = &topo->host[a], *y = &topo->host[b];
    if (x->cores != y->cores || x->numa_nodes != y->numa_nodes || x->cards != y->cards ||
        x->memory_bytes != y->memory_bytes ||
        memcmp(x->cache_bytes, y->cache_bytes, sizeof x->cache_bytes) != 0)
        return false;
    for (int i = 0; i < x->cards; i++)
        if (!cards_alike(&topo->card[x->first_card + i], &topo->card[y->first_card + i]))
            return false;
    return true;
}

static void span(sn_str *out, const char *first, const char *last)
{
    sn_str_add(out, first);
    if (strcmp(first, last) != 0)
        sn_str_printf(out, " … %s", last);
}

static void known(sn_str *out, const char *label, const char *text, bool so)
{
    if (so)
        sn_str_printf(out, ", %s%s", label, text);
}

static void host_line(const sn_topo *topo, int first, int last, sn_str *out)
{
    const sn_topo_host *h = &topo->host[first];
    char text[32];
    sn_str_add(out, "host ");
    span(out, h->name, topo->host[last].name);
    if (last > first)
        sn_str_printf(out, " (%d alike, each)", last - first + 1);
    sn_str_printf(out, ": %d core%s, %d NUMA node%s", h->cores, plural(h->cores), h->numa_nodes,
                  plural(h->numa_nodes));
    known(out, "", sn_fmt_bytes(text, (double) h->memory_bytes), h->memory_bytes);
    known(out, "L1d ", sn_fmt_bytes(text, (double) h->cache_bytes[0]), h->cache_bytes[0]);
    known(out, "L2 ", sn_fmt_bytes(text, (double) h->cache_bytes[1]), h->cache_bytes[1]);
    known(out, "L3 ", sn_fmt_bytes(text, (double) h->cache_bytes[2]), h->cache_bytes[2]);
    bool shared = false;
    for (int i = first; i <= last; i++)
        shared = shared || topo->host[i].machine != i;
    if (shared)
        sn_str_printf(out, "; emulated on the machine of %s", topo->host[h->machine].name);
    sn_str_add(out, "\n");
}

static void card_cores(const sn_topo_card *card, int n, sn_str *out)
{
    bool up = true;
    if (card->core < 0)
        return;
    for (int i = 0; i < n; i++)
        up = up && card[i].core == card->core + i;
    sn_str_printf(out, ", core%s ", plural(n));
    if (up && n > 1)
        sn_str_printf(out, "%d-%d", card->core, card->core + n - 1);
    else
        for (int i = 0; i < n; i++)
            sn_str_printf(out, "%s%d", i ? "," : "", card[i].core);
}

static void card_lines(const sn_topo *topo, const sn_topo_host *h, sn_str *out)
{
    char text[32];
    int end = h->first_card + h->cards, next;
    for (int c = h->first_card; c < end; c = next) {
        const sn_topo_card *card = &topo->card[c];
        for (next = c + 1; next < end; next++)
            if (!cards_alike(card, &topo->card[next]) ||
                !topo_name_follows(topo->card[next - 1].name, topo->card[next].name))
                break;
        sn_str_printf(out, "  %d × %s: ", next - c, card->kind);
        span(out, sn_topo_local_name(card->name), sn_topo_local_name(topo->card[next - 1].name));
        card_cores(card, next - c, out);
        if (card->share < 1)
            sn_str_printf(out, ", share %.3g", card->share);
        known(out, "f32 ", sn_fmt_count(text, card->flops_f32), card->flops_f32 > 0);
        sn_str_add(out, card->flops_f32 > 0 ? "FLOP/s" : ", peak unknown");
        if (card->flops_bf16 > 0)
            sn_str_printf(out, ", bf16 %sFLOP/s", sn_fmt_count(text, card->flops_bf16));
        known(out, "", sn_fmt_bytes(text, (double) card->memory_bytes), card->memory_bytes);
        known(out, "memory at ", sn_fmt_rate(text, card->memory_bytes_per_s),
              card->memory_bytes_per_s > 0);
        sn_str_add(out, "\n");
    }
}

static void nic_lines(const sn_topo *topo, const int *first_nic, int h, sn_str *out)
{
    char text[32];
    int end = first_nic[h + 1], next;
    for (int i = first_nic[h]; i < end; i = next) {
        const sn_topo_nic *nic = &topo->nic[i];
        for (next = i + 1; next < end; next++)
            if (topo->nic[next].bytes_per_s != nic->bytes_per_s ||
                !topo_name_follows(topo->nic[next - 1].name, topo->nic[next].name))
                break;
        sn_str_printf(out, "  %d × NIC: ", next - i);
        span(out, sn_topo_local_name(nic->name), sn_topo_local_name(topo->nic[next - 1].name));
        sn_str_printf(out, ", %s\n",
                      nic->bytes_per_s > 0 ? sn_fmt_rate(text, nic->bytes_per_s) : "speed unknown");
    }
}

/* What the first card sees of the others, a line a tier. */
typedef struct tier {
    int cards;
    sn_path least, most; /* by latency */
} tier;

enum { TIERS_MAX = SN_PATH_LINKS + 2 };

static void range(sn_str *out, const char *a, const char *b)
{
    sn_str_add(out, a);
    if (strcmp(a, b) != 0)
        sn_str_printf(out, " … %s", b);
}

static void tier_line(const tier *t, int number, sn_str *out)
{
    char a[32], b[32];
    if (number == 1)
        sn_str_add(out, "  same host");
    else
        sn_str_printf(out, "  %d hop%s away", number - 1, plural(number - 1));
    sn_str_printf(out, ": %d card%s, ", t->cards, plural(t->cards));
    range(out, sn_fmt_ns(a, t->least.latency_ns), sn_fmt_ns(b, t->most.latency_ns));
    sn_str_add(out, ", ");
    double low = SN_MIN(t->least.bytes_per_s, t->most.bytes_per_s);
    double high = SN_MAX(t->least.bytes_per_s, t->most.bytes_per_s);
    range(out, sn_fmt_rate(a, low), sn_fmt_rate(b, high));
    sn_str_add(out, "\n");
}

static void tier_lines(const sn_topo *topo, sn_str *out)
{
    tier tiers[TIERS_MAX] = {0};
    int apart = 0;
    for (int c = 1; c < topo->cards; c++) {
        sn_path path;
        if (sn_topo_path(topo, 0, c, &path) != SN_OK) {
            apart++;
            continue;
        }
        tier *t = &tiers[SN_MIN(path.tier, TIERS_MAX - 1)];
        if (!t->cards || path.latency_ns < t->least.latency_ns)
            t->least = path;
        if (!t->cards || path.latency_ns > t->most.latency_ns)
            t->most = path;
        t->cards++;
    }
    if (topo->cards > 1)
        sn_str_printf(out, "seen from %s\n", topo->card[0].name);
    for (int i = 1; i < TIERS_MAX; i++)
        if (tiers[i].cards)
            tier_line(&tiers[i], i, out);
    if (apart)
        sn_str_printf(out, "  not connected: %d card%s\n", apart, plural(apart));
}

/* NICs are listed by host in what parse and probe make; elsewhere a host shows what it has first.
 */
static int *nics_by_host(const sn_topo *topo)
{
    int *first = sn_alloc(((size_t) topo->hosts + 1) * sizeof *first), i = 0;
    for (int h = 0; h < topo->hosts; h++) {
        first[h] = i;
        while (i < topo->nics && topo->nic[i].host <= h)
            i++;
    }
    first[topo->hosts] = i;
    return first;
}

void sn_topo_print(const sn_topo *topo, sn_str *out)
{
    int next, *first_nic = nics_by_host(topo);
    sn_str_printf(out, "%s: %d host%s, %d card%s, %d NIC%s, %d switch%s, %d link%s\n", topo->name,
                  topo->hosts, plural(topo->hosts), topo->cards, plural(topo->cards), topo->nics,
                  plural(topo->nics), topo->switches, topo->switches == 1 ? "" : "es", topo->links,
                  plural(topo->links));
    for (int h = 0; h < topo->hosts; h = next) {
        for (next = h + 1; next < topo->hosts && hosts_alike(topo, h, next); next++)
            ;
        host_line(topo, h, next - 1, out);
        card_lines(topo, &topo->host[h], out);
        nic_lines(topo, first_nic, h, out);
    }
    tier_lines(topo, out);
    free(first_nic);
}
