/* SPDX-License-Identifier: Apache-2.0
 *
 * Cases A11, A12, A13, F5, F6, F7: what numbers become. Special values, large and small ones, the
 * same bits on every rank and in every run, and the host's own arithmetic left as it was. */
#include "unit/cases_world.h"

#include <math.h>
/* How the processor computes, without the sticky flags of what happened. */
#if defined(__x86_64__)
#include <xmmintrin.h>
static unsigned mode(void)
{
    return _mm_getcsr() & ~0x3fu;
}
#else
static unsigned mode(void)
{
    return 0;
}
#endif

#define FEW 64

static const int here[] = {0, 0, 0}, both[] = {0, 0, 1, 1}, apart[] = {0, 1, 2},
                 robin[] = {0, 1, 0, 1, 0}, five[] = {0, 0, 0, 0, 0};
static const struct {
    const int *map;
    int n;
} maps[] = {{here, 3}, {five, 5}, {both, 4}, {apart, 3}, {robin, 5}};

static void on_all_maps(sn_rank_fn fn, void *ctx)
{
    for (size_t k = 0; k < SN_COUNT(maps); k++)
        assert_int_equal(sn_ranks_run(maps[k].n, maps[k].map, fn, ctx, sn_now() + 60 * SN_SEC), 0);
}

static uint32_t bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* Every algorithm that fits the call, one after the other; NULL when there are no more. Index 0 is
 * the chosen one. */
static sn_status next_algorithm(world *w, const sn_coll_call *c, int *at, const char **ret)
{
    const sn_algo_row *const *rows;
    int n = sn_algo_rows(&rows);
    for (; *at < n; (*at)++) {
        sn_coll_req *probe;
        sn_coll_call none = *c;
        none.count = 0;
        none.algorithm = rows[*at]->name;
        sn_status status = sn_coll_post(w->all, &none, soon(), &probe);
        if (status == SN_ENOTSUP)
            continue;
        SN_TRY(status);
        *ret = rows[(*at)++]->name;
        return sn_coll_wait(probe);
    }
    *ret = NULL;
    return SN_OK;
}

/* ---- A12: special values ---- */

static const float special[] = {0.0f,      -0.0f,   1.0f,     -1.5f,  NAN,       INFINITY,
                                -INFINITY, 3.4e38f, -3.4e38f, 1e-40f, -1.4e-45f, 1.1754944e-38f};

/* Every choice of special values for the members: element i is the i-th choice. */
static float pick(int member, int i)
{
    return special[(size_t) case_draw(12, (uint64_t) member, (uint64_t) i,
                                      (int) SN_COUNT(special))];
}

static float narrow(sn_dtype t, float f)
{
    return t == SN_BF16 ? sn_bf16_to_f32(sn_f32_to_bf16(f)) : f;
}

/* NaN in, NaN out, whatever the operation; infinities as IEEE 754 has them; else as computed in
 * f64. Where a sum of finite values is beyond f32 on some way of adding them, any order is right.
 */
static bool special_ok(sn_red red, sn_dtype t, int p, int i, float got)
{
    bool nan = false, up = false, down = false, large = false;
    double sum = 0, top = -INFINITY, least = INFINITY;
    for (int k = 0; k < p; k++) {
        float x = narrow(t, pick(k, i));
        nan = nan || isnan(x);
        up = up || x == INFINITY;
        down = down || x == -INFINITY;
        large = large || (isfinite(x) && fabsf(x) > 1e38f);
        sum += (double) x;
        top = fmax(top, (double) x);
        least = fmin(least, (double) x);
    }
    if (nan)
        return isnan(got);
    if (red == SN_MAX)
        return (double) got == top;
    if (red == SN_MIN)
        return (double) got == least;
    if (up && down)
        return isnan(got);
    if (up || down)
        return got == (up ? INFINITY : -INFINITY) || (large && isnan(got));
    if (large)
        return true;
    double want = red == SN_AVG ? sum / p : sum, away = fabs((double) got - want);
    return away <= fabs(want) * (t == SN_BF16 ? 1.0 / 128 : 1e-6) + (t == SN_BF16 ? 1e-40 : 3e-45);
}

static int specials(sn_boot *boot, int rank, int host, void *ctx)
{
    enum { N = 700 };
    static char in[N * 4], out[N * 4];
    const char *name = NULL;
    world w;
    if (case_open(boot, host, 1 << 20, &w) != 0)
        return 1;
    for (int k = 0; k < 2 * SN_REDS; k++) {
        sn_coll_call c = {.op = SN_ALL_REDUCE, .red = (sn_red) (k / 2), .count = N};
        c.dtype = k % 2 ? SN_BF16 : SN_F32;
        c.in = in;
        c.out = out;
        for (int i = 0; i < N; i++)
            case_store(c.dtype, in, i, (double) pick(rank, i));
        for (int at = 0;;) {
            RANK_OK(next_algorithm(&w, &c, &at, &name));
            if (!name)
                break;
            c.algorithm = name;
            RANK_OK(sn_coll_run(w.all, &c, soon()));
            for (int i = 0; i < N; i++) {
                float got = (float) case_load(c.dtype, out, i);
                if (special_ok(c.red, c.dtype, w.size, i, got))
                    continue;
                fprintf(stderr, "%s %s of %s by %s: %g of", sn_red_name(c.red),
                        sn_coll_op_name(c.op), sn_dtype_name(c.dtype), name, (double) got);
                for (int m = 0; m < w.size; m++)
                    fprintf(stderr, " %g", (double) narrow(c.dtype, pick(m, i)));
                fprintf(stderr, "\n");
                return 1;
            }
        }
    }
    world_close(&w);
    return 0;
}

static void test_special_values(void **state)
{
    on_all_maps(specials, NULL);
}

/* ---- A11: averages of values whose sum is out of the type's range ---- */

/* 1,024 members of one fold: the sum is beyond the type's largest value, the average is not. */
static void average_of_many(sn_dtype type, float value)
{
    enum { MEMBERS = 1024, N = 37 };
    static uint16_t in[N], out[N];
    static const void *src[MEMBERS];
    void *dst[1] = {out};
    for (int i = 0; i < N; i++)
        in[i] = type == SN_BF16 ? sn_f32_to_bf16(value) : sn_f32_to_f16(value);
    for (int k = 0; k < MEMBERS; k++)
        src[k] = in;
    sn_fold f = {.red = SN_AVG, .dtype = type, .dst = dst, .src = src, .dsts = 1};
    f.srcs = f.divide = MEMBERS;
    f.count = N;
    sn_fold_kernels()->fold(&f);
    for (int i = 0; i < N; i++)
        assert_int_equal(out[i], in[i]);
}

static void test_average_of_many(void **state)
{
    average_of_many(SN_F16, 65504);
    average_of_many(SN_BF16, 3.0e35f);
}

/* Real ranks: all have f16's largest value, or bf16 values whose sum only f32 can hold. */
static int average(sn_boot *boot, int rank, int host, void *ctx)
{
    static uint16_t in[FEW], out[FEW];
    const char *name = NULL;
    world w;
    if (case_open(boot, host, 1 << 20, &w) != 0)
        return 1;
    for (int k = 0; k < 2; k++) {
        sn_coll_call c = {.op = SN_ALL_REDUCE, .red = SN_AVG, .count = FEW, .in = in, .out = out};
        c.dtype = k ? SN_BF16 : SN_F16;
        for (int i = 0; i < FEW; i++)
            in[i] = k ? sn_f32_to_bf16(3.39e38f / (float) w.size) : sn_f32_to_f16(65504);
        for (int at = 0;;) {
            RANK_OK(next_algorithm(&w, &c, &at, &name));
            if (!name)
                break;
            c.algorithm = name;
            RANK_OK(sn_coll_run(w.all, &c, soon()));
            for (int i = 0; i < FEW; i++)
                RANK_CHECK(out[i] == in[i]);
        }
    }
    world_close(&w);
    return 0;
}

static void test_average(void **state)
{
    on_all_maps(average, NULL);
}

/* ---- A13: the same bits on every rank, in every run ---- */

static float wild(int member, int64_t i)
{
    double x = sn_hash_uniform(13, (uint64_t) member, (uint64_t) i) * 2 - 1;
    return (float) ldexp(x, case_draw(14, (uint64_t) member, (uint64_t) i, 40) - 20);
}

typedef struct prints { /* of the result of each (algorithm, operation, type), per run and rank */
    uint64_t of[2][64][8];
} prints;

static int same_bits(sn_boot *boot, int rank, int host, void *ctx)
{
    enum { N = 5003 };
    static char in[N * 8 * 4], out[N * 8 * 4];
    prints *seen = ctx;
    int n = 0;
    const char *name = NULL;
    world w;
    if (case_open(boot, host, 1 << 20, &w) != 0)
        return 1;
    for (int k = 0; k < 4; k++) {
        sn_coll_call c = {.op = SN_ALL_REDUCE, .dtype = k % 2 ? SN_BF16 : SN_F32, .count = N};
        c.red = k / 2 ? SN_AVG : SN_SUM;
        c.in = in;
        c.out = out;
        for (int at = 0;;) {
            RANK_OK(next_algorithm(&w, &c, &at, &name));
            if (!name)
                break;
            c.algorithm = name;
            for (int run = 0; run < 2; run++) {
                for (int64_t i = 0; i < N; i++)
                    case_store(c.dtype, in, i, (double) wild(rank, i));
                RANK_OK(sn_coll_run(w.all, &c, soon()));
                seen->of[run][n][rank] = sn_hash_bytes(out, N * sn_dtype_bytes(c.dtype));
            }
            RANK_OK(world_barrier(&w));
            RANK_CHECK(seen->of[0][n][rank] == seen->of[0][n][0]); /* every rank */
            RANK_CHECK(seen->of[1][n][rank] == seen->of[0][n][0]); /* every run */
            RANK_OK(world_barrier(&w));
            n++;
        }
    }
    RANK_CHECK(n >= 4);
    world_close(&w);
    return 0;
}

static void test_same_bits(void **state)
{
    prints *seen = sn_ranks_shared(sizeof *seen);
    on_all_maps(same_bits, seen);
}

/* ---- A13: deterministic: the sum in the order of the members, whatever the map ---- */

static float ordered(sn_dtype t, const float *x, int p, bool divide)
{
    float sum = x[0];
    for (int k = 1; k < p; k++)
        sum += x[k];
    sum = divide ? sum / (float) p : sum;
    return t == SN_BF16  ? sn_bf16_to_f32(sn_f32_to_bf16(sum))
           : t == SN_F16 ? sn_f16_to_f32(sn_f32_to_f16(sum))
                         : sum;
}

static void put(sn_dtype t, void *p, int64_t i, float v)
{
    if (t == SN_F16)
        ((uint16_t *) p)[i] = sn_f32_to_f16(v);
    else
        case_store(t, p, i, (double) v);
}

static float take(sn_dtype t, const void *p, int64_t i)
{
    return t == SN_F16 ? sn_f16_to_f32(((const uint16_t *) p)[i]) : (float) case_load(t, p, i);
}

static int in_order(sn_boot *boot, int rank, int host, void *ctx)
{
    static const sn_dtype types[] = {SN_F32, SN_BF16, SN_F16};
    static const int64_t counts[] = {300, 20000}; /* in a note; staged in several chunks */
    static char in[20000 * 4], out[20000 * 4];
    const char *name = NULL;
    world w;
    int ran = 0;
    if (case_open(boot, host, 1 << 20, &w) != 0)
        return 1;
    for (int k = 0; k < 6; k++) {
        sn_coll_call c = {.op = SN_ALL_REDUCE, .dtype = types[k / 2], .count = counts[k % 2]};
        c.deterministic = true;
        c.in = in;
        c.out = out;
        for (int64_t i = 0; i < c.count; i++)
            put(c.dtype, in, i, wild(rank, i) / 64);
        for (int at = 0;;) {
            RANK_OK(next_algorithm(&w, &c, &at, &name));
            c.algorithm = name; /* NULL, the last time: the chosen one */
            RANK_OK(sn_coll_run(w.all, &c, soon()));
            for (int64_t i = 0; i < c.count; i++) {
                float x[8];
                for (int m = 0; m < w.size; m++) {
                    char one[8];
                    put(c.dtype, one, 0, wild(m, i) / 64);
                    x[m] = take(c.dtype, one, 0);
                }
                RANK_CHECK(bits(take(c.dtype, out, i)) == bits(ordered(c.dtype, x, w.size, false)));
            }
            ran++;
            if (!name)
                break;
        }
    }
    RANK_CHECK(ran >= 12);
    world_close(&w);
    return 0;
}

static void test_deterministic(void **state)
{
    on_all_maps(in_order, NULL);
}

/* ---- F5: bf16 and f16 are rounded once ---- */

/* Element by element: 1 and many small ones; partial sums that round up to infinity in the type but
 * not in f32, which a last term brings back. Within one unit in the last place of the exact sum. */
static float awkward(sn_dtype t, int i, int member, int p)
{
    float large = t == SN_BF16 ? 3.3895e38f : 65504;
    if (i % 2 == 0)
        return member == (i / 2) % p ? 1 : t == SN_BF16 ? 0x1p-9f : 0x1p-12f;
    if (member == (i / 2) % p)
        return large;
    if (member == (i / 2 + 1) % p) /* half a unit of `large` more: infinite in the type */
        return t == SN_BF16 ? 0x1p119f : 16;
    return member == (i / 2 + 2) % p ? -large : 0;
}

static int once(sn_boot *boot, int rank, int host, void *ctx)
{
    static uint16_t in[FEW], out[FEW];
    const char *name = NULL;
    world w;
    if (case_open(boot, host, 1 << 20, &w) != 0)
        return 1;
    for (int k = 0; k < 2; k++) {
        sn_coll_call c = {.op = SN_ALL_REDUCE, .count = FEW, .in = in, .out = out};
        c.dtype = k ? SN_BF16 : SN_F16;
        for (int i = 0; i < FEW; i++)
            put(c.dtype, in, i, awkward(c.dtype, i, rank, w.size));
        for (int at = 0;;) {
            RANK_OK(next_algorithm(&w, &c, &at, &name));
            if (!name)
                break;
            c.algorithm = name;
            RANK_OK(sn_coll_run(w.all, &c, soon()));
            for (int i = 0; i < FEW; i++) {
                double sum = 0, unit = c.dtype == SN_BF16 ? 0x1p-7 : 0x1p-10;
                for (int m = 0; m < w.size; m++)
                    sum += (double) awkward(c.dtype, i, m, w.size);
                double got = (double) take(c.dtype, out, i);
                if (fabs(got - sum) <= fabs(sum) * unit)
                    continue;
                fprintf(stderr, "%s of %d by %s: %g, not %g\n", sn_dtype_name(c.dtype), w.size,
                        name, got, sum);
                return 1;
            }
        }
    }
    world_close(&w);
    return 0;
}

static void test_rounded_once(void **state)
{
    on_all_maps(once, NULL);
}

/* ---- F6: what cannot be reduced is refused by name, and nothing wraps ---- */

static int unsupported(sn_boot *boot, int rank, int host, void *ctx)
{
    char in[FEW * 8] = {0}, out[FEW * 8] = {0};
    sn_coll_req *r;
    world w;
    if (case_open(boot, host, 1 << 20, &w) != 0)
        return 1;
    for (int k = 0; k < 2 * SN_DTYPE_COUNT; k++) {
        sn_coll_call c = {.op = k % 2 ? SN_ALL_REDUCE : SN_REDUCE_SCATTER, .count = 1};
        c.dtype = (sn_dtype) (k / 2);
        c.in = in;
        c.out = out;
        if (c.dtype == SN_F32 || c.dtype == SN_BF16 || c.dtype == SN_F16)
            continue;
        RANK_FAILS(sn_coll_post(w.all, &c, soon(), &r), SN_ENOTSUP, sn_dtype_name(c.dtype));
        RANK_CHECK(strstr(sn_errmsg(), sn_coll_op_name(c.op)) != NULL);
    }
    for (int i = 0; i < FEW * 8; i++)
        RANK_CHECK(out[i] == 0);
    RANK_OK(world_barrier(&w));
    world_close(&w);
    return 0;
}

static void test_unsupported_types(void **state)
{
    WORLD(here, unsupported);
    WORLD(apart, unsupported);
}

/* ---- F7: subnormals, and the host's rounding mode ---- */

static int subnormal(sn_boot *boot, int rank, int host, void *ctx)
{
    static float in[FEW], out[FEW];
    const char *name = NULL;
    world w;
    unsigned before = mode();
    if (case_open(boot, host, 1 << 20, &w) != 0)
        return 1;
    sn_coll_call c = {.op = SN_ALL_REDUCE, .count = FEW, .in = in, .out = out};
    for (int i = 0; i < FEW; i++)
        in[i] = (float) (i + 1) * 1.4e-45f;
    for (int at = 0;;) {
        RANK_OK(next_algorithm(&w, &c, &at, &name));
        if (!name)
            break;
        c.algorithm = name;
        RANK_OK(sn_coll_run(w.all, &c, soon()));
        for (int i = 0; i < FEW; i++)
            RANK_CHECK(bits(out[i]) == (uint32_t) ((i + 1) * w.size)); /* exactly */
    }
    world_close(&w);
    RANK_CHECK(mode() == before);
    volatile double small = 1e-310;
    RANK_CHECK(small / 10 > 0);
    return 0;
}

static void test_subnormals(void **state)
{
    on_all_maps(subnormal, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_special_values),    cmocka_unit_test(test_average_of_many),
    cmocka_unit_test(test_average),           cmocka_unit_test(test_same_bits),
    cmocka_unit_test(test_deterministic),     cmocka_unit_test(test_rounded_once),
    cmocka_unit_test(test_unsupported_types), cmocka_unit_test(test_subnormals),
};

CASES_MAIN(tests)
