/* SPDX-License-Identifier: Apache-2.0
 * The model, cost and text forms of topo, and cluster files good and bad. */
#include "topo/field.h"
#include "topo/names.h"
#include "topo/topo.h"
#include "unit/sn_test.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

static sn_topo *parse(const char *text)
{
    sn_topo *topo = NULL;
    assert_ok(sn_topo_parse(text, strlen(text), "t.yaml", &topo));
    sn_topo_check(topo);
    return topo;
}

/* A head that most texts below share: lines 1 to 3. */
#define KINDS                                                                                      \
    "kinds:\n"                                                                                     \
    "  cpu: {flops_f32: 1TFLOP/s, flops_bf16: 2TFLOP/s, memory: 4GiB, memory_bandwidth: 10GB/s}\n" \
    "  gpu: {flops_f32: 8TFLOP/s, flops_bf16: unknown, memory: 80GB, memory_bandwidth: 3TB/s}\n"
#define CABLE "latency: 1us, bandwidth: 10GB/s"
#define CARDS "cards: {kind: cpu, count: 2, core: 0, link: {" CABLE "}}"
#define HOSTS                                                                                      \
    KINDS "hosts: {name: h, count: 4, " CARDS ", nics: {name: n, bandwidth: 1GB/s, "               \
          "link: {" CABLE "}}}\n"

static void test_build(void **state)
{
    sn_topo *t = sn_topo_create("two words/slash");
    assert_string_equal(t->name, "two_words_slash");
    sn_topo_card like = {.kind = "cpu", .core = 3, .numa_node = -1, .share = 0.5};
    int h = sn_topo_add_host(t, "a b", 8, 1 << 20);
    assert_string_equal(t->host[h].name, "a_b");
    int c = sn_topo_add_card(t, h, &like);
    assert_string_equal(t->card[c].name, "a_b/c0");
    like.name = "other/gpu9";
    int d = sn_topo_add_card(t, h, &like);
    assert_string_equal(t->card[d].name, "a_b/gpu9");
    sn_topo_add_link(t, t->card[c].vertex, t->host[h].vertex, 100, 1e9, "shm", true);
    sn_topo_add_link(t, t->card[d].vertex, t->host[h].vertex, 50, 2e9, "shm", true);
    sn_topo_check(t);
    sn_path p;
    assert_ok(sn_topo_path(t, c, d, &p));
    assert_true(p.latency_ns == 150 && p.bytes_per_s == 1e9 && p.links == 2 && p.tier == 1);
    assert_true(sn_topo_transfer_ns(&p, 1000, 2) == 150 + 2000);
    t->link[0].latency_ns = 10;
    sn_topo_changed(t);
    assert_ok(sn_topo_path(t, d, c, &p));
    assert_true(p.latency_ns == 60);
    assert_ok(sn_topo_path(t, c, c, &p));
    assert_true(p.tier == 0 && p.links == 0 && sn_topo_transfer_ns(&p, 1e9, 1) == 0);
    sn_topo_free(t);
    sn_topo_free(NULL);
}

static void test_apart(void **state)
{
    sn_topo *t = parse(KINDS "hosts: {name: h, count: 2, " CARDS "}");
    sn_path p = {.tier = 77};
    assert_int_equal(sn_topo_path(t, 0, 3, &p), SN_ENOTFOUND);
    assert_int_equal(p.tier, 77);
    assert_non_null(strstr(sn_errmsg(), "h0/c0"));
    assert_non_null(strstr(sn_errmsg(), "h1/c1"));
    assert_int_equal(sn_topo_tier(t, 3, 0), -1);
    assert_int_equal(sn_topo_tier(t, 0, 1), 1);
    sn_topo_free(t);
}

static void test_compute(void **state)
{
    sn_topo *t = parse(KINDS "hosts:\n"
                             "  - {name: a, machine: m, " CARDS "}\n"
                             "  - {name: b, machine: m, " CARDS "}\n"
                             "  - {name: c, cards: {kind: gpu, share: 0.25, link: {" CABLE "}}}\n");
    assert_true(sn_topo_compute_ns(t, 0, 1e9, 0, SN_F32, 1) == 1e6);
    assert_true(sn_topo_compute_ns(t, 0, 1e9, 0, SN_BF16, 1) == 5e5);
    assert_true(sn_topo_compute_ns(t, 0, 1e9, 0, SN_F64, 1) == 2e6);
    assert_true(sn_topo_compute_ns(t, 0, 1e9, 1e9, SN_F32, 1) == 1e8); /* memory bound */
    assert_true(sn_topo_compute_ns(t, 0, 1e9, 0, SN_F32, 4) == 4e6);
    assert_true(sn_topo_compute_ns(t, 4, 8e9, 0, SN_BF16, 1) == 4e6); /* a quarter, f32's peak */
    assert_int_equal(sn_topo_sharers(t, 0, 5), 2); /* a/c0 and b/c0 are one core */
    assert_int_equal(sn_topo_sharers(t, 0, 2), 1);
    assert_int_equal(sn_topo_sharers(t, 3, 5), 2);
    assert_int_equal(sn_topo_sharers(t, 4, 5), 1);
    sn_topo_free(t);
    t = parse("kinds: {x: {flops_f32: unknown, flops_bf16: unknown, memory: unknown, "
              "memory_bandwidth: unknown}}\nhosts: {name: h, cards: {kind: x, link: {" CABLE "}}}");
    assert_true(isinf(sn_topo_compute_ns(t, 0, 1, 0, SN_F32, 1)));
    assert_true(sn_topo_compute_ns(t, 0, 0, 0, SN_F32, 1) == 0);
    sn_topo_free(t);
}

static void test_emulate(void **state)
{
    sn_topo *base = parse(KINDS "hosts: {name: m, cores: 2, memory: 16GiB, " CARDS "}"), *t;
    assert_ok(sn_topo_emulate(base, 2, 4, 8000, 1e9, &t));
    sn_topo_check(t);
    assert_int_equal(t->hosts, 2);
    assert_int_equal(t->cards, 8);
    for (int c = 0; c < 8; c++) {
        assert_int_equal(t->card[c].core, c % 2);
        assert_true(t->card[c].share == 0.25);
        assert_int_equal(t->card[c].memory_bytes, UINT64_C(2) << 30);
        assert_int_equal(sn_topo_sharers(t, c, 8), 4);
        assert_int_equal(sn_topo_sharers(t, c, 2), 1);
    }
    sn_path in, across;
    assert_ok(sn_topo_path(t, 0, 3, &in));
    assert_ok(sn_topo_path(t, 0, 7, &across));
    assert_int_equal(in.tier, 1);
    assert_int_equal(across.tier, 2);
    assert_true(across.latency_ns == in.latency_ns + 8000 && across.bytes_per_s == 1e9);
    sn_topo *whole;
    assert_ok(sn_topo_emulate(base, 1, 1, 8000, 1e9, &whole));
    assert_true(whole->card[0].share == 1);
    sn_topo_free(whole);
    assert_int_equal(sn_topo_emulate(t, 2, 2, 8000, 1e9, &whole), SN_EINVAL); /* two hosts */
    assert_int_equal(sn_topo_emulate(base, 0, 2, 8000, 1e9, &whole), SN_EINVAL);
    assert_int_equal(sn_topo_emulate(base, 1 << 20, 1 << 20, 8000, 1e9, &whole), SN_EINVAL);
    assert_int_equal(sn_topo_emulate(base, 1, 1, 0, 1e9, &whole), SN_EINVAL);
    sn_topo_free(t);
    sn_topo_free(base);
}

static int degree(const sn_topo *t, const char *name)
{
    int n = 0;
    for (int i = 0; i < t->links; i++)
        n += !strcmp(sn_topo_vertex_name(t, t->link[i].a), name) ||
             !strcmp(sn_topo_vertex_name(t, t->link[i].b), name);
    return n;
}

static void test_patterns(void **state)
{
    static const struct {
        const char *pattern, *name;
        bool match;
    } rows[] = {{"h*", "h12", true},
                {"h*", "h1/c0", false},
                {"h*/c*", "h1/c0", true},
                {"h[0-3]", "h3", true},
                {"h[0-3]", "h4", false},
                {"h[0-3]", "h03", false},
                {"h[2]", "h2", true},
                {"h[2]x*y", "h2xaby", true},
                {"h[2]x*y", "h2xab", false},
                {"*", "", true},
                {"*a*b", "xaxaxb", true},
                {"*a*b", "xaxax", false},
                {"h[0-", "h0", false},
                {"h[x]", "hx", false},
                {"*[1-9]", "abc7", true},
                {"*/ib[0-1]", "h0/ib1", true},
                {"", "", true},
                {"", "a", false}};
    for (size_t i = 0; i < SN_COUNT(rows); i++)
        if (topo_pattern_match(rows[i].pattern, rows[i].name) != rows[i].match)
            fail_msg("%s on %s", rows[i].pattern, rows[i].name);
}

static void test_wiring(void **state)
{
    static const struct {
        const char *lines;
        int links;      /* besides those to hosts */
        const char *of; /* this vertex … */
        int degree;     /* … has so many links */
    } rows[] = {
        {"switches: {name: s}\nlinks: {from: 'h*/n', to: s, " CABLE "}", 4, "s", 4},
        {"switches: {name: s, count: 4}\nlinks: {from: 'h*/n', to: 's*', " CABLE "}", 4, "s3", 1},
        {"switches: {name: s, count: 2}\nlinks: {from: 'h*/n', to: 's*', pattern: block, " CABLE
         "}",
         4, "s1", 2},
        {"switches: {name: s, count: 2}\nlinks: {from: 'h*/n', to: 's*', pattern: cycle, " CABLE
         "}",
         4, "s0", 2},
        {"switches: {name: s, count: 3}\nlinks: {from: 'h*/n', to: 's*', pattern: all, " CABLE "}",
         12, "h0/n", 4},
        {"links: {among: 'h*/n', pattern: full, " CABLE "}", 6, "h0/n", 4},
        {"links: {among: 'h*/n', pattern: ring, " CABLE "}", 4, "h3/n", 3},
        {"links: {among: 'h*/n', pattern: grid, size: [2, 2], " CABLE "}", 4, "h3/n", 3},
        {"switches: {name: s, count: 27}\n"
         "links: {among: 's*', pattern: torus, size: [3, 3, 3], " CABLE "}",
         81, "s13", 6},
        {"switches: {name: s, count: 12}\n"
         "links: {among: 's*', pattern: torus, size: [2, 6], " CABLE "}",
         6 + 12, "s0", 3},
        {"switches: [{name: s, first: 5, count: 2}]\n"
         "links: [{among: [s5, s6], " CABLE "}, {from: 'h[1-2]/n', to: s5, " CABLE "}]",
         3, "s5", 3},
    };
    for (size_t i = 0; i < SN_COUNT(rows); i++) {
        char text[2048];
        snprintf(text, sizeof text, "%s%s", HOSTS, rows[i].lines);
        sn_topo *t = parse(text);
        assert_int_equal(t->links - t->cards - t->nics, rows[i].links);
        assert_int_equal(degree(t, rows[i].of), rows[i].degree);
        sn_topo_free(t);
    }
}

/* Links inside a host are the same in each of its copies, and cards reach each other through them.
 */
static void test_inside(void **state)
{
    sn_topo *t = parse(
        KINDS
        "hosts:\n"
        "  - name: h\n"
        "    count: 3\n"
        "    cards: {kind: gpu, count: 4, link: {latency: 9us, bandwidth: 1GB/s}}\n"
        "    nics: {count: 4, bandwidth: 50GB/s}\n"
        "    switches: [{name: nv}, {name: pcie, count: 2}]\n"
        "    links:\n"
        "      - {from: 'c*', to: nv, kind: nvlink, latency: 500ns, bandwidth: 400GB/s}\n"
        "      - {from: 'c*', to: 'nic*', latency: 300ns, bandwidth: 50GB/s}\n"
        "      - {from: 'nic*', to: 'pcie*', pattern: block, latency: 5us, bandwidth: 1GB/s}\n"
        "      - {from: 'pcie*', to: ., latency: 5us, bandwidth: 1GB/s}\n"
        "switches: {name: rail, count: 4}\n"
        "links: {from: 'h*/nic*', to: 'rail*', pattern: cycle, latency: 700ns, "
        "bandwidth: 50GB/s}\n");
    assert_int_equal(t->links, 3 * (4 + 4 + 4 + 4 + 2) + 12);
    for (int h = 0; h < 3; h++) {
        sn_path p;
        assert_ok(sn_topo_path(t, 4 * h, 4 * h + 3, &p));
        assert_true(p.links == 2 && p.latency_ns == 1000 && p.bytes_per_s == 400e9 && p.tier == 1);
        assert_ok(sn_topo_path(t, 4 * h, (4 * h + 4) % 12, &p));
        assert_true(p.links == 4 && p.latency_ns == 2000 && p.bytes_per_s == 50e9 && p.tier == 2);
        assert_ok(sn_topo_path(t, 4 * h, (4 * h + 5) % 12, &p)); /* over to the other rail first */
        assert_true(p.links == 6 && p.latency_ns == 3000 && p.tier == 2);
    }
    sn_topo_free(t);
}

/* Equal spines are chosen by hash: all of them carry somebody. */
static void test_spread(void **state)
{
    sn_topo *t = parse(KINDS "hosts: {name: h, count: 64, cards: {kind: cpu, core: 0, link: {" CABLE
                             "}}, nics: {name: n, bandwidth: 1GB/s, link: {" CABLE "}}}\n"
                             "switches: [{name: leaf, count: 8}, {name: spine, count: 4}]\n"
                             "links:\n"
                             " - {from: 'h*/n', to: 'leaf*', pattern: block, " CABLE "}\n"
                             " - {from: 'leaf*', to: 'spine*', pattern: all, " CABLE "}\n");
    int used[4] = {0};
    for (int a = 0; a < 8; a++)
        for (int b = 56; b < 64; b++) {
            sn_path p;
            assert_ok(sn_topo_path(t, a, b, &p));
            assert_int_equal(p.tier, 4);
            for (int i = 0; i < p.links; i++)
                for (int s = 0; s < 4; s++)
                    used[s] += t->link[p.link[i]].b == t->sw[8 + s].vertex;
        }
    for (int s = 0; s < 4; s++)
        assert_true(used[s] > 0);
    sn_topo_free(t);
}

static void test_bad(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "t.yaml:1: empty"},
        {"- a\n", "must be a mapping"},
        {"name: x\n", "needs the key `hosts`"},
        {"hosts: []\n", "at least one host"},
        {KINDS "hots: {}\n", "t.yaml:4: a cluster file has no key `hots`; did you mean `hosts`?"},
        {KINDS "hosts:\n - name: h\n   coers: 3\n", "t.yaml:6: a host has no key `coers`; did you "
                                                    "mean `cores`?"},
        {KINDS "hosts: {name: h, memory: 16}\n", "`memory` is `16` without a unit"},
        {KINDS "hosts: {name: h, memory: 16us}\n", "`us` is not a unit for it"},
        {KINDS "hosts: {name: h, memory: -16GiB}\n", "must be above 0"},
        {KINDS "hosts: {name: h, cores: 1.5}\n", "a whole number from 0"},
        {KINDS "hosts: {name: h, cards: {kind: cpu}}\n", "needs the key `link`"},
        {KINDS "hosts: {name: h, cards: {kind: cpx, link: {" CABLE "}}}\n", "did you mean `cpu`?"},
        {KINDS "hosts: {name: h, cards: {kind: cpu, link: {latency: 1us, bandwidth: -1GB/s}}}\n",
         "t.yaml:4: `bandwidth` is `-1GB/s`: it must be above 0"},
        {KINDS "hosts: {name: h, cards: {kind: cpu, link: {latency: 1us, bandwidth: 1Gb/s}}}\n",
         "`Gb/s` is not a unit"},
        {KINDS "hosts: {name: h, cards: {kind: cpu, link: {latency: 1, bandwidth: 1GB/s}}}\n",
         "`latency` is `1` without a unit: write it like 5us"},
        {KINDS "hosts: {name: h, cards: {kind: cpu, link: {latency: 0ns, bandwidth: 1GB/s}}}\n",
         "must be above 0"},
        {KINDS "hosts: {name: h, cards: {kind: cpu, share: 1.5, link: {" CABLE "}}}\n", "`share`"},
        {KINDS "hosts: [{name: h0}, {name: h, count: 2}]\n", "h0 is named twice"},
        {KINDS "hosts: {name: h, nics: [{name: n, bandwidth: 1GB/s}, {name: n, bandwidth: 1GB/s}]}",
         "h/n is named twice"},
        {KINDS "hosts: {name: h, count: 2}\nswitches: {name: h1}\n", "h1 is named twice"},
        {KINDS "hosts: {name: h/1}\n", "make a name"},
        {KINDS "hosts: {name: h, count: 99999999}\n", "from 1 to 4194304"},
        {KINDS "hosts: {name: h, count: 4000000, cards: {kind: cpu, count: 8, link: {" CABLE
               "}}}\n",
         "more than 4194304 hosts, cards"},
        {HOSTS "links: {from: h0/n, to: h0/n, " CABLE "}\n", "linked to itself"},
        {HOSTS "links: {from: h0/n, to: h1/m, " CABLE "}\n",
         "nothing is named `h1/m`; did you mean"},
        {HOSTS "links: {from: h0/n, " CABLE "}\n", "`from` and `to`"},
        {HOSTS "links: {from: h0/n, to: h1/n, latency: 1us}\n", "needs the key `bandwidth`"},
        {HOSTS "links:\n - {from: h0/n, to: h1/n, " CABLE "}\n - {from: h1/n, to: h0/n, " CABLE
               "}\n",
         "t.yaml:7: h1/n and h0/n are linked already"},
        {HOSTS "links: {from: 'h[0-2]/n', to: 'h[1-2]/n', " CABLE "}\n", "say how with `pattern:"},
        {HOSTS "links: {from: 'h*/n', to: h, pattern: rnig, " CABLE "}\n", "nothing is named `h`"},
        {HOSTS "links: {among: 'h*/n', pattern: rnig, " CABLE "}\n", "did you mean `ring`?"},
        {HOSTS "links: {among: 'h*/n', pattern: block, " CABLE "}\n", "needs `from` and `to`"},
        {HOSTS "links: {among: 'h*/n', pattern: torus, size: [2, 3], " CABLE "}\n", "`size`"},
        {HOSTS "switches: {name: s, count: 3}\nlinks:\n"
               " - {from: s0, to: s1, " CABLE "}\n - {from: s1, to: s2, " CABLE "}\n"
               " - {from: s2, to: s0, " CABLE "}\n",
         "a loop of switches"},
        {"a: 1\n---\nb: 2\n", "second document"},
        {"a: 1\na: 2\n", "there twice"},
        {"a: *b\n", "alias"},
        {"a: &b [*b]\n", "alias"},
        {"a: [1\n", "not YAML"},
        {"\xff\xfe\xff", "not YAML"},
        {"hosts: \xe9\n", "t.yaml:1: not YAML"},
    };
    for (size_t i = 0; i < SN_COUNT(rows); i++) {
        sn_topo *t = NULL;
        sn_status status = sn_topo_parse(rows[i].text, strlen(rows[i].text), "t.yaml", &t);
        if (status != SN_EINVAL || !strstr(sn_errmsg(), rows[i].says) || t)
            fail_msg("row %zu: %d %s", i, status, sn_errmsg());
    }
}

/* Texts meant to take for ever. */
static void test_hostile(void **state)
{
    sn_topo *t = NULL;
    sn_str s = {0};
    for (int i = 0; i < 100000; i++)
        sn_str_add(&s, "[");
    assert_int_equal(sn_topo_parse(s.data, s.len, "deep", &t), SN_EINVAL);
    sn_str_clear(&s);
    sn_str_add(&s, "a0: &a0 [x, x]\n");
    for (int i = 1; i < 200; i++)
        sn_str_printf(&s, "a%d: &a%d [*a%d, *a%d, *a%d]\n", i, i, i - 1, i - 1, i - 1);
    sn_str_add(&s, "hosts: *a199\n");
    assert_int_equal(sn_topo_parse(s.data, s.len, "bomb", &t), SN_EINVAL);
    sn_str_clear(&s); /* many aliases of a host of many aliases of cards */
    sn_str_add(&s, KINDS "hosts:\n - name: h\n   cards: [");
    for (int i = 0; i < 20000; i++)
        sn_str_add(&s, i ? ", *c" : "&c {kind: cpu, count: 4000, link: {" CABLE "}}");
    sn_str_add(&s, "]\n");
    assert_int_equal(sn_topo_parse(s.data, s.len, "many", &t), SN_EINVAL);
    sn_str_clear(&s); /* patterns over everything, again and again */
    sn_str_add(&s, KINDS "hosts: {name: h, count: 100000}\nlinks:\n");
    for (int i = 0; i < 5000; i++)
        sn_str_add(&s, " - {from: '*1*2*3*4*5*6', to: '*9*9*9*9*9*9', pattern: all, " CABLE "}\n");
    assert_int_equal(sn_topo_parse(s.data, s.len, "patterns", &t), SN_EINVAL);
    sn_str_done(&s);
}

static void test_quantities(void **state)
{
    sn_prng r = {.seed = 7};
    for (int i = 0; i < 3000; i++) {
        topo_unit unit = (topo_unit) sn_prng_below(&r, 4);
        double v = exp(sn_prng_uniform(&r) * 18), back = 0; /* 1 … 6e7 */
        if (i % 3 == 0)
            v = floor(v);
        sn_str s = {0};
        topo_quantity_add(&s, unit, v);
        sn_yaml_doc doc = {.file = "q"};
        sn_yaml_node node = {.kind = SN_YAML_SCALAR, .text = sn_str_get(&s)};
        assert_ok(topo_quantity(&doc, &node, "q", unit, false, &back));
        assert_true(back == v);
        sn_str_done(&s);
    }
    sn_str s = {0};
    topo_quantity_add(&s, TOPO_RATE, 25e9);
    topo_quantity_add(&s, TOPO_TIME, 1500);
    topo_quantity_add(&s, TOPO_BYTES, 0x1p36);
    assert_string_equal(sn_str_get(&s), "25GB/s1.5us64GiB");
    sn_str_done(&s);
}

static void test_text(void **state)
{
    sn_topo *t = parse(HOSTS "switches: {name: s}\nlinks: {from: 'h*/n', to: s, " CABLE "}");
    sn_str out = {0};
    sn_topo_json(t, &out);
    json_t *json = json_loads(sn_str_get(&out), 0, NULL);
    assert_non_null(json);
    assert_int_equal(json_array_size(json_object_get(json, "cards")), 8);
    assert_int_equal(json_array_size(json_object_get(json, "links")), t->links);
    json_t *card = json_array_get(json_object_get(json, "cards"), 3);
    assert_string_equal(json_string_value(json_object_get(card, "name")), "h1/c1");
    json_decref(json);
    sn_str_clear(&out);
    sn_topo_dot(t, &out);
    int open = 0, lines = 0;
    for (const char *c = out.data; *c; c++) {
        open += *c == '{' ? 1 : *c == '}' ? -1 : 0;
        lines += !strncmp(c, " -- ", 4);
    }
    assert_int_equal(open, 0);
    assert_int_equal(lines, t->links);
    sn_str_clear(&out);
    sn_topo_print(t, &out);
    assert_non_null(strstr(out.data, "host h0 … h3 (4 alike, each)"));
    assert_non_null(strstr(out.data, "same host: 1 card, 2.00 us, 10.0 GB/s"));
    assert_non_null(strstr(out.data, "1 hop away: 6 cards, 6.00 us, 10.0 GB/s"));
    sn_str_done(&out);
    sn_topo_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_build),      cmocka_unit_test(test_apart),
        cmocka_unit_test(test_compute),    cmocka_unit_test(test_emulate),
        cmocka_unit_test(test_patterns),   cmocka_unit_test(test_wiring),
        cmocka_unit_test(test_inside),     cmocka_unit_test(test_spread),
        cmocka_unit_test(test_bad),        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_quantities), cmocka_unit_test(test_text),
    };
    return sn_test_run(tests);
}
