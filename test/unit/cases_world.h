/* SPDX-License-Identifier: Apache-2.0
 *
 * What the case tests share (doc/cases.md): worlds of any size, and an oracle for every collective.
 *
 * Inputs are small whole numbers drawn from (seed, member, element), so that every sum is exact in
 * every type, whatever the order and however often it is rounded on the way: results are compared
 * for equality. */
#ifndef CASES_WORLD_H
#define CASES_WORLD_H

#include "unit/coll_world.h"

#include <time.h>

/* A sanitizer's own memory counts among a process's, terabytes of it. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CASES_SANITIZED true
#else
#define CASES_SANITIZED false
#endif

#define CASES_MANY 128 /* ranks in the largest world */
#define CASES_SEED UINT64_C(20240601)

/* ---- worlds ---- */

/* Far off: a hundred ranks on two cores that others use too. */
static inline sn_time case_soon(void)
{
    return sn_now() + 60 * SN_SEC;
}

static inline int case_group(world *w, const char *name, sn_coll_group **ret)
{
    int members[CASES_MANY];
    for (int i = 0; i < w->size; i++)
        members[i] = i;
    RANK_OK(sn_coll_group_create(w->c, name, members, w->size, case_soon(), ret));
    return 0;
}

/* The same as world_open with an arena of so many bytes, for up to CASES_MANY ranks. */
static inline int case_open(sn_boot *boot, int host, uint64_t arena, world *w)
{
    char name[16];
    snprintf(name, sizeof name, "h%d", host);
    sn_net_opts how = {.host_name = name, .deadline = case_soon()};
    RANK_OK(sn_net_open(boot, &how, &w->net));
    sn_coll_opts opts = {.arena_bytes = arena, .stage_bytes = 2 << 20, .deadline = case_soon()};
    RANK_OK(sn_coll_open(w->net, &opts, &w->c));
    w->rank = sn_net_rank(w->net);
    w->size = sn_net_world(w->net);
    return case_group(w, "world", &w->all);
}

static inline int case_draw(uint64_t seed, uint64_t stream, uint64_t index, int n)
{
    return (int) (sn_hash64(seed, stream, index) % (uint64_t) n);
}

/* ---- values of any type ---- */

static inline void case_store(sn_dtype t, void *p, int64_t i, double v)
{
    switch (t) {
    case SN_F32:
        ((float *) p)[i] = (float) v;
        break;
    case SN_BF16:
        ((uint16_t *) p)[i] = sn_f32_to_bf16((float) v);
        break;
    case SN_F16: /* only moved here: any 16 bits do */
        ((uint16_t *) p)[i] = (uint16_t) (int) (v + 100);
        break;
    case SN_F64:
        ((double *) p)[i] = v;
        break;
    case SN_I32:
        ((int32_t *) p)[i] = (int32_t) v;
        break;
    case SN_I64:
        ((int64_t *) p)[i] = (int64_t) v;
        break;
    case SN_I16:
        ((int16_t *) p)[i] = (int16_t) v;
        break;
    case SN_U16:
        ((uint16_t *) p)[i] = (uint16_t) (int) (v + 100);
        break;
    case SN_U32:
        ((uint32_t *) p)[i] = (uint32_t) (int) (v + 100);
        break;
    case SN_U64:
        ((uint64_t *) p)[i] = (uint64_t) (int) (v + 100);
        break;
    default:
        ((uint8_t *) p)[i] = (uint8_t) (int) (v + 100);
        break;
    }
}

static inline double case_load(sn_dtype t, const void *p, int64_t i)
{
    switch (t) {
    case SN_F32:
        return (double) ((const float *) p)[i];
    case SN_BF16:
        return (double) sn_bf16_to_f32(((const uint16_t *) p)[i]);
    case SN_F16:
        return (double) ((const uint16_t *) p)[i] - 100;
    case SN_F64:
        return ((const double *) p)[i];
    case SN_I32:
        return (double) ((const int32_t *) p)[i];
    case SN_I64:
        return (double) ((const int64_t *) p)[i];
    case SN_I16:
        return (double) ((const int16_t *) p)[i];
    case SN_U16:
        return (double) ((const uint16_t *) p)[i] - 100;
    case SN_U32:
        return (double) ((const uint32_t *) p)[i] - 100;
    case SN_U64:
        return (double) ((const uint64_t *) p)[i] - 100;
    default:
        return (double) ((const uint8_t *) p)[i] - 100;
    }
}

/* ---- the oracle ---- */

static inline double case_value(uint64_t seed, int member, int64_t i)
{
    return (double) (sn_hash64(seed, (uint64_t) member, (uint64_t) i) % 3) - 1;
}

static inline bool case_reduces(sn_coll_op op)
{
    return op == SN_ALL_REDUCE || op == SN_REDUCE_SCATTER;
}

/* Elements of member `me`'s IN and OUT; 0 for what a gather or a scatter never touches. */
static inline int64_t case_ins(const sn_coll_call *c, int me, int p)
{
    if (c->op == SN_BROADCAST || c->op == SN_BARRIER || (c->op == SN_SCATTER && me != c->root))
        return 0;
    bool blocks = c->op == SN_REDUCE_SCATTER || c->op == SN_ALL_TO_ALL || c->op == SN_SCATTER;
    return blocks ? c->count * p : c->count;
}

static inline int64_t case_outs(const sn_coll_call *c, int me, int p)
{
    if (c->op == SN_BARRIER || (c->op == SN_GATHER && me != c->root))
        return 0;
    bool blocks = c->op == SN_ALL_GATHER || c->op == SN_ALL_TO_ALL || c->op == SN_GATHER;
    return blocks ? c->count * p : c->count;
}

/* What element i of member `me`'s OUT has to be among p members. */
static inline double case_want(const sn_coll_call *c, uint64_t seed, int me, int p, int64_t i)
{
    int64_t n = c->count, at = c->op == SN_REDUCE_SCATTER ? n * me + i : i;
    if (c->op == SN_BROADCAST)
        return case_value(seed, c->root, i);
    if (c->op == SN_ALL_GATHER || c->op == SN_GATHER)
        return case_value(seed, (int) (i / n), i % n);
    if (c->op == SN_ALL_TO_ALL)
        return case_value(seed, (int) (i / n), n * me + i % n);
    if (c->op == SN_SCATTER)
        return case_value(seed, c->root, n * me + i);
    double sum = case_value(seed, 0, at);
    for (int k = 1; k < p; k++) {
        double x = case_value(seed, k, at);
        sum = c->red == SN_MAX ? SN_MAX(sum, x) : c->red == SN_MIN ? SN_MIN(sum, x) : sum + x;
    }
    return c->red == SN_AVG ? sum / p : sum;
}

static inline void case_fill(const sn_coll_call *c, uint64_t seed, int me, int p, void *in,
                             void *out)
{
    int64_t n = case_ins(c, me, p);
    for (int64_t i = 0; i < n; i++)
        case_store(c->dtype, in, i, case_value(seed, me, i));
    n = c->op == SN_BROADCAST && c->root == me ? c->count : 0;
    for (int64_t i = 0; i < n; i++)
        case_store(c->dtype, out, i, case_value(seed, me, i));
}

/* An average is rounded: the reciprocal or the quotient, to the type. */
static inline bool case_near(const sn_coll_call *c, double got, double want)
{
    double slack = c->dtype == SN_BF16 ? 1.0 / 128 : 1e-6, away = got - want;
    if (!case_reduces(c->op) || c->red != SN_AVG)
        return away == 0;
    slack *= want < 0 ? -want : want;
    return away <= slack && away >= -slack;
}

static inline int case_check(const sn_coll_call *c, uint64_t seed, int me, int p, const void *out)
{
    int64_t n = case_outs(c, me, p);
    for (int64_t i = 0; i < n; i++) {
        double want = case_want(c, seed, me, p, i), got = case_load(c->dtype, out, i);
        if (case_near(c, got, want))
            continue;
        fprintf(stderr, "member %d of %d: %s %s of %lld %s%s%s: element %lld is %g, not %g\n", me,
                p, sn_coll_op_name(c->op), sn_red_name(c->red), (long long) c->count,
                sn_dtype_name(c->dtype), c->algorithm ? " by " : "",
                c->algorithm ? c->algorithm : "", (long long) i, got, want);
        return 1;
    }
    return 0;
}

/* Fill, run and check one call in the given memory (room for count · p elements each). */
static inline int case_run(sn_coll_group *g, sn_coll_call c, uint64_t seed, void *in, void *out)
{
    int me = sn_coll_group_me(g), p = sn_coll_group_size(g);
    case_fill(&c, seed, me, p, in, out);
    c.in = in;
    c.out = out;
    RANK_OK(sn_coll_run(g, &c, case_soon()));
    return case_check(&c, seed, me, p, out);
}

/* A call of any operation, type and reduction that fits it, of `count` elements. */
static inline sn_coll_call case_call(uint64_t seed, uint64_t k, int p, int64_t count)
{
    sn_coll_call c = {.op = (sn_coll_op) case_draw(seed, k, 1, SN_COLL_OPS), .count = count};
    c.red = (sn_red) case_draw(seed, k, 2, SN_REDS);
    c.dtype = (sn_dtype) case_draw(seed, k, 3, SN_DTYPE_COUNT);
    if (case_reduces(c.op) && c.dtype != SN_BF16)
        c.dtype = SN_F32;
    c.root = case_draw(seed, k, 4, p);
    return c;
}

/* ---- time ---- */

/* The kernel kills this process at that moment of the monotonic clock, wherever it is then. */
static inline void case_die_at(sn_time when)
{
    timer_t timer;
    struct sigevent how = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    struct itimerspec at = {.it_value = {.tv_sec = when / SN_SEC, .tv_nsec = when % SN_SEC}};
    if (timer_create(CLOCK_MONOTONIC, &how, &timer) ||
        timer_settime(timer, TIMER_ABSTIME, &at, NULL))
        abort();
}

/* Ranks that stay until `n` others are done, in memory that they share. False: they never were. */
static inline void case_done(uint32_t *done)
{
    __atomic_fetch_add(done, 1, __ATOMIC_ACQ_REL);
}

static inline bool case_await(const uint32_t *done, int n)
{
    sn_time until = sn_now() + 20 * SN_SEC;
    while (__atomic_load_n(done, __ATOMIC_ACQUIRE) < (uint32_t) n && sn_now() < until)
        usleep(500);
    return sn_now() < until;
}

static inline int case_by_time(const void *a, const void *b)
{
    sn_time x = *(const sn_time *) a, y = *(const sn_time *) b;
    return (x > y) - (x < y);
}

static inline sn_time case_median(sn_time *t, int n)
{
    qsort(t, (size_t) n, sizeof *t, case_by_time);
    return t[n / 2];
}

/* `test_cases_x N` runs N times as long, `test_cases_x N test_y` only that test. */
static int case_times = 1;

#define CASES_MAIN(tests)                                                                          \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        case_times = argc > 1 ? SN_MAX(1, atoi(argv[1])) : 1;                                      \
        if (argc > 2)                                                                              \
            cmocka_set_test_filter(argv[2]);                                                       \
        return sn_test_run(tests);                                                                 \
    }

#endif
