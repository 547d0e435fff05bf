/* SPDX-License-Identifier: Apache-2.0
 * Any layout in, any layout out: random worlds against an oracle that knows each element. */
#include "ckpt/parts.h"
#include "unit/ckpt_world.h"

#include <stdio.h>

enum { WORLDS = 60, RUN_CASES = 4000 };
static const uint64_t seed = 20261130;

static void test_reshard(void **state)
{
    sn_prng p = {.seed = seed};
    for (int k = 0; k < WORLDS; k++) {
        char dir[64];
        world_dir(dir);
        world w = world_random(&p);
        cut *in = cut_random(&p, &w);
        cut_fill(&w, in);
        assert_ok(cut_save(dir, k, in, 0));
        sn_ckpt *c;
        sn_str skipped = {0};
        assert_ok(sn_ckpt_find(dir, &skipped, &c));
        assert_string_equal(sn_str_get(&skipped), "");
        assert_int_equal(sn_ckpt_tensors(c), w.tensors);
        for (int again = 0; again < 4; again++) {
            cut *out = cut_random(&p, &w);
            assert_ok(cut_load(c, out));
            if (!cut_equal(&w, out))
                fail_msg("world %d of seed %llu differs", k, (unsigned long long) seed);
            cut_free(out);
        }
        sn_ckpt_close(c);
        cut_free(in);
        world_remove(dir);
    }
}

/* ---- runs alone: any two blocks, every element ---- */

typedef struct seen {
    const sn_piece *a, *b;
    int64_t count, last;
} seen;

static sn_status see(void *ctx, int64_t from, int64_t to, int64_t count)
{
    seen *s = ctx;
    assert_true(count > 0 && from > s->last);
    assert_true(from + count <= s->a->flat_count && to + count <= s->b->flat_count);
    for (int64_t i = 0; i < count; i++)
        assert_int_equal(world_index(s->a, s->a->flat_begin + from + i),
                         world_index(s->b, s->b->flat_begin + to + i));
    s->count += count;
    s->last = from + count - 1;
    return SN_OK;
}

static sn_piece random_piece(sn_prng *p, sn_shape shape)
{
    sn_piece piece = {.shape = shape};
    int64_t n = 1;
    for (int d = 0; d < shape.rank; d++) {
        bool spans = sn_prng_below(p, 2);
        piece.begin[d] = spans ? 0 : sn_prng_below(p, shape.dim[d]);
        piece.extent[d] =
            spans ? shape.dim[d] : 1 + sn_prng_below(p, shape.dim[d] - piece.begin[d]);
        n *= piece.extent[d];
    }
    piece.flat_begin = sn_prng_below(p, n);
    piece.flat_count = 1 + sn_prng_below(p, n - piece.flat_begin);
    return piece;
}

static ckpt_block block_of(const sn_piece *p)
{
    ckpt_block b = {.flat_begin = p->flat_begin, .flat_count = p->flat_count};
    memcpy(b.begin, p->begin, sizeof b.begin);
    memcpy(b.extent, p->extent, sizeof b.extent);
    return b;
}

static void test_runs(void **state)
{
    sn_prng p = {.seed = seed + 1};
    for (int k = 0; k < RUN_CASES; k++) {
        sn_shape shape = {.rank = (int) sn_prng_below(&p, 5)};
        for (int d = 0; d < shape.rank; d++)
            shape.dim[d] = 1 + sn_prng_below(&p, 5);
        sn_piece a = random_piece(&p, shape), b = random_piece(&p, shape);
        ckpt_block x = block_of(&a), y = block_of(&b);
        seen s = {&a, &b, 0, -1};
        assert_ok(ckpt_runs(shape, &x, &y, see, &s));
        char in[625] = {0};
        int64_t common = 0;
        for (int64_t i = 0; i < a.flat_count; i++)
            in[world_index(&a, a.flat_begin + i)] = 1;
        for (int64_t i = 0; i < b.flat_count; i++)
            common += in[world_index(&b, b.flat_begin + i)];
        assert_int_equal(s.count, common);
    }
}

/* Two blocks that each span the inner dimensions are one run, however large they are. */
static sn_status count_runs(void *ctx, int64_t from, int64_t to, int64_t count)
{
    ++*(int *) ctx;
    return SN_OK;
}

static void test_runs_are_long(void **state)
{
    sn_shape shape = SN_SHAPE(64, 32, 16);
    ckpt_block whole = ckpt_block_whole(shape, 64 * 32 * 16), rows = whole, columns = whole;
    rows.begin[0] = 8;
    rows.extent[0] = 16;
    rows.flat_count = 16 * 32 * 16;
    columns.begin[1] = 4;
    columns.extent[1] = 8;
    columns.flat_count = 64 * 8 * 16;
    int n = 0;
    assert_ok(ckpt_runs(shape, &whole, &rows, count_runs, &n));
    assert_int_equal(n, 1);
    n = 0;
    assert_ok(ckpt_runs(shape, &columns, &whole, count_runs, &n));
    assert_int_equal(n, 64);
}

/* ---- exactly once ---- */

/* A publish of a cut with one piece gone, doubled or moved must not pass. */
static void test_cover(void **state)
{
    sn_prng p = {.seed = seed + 2};
    char dir[64];
    world_dir(dir);
    int refused = 0;
    for (int k = 0; k < WORLDS; k++) {
        world w = world_random(&p);
        cut *c = cut_random(&p, &w);
        cut_fill(&w, c);
        int r = (int) sn_prng_below(&p, c->ranks);
        int n = c->pieces[r], i = n ? (int) sn_prng_below(&p, n) : 0;
        sn_piece saved = c->piece[r][i];
        if (n && saved.flat_count) {
            int what = (int) sn_prng_below(&p, 3);
            if (saved.flat_count == sn_shape_count(saved.shape) && what == 0)
                what = 2;    /* a tensor that nobody names is none */
            if (what == 0) { /* gone */
                c->piece[r][i] = c->piece[r][n - 1];
                c->pieces[r]--;
            } else if (what == 1) { /* doubled */
                c->piece[r][c->pieces[r]++] = saved;
            } else { /* shorter */
                c->piece[r][i].flat_count--;
            }
            assert_int_equal(cut_save(dir, k, c, 0), SN_EINVAL);
            if (!strstr(sn_errmsg(), "tensor \""))
                fail_msg("%s", sn_errmsg());
            refused++;
            if (what == 0) {
                c->piece[r][n - 1] = c->piece[r][i];
                c->piece[r][i] = saved;
            }
            c->pieces[r] = n;
            c->piece[r][i] = saved;
        }
        cut_free(c);
    }
    assert_true(refused > WORLDS / 3);
    sn_ckpt *found;
    assert_int_equal(sn_ckpt_find(dir, NULL, &found), SN_ENOTFOUND);
    world_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reshard),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_runs_are_long),
        cmocka_unit_test(test_cover),
    };
    return sn_test_run(tests);
}
