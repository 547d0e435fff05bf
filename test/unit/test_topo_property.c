/* SPDX-License-Identifier: Apache-2.0
 * Random topologies against a naive model of routes, and random texts against the parser. */
#include "topo/topo.h"
#include "unit/sn_test.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>

enum { SEEDS = 150, VERTICES = 96 };

static double some(sn_prng *r) /* few values, so that ties are common; all exact in binary */
{
    return (double) (1 + sn_prng_below(r, 4)) * 125;
}

static void link_up(sn_topo *t, sn_prng *r, int a, int b)
{
    static const char *const kinds[] = {"pcie", "nvlink", "tcp"};
    for (int i = 0; i < t->links; i++)
        if ((t->link[i].a == a && t->link[i].b == b) || (t->link[i].a == b && t->link[i].b == a))
            return;
    if (a != b)
        sn_topo_add_link(t, a, b, some(r), some(r) * 1e6, kinds[sn_prng_below(r, 3)],
                         sn_prng_below(r, 2));
}

static void add_cards(sn_topo *t, sn_prng *r, int h)
{
    for (int64_t n = sn_prng_below(r, 4); n > 0; n--) {
        bool cpu = sn_prng_below(r, 2);
        sn_topo_card like = {.name = sn_prng_below(r, 5) ? NULL : "odd",
                             .kind = cpu ? "cpu" : "gpu",
                             .core = cpu ? (int) sn_prng_below(r, 4) : -1,
                             .numa_node = (int) sn_prng_below(r, 3) - 1,
                             .share = 1 - 0.3 * (double) sn_prng_below(r, 3),
                             .flops_f32 = some(r) * 1e9 + sn_prng_uniform(r),
                             .flops_bf16 = sn_prng_below(r, 2) ? 0 : 3e12,
                             .memory_bytes = (uint64_t) sn_prng_below(r, 1 << 30),
                             .memory_bytes_per_s = 2e9};
        if (like.name && t->host[h].cards)
            like.name = NULL;
        int c = sn_topo_add_card(t, h, &like);
        link_up(t, r, t->card[c].vertex, t->host[h].vertex);
    }
}

static sn_topo *random_topo(sn_prng *r)
{
    sn_topo *t = sn_topo_create("random");
    char name[32];
    int64_t hosts = 1 + sn_prng_below(r, 6), switches = sn_prng_below(r, 5);
    for (int h = 0; h < hosts; h++) {
        snprintf(name, sizeof name, sn_prng_below(r, 4) ? "h%d" : "node-%d", h);
        sn_topo_add_host(t, name, (int) sn_prng_below(r, 9), (uint64_t) sn_prng_below(r, 1 << 20));
        t->host[h].numa_nodes = (int) sn_prng_below(r, 3);
        t->host[h].cache_bytes[sn_prng_below(r, 3)] = 4096;
        if (h && !sn_prng_below(r, 4))
            t->host[h].machine = t->host[h - 1].machine;
        add_cards(t, r, h);
        for (int64_t n = sn_prng_below(r, 3); n > 0; n--) {
            snprintf(name, sizeof name, sn_prng_below(r, 3) ? "nic%d" : "eth%d", (int) n);
            int nic = sn_topo_add_nic(t, h, name, (double) sn_prng_below(r, 3) * 1e9);
            if (sn_prng_below(r, 3))
                link_up(t, r, t->nic[nic].vertex, t->host[h].vertex);
        }
        if (!sn_prng_below(r, 3))
            sn_topo_add_host_switch(t, h, "sw");
    }
    for (int s = 0; s < switches; s++) {
        snprintf(name, sizeof name, "s%d", s);
        sn_topo_add_switch(t, name);
    }
    for (int64_t n = sn_prng_below(r, 3 * t->vertices); n > 0; n--)
        link_up(t, r, (int) sn_prng_below(r, t->vertices), (int) sn_prng_below(r, t->vertices));
    return t;
}

/* Floyd and Warshall on (latency, links): the naive model. */
static void all_pairs(const sn_topo *t, double (*best)[VERTICES])
{
    for (int a = 0; a < t->vertices; a++)
        for (int b = 0; b < t->vertices; b++)
            best[a][b] = a == b ? 0 : HUGE_VAL;
    for (int i = 0; i < t->links; i++) {
        const sn_topo_link *l = &t->link[i];
        best[l->a][l->b] = best[l->b][l->a] = l->latency_ns;
    }
    for (int k = 0; k < t->vertices; k++)
        for (int a = 0; a < t->vertices; a++)
            for (int b = 0; b < t->vertices; b++)
                best[a][b] = fmin(best[a][b], best[a][k] + best[k][b]);
}

/* The links of a path lead from a to b and add up to what it says. */
static void check_chain(const sn_topo *t, int a, int b, const sn_path *p)
{
    int v = t->card[a].vertex;
    double latency = 0, narrow = HUGE_VAL;
    for (int i = 0; i < p->links; i++) {
        const sn_topo_link *l = &t->link[p->link[i]];
        assert_true(l->a == v || l->b == v);
        v = l->a == v ? l->b : l->a;
        latency += l->latency_ns;
        narrow = fmin(narrow, l->bytes_per_s);
    }
    assert_int_equal(v, t->card[b].vertex);
    assert_true(p->latency_ns == latency && p->bytes_per_s == narrow);
    bool same_host = t->card[a].host == t->card[b].host;
    assert_true(a == b ? p->tier == 0 : same_host ? p->tier == 1 : p->tier >= 2);
}

static void check_routes(const sn_topo *t)
{
    static double best[VERTICES][VERTICES];
    all_pairs(t, best);
    for (int a = 0; a < t->cards; a++)
        for (int b = 0; b < t->cards; b++) {
            double want = best[t->card[a].vertex][t->card[b].vertex];
            sn_path p, back;
            if (isinf(want)) {
                assert_int_equal(sn_topo_path(t, a, b, &p), SN_ENOTFOUND);
                assert_int_equal(sn_topo_tier(t, a, b), -1);
                continue;
            }
            assert_ok(sn_topo_path(t, a, b, &p));
            assert_true(p.latency_ns == want);
            check_chain(t, a, b, &p);
            assert_ok(sn_topo_path(t, b, a, &back));
            assert_true(p.links == back.links && p.tier == back.tier);
            assert_true(p.latency_ns == back.latency_ns && p.bytes_per_s == back.bytes_per_s);
            for (int i = 0; i < p.links; i++)
                assert_int_equal(p.link[i], back.link[p.links - 1 - i]);
        }
}

static void check_yaml(const sn_topo *t)
{
    sn_str text = {0}, again = {0};
    sn_topo *back = NULL;
    sn_topo_yaml(t, &text);
    if (sn_topo_parse(text.data, text.len, "round-trip", &back) != SN_OK)
        fail_msg("%s in\n%s", sn_errmsg(), text.data);
    sn_topo_check(back);
    if (!sn_topo_equal(t, back))
        fail_msg("not equal:\n%s", text.data);
    sn_topo_yaml(back, &again);
    sn_str_done(&text);
    sn_str_done(&again);
    sn_topo_free(back);
}

static void test_random(void **state)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        *state = (void *) (uintptr_t) seed; /* said when the test ends early */
        sn_prng r = {.seed = seed};
        sn_topo *t = random_topo(&r);
        sn_topo_check(t);
        check_routes(t);
        check_yaml(t);
        sn_topo_free(t);
    }
    *state = NULL;
}

static int say_seed(void **state)
{
    if (*state)
        print_error("seed %lu\n", (unsigned long) (uintptr_t) *state);
    return 0;
}

/* Equality sees every single change. */
static void test_differs(void **state)
{
    sn_prng r = {.seed = 42};
    sn_topo *a, *b;
    do
        a = random_topo(&r);
    while (a->cards < 2 || a->nics < 1 || a->switches < 1);
    uint64_t from = r.next;
    assert_true(sn_topo_equal(a, a));
    for (int change = 0; change < 7; change++) {
        sn_str text = {0};
        sn_topo_yaml(a, &text);
        assert_ok(sn_topo_parse(text.data, text.len, "copy", &b));
        assert_true(sn_topo_equal(a, b));
        switch (change) {
        case 0:
            b->host[0].memory_bytes++;
            break;
        case 1:
            b->card[1].flops_f32 += 1;
            break;
        case 2:
            b->nic[0].bytes_per_s += 1;
            break;
        case 3:
            b->link[b->links - 1].latency_ns += 1;
            break;
        case 4:
            b->link[0].measured = !b->link[0].measured;
            break;
        case 5:
            sn_topo_add_switch(b, "more");
            break;
        default:
            b->card[0].share /= 2;
        }
        assert_false(sn_topo_equal(a, b));
        sn_topo_free(b);
        sn_str_done(&text);
    }
    sn_topo_free(a);
    assert_true(from > 0);
}

/* Whatever is read must be whole, and must be read again from its own text. */
static void feed(const char *text, size_t bytes)
{
    sn_topo *t = NULL;
    if (sn_topo_parse(text, bytes, "fed", &t) != SN_OK)
        return;
    sn_topo_check(t);
    if (t->vertices < 5000)
        check_yaml(t);
    sn_topo_free(t);
}

static void mutate(sn_prng *r, sn_str *s)
{
    static const char spice[] = "{}[],:-*&#'\"\n 0123456789abc/.<|>\t\xff";
    for (int64_t n = 1 + sn_prng_below(r, 4); n > 0 && s->len > 2; n--) {
        size_t at = (size_t) sn_prng_below(r, (int64_t) s->len - 1);
        switch (sn_prng_below(r, 4)) {
        case 0:
            s->data[at] = spice[sn_prng_below(r, sizeof spice - 1)];
            break;
        case 1: { /* cut out */
            size_t cut = (size_t) sn_prng_below(r, 20);
            cut = SN_MIN(cut, s->len - at);
            memmove(s->data + at, s->data + at + cut, s->len - at - cut);
            s->len -= cut;
            s->data[s->len] = 0;
            break;
        }
        case 2: /* swap two bytes */
            s->data[at] ^= s->data[at + 1];
            s->data[at + 1] ^= s->data[at];
            s->data[at] ^= s->data[at + 1];
            break;
        default: { /* repeat a piece at the end */
            char piece[64];
            size_t take = (size_t) sn_prng_below(r, 60);
            take = SN_MIN(take, s->len - at);
            memcpy(piece, s->data + at, take);
            sn_str_add_n(s, piece, take);
        }
        }
    }
}

/* The directory of this file's test tree, however the build was set up. */
static const char *tree(char out[4096], const char *below)
{
    snprintf(out, 4096, "%s", __FILE__);
    char *end = strstr(out, "unit/test_topo_property.c");
    snprintf(end, (size_t) (out + 4096 - end), "%s", below);
    return out;
}

static void test_corpus(void **state)
{
    char path[4096], file[8192];
    int files = 0;
    DIR *dir = opendir(tree(path, "fuzz/corpus/topo"));
    if (!dir)
        fail_msg("no corpus at %s: run this from the build directory", path);
    for (struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        FILE *f = fopen(file, "r");
        assert_non_null(f);
        static char data[1 << 16];
        size_t n = fread(data, 1, sizeof data, f);
        fclose(f);
        files++;
        feed(data, n);
        for (uint64_t seed = 0; seed < 150; seed++) {
            sn_prng r = {.seed = seed};
            sn_str s = {0};
            sn_str_add_n(&s, data, n);
            mutate(&r, &s);
            feed(sn_str_get(&s), s.len);
            sn_str_done(&s);
        }
    }
    closedir(dir);
    assert_true(files >= 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(test_random, say_seed),
                                       cmocka_unit_test(test_differs),
                                       cmocka_unit_test(test_corpus)};
    return sn_test_run(tests);
}
