/* SPDX-License-Identifier: Apache-2.0
 *
 * After the first call of a kind coll asks for no memory: malloc and its like are counted here, in
 * every library of the process, while calls of all kinds are made again and again. On one host:
 * what UCX does inside for messages is its own. */
#include "unit/coll_world.h"

static int64_t asked; /* while counting */
static bool counting;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS false /* sanitizers bring their own malloc */
#else
#define COUNTS true
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t align, size_t bytes);

void *malloc(size_t bytes)
{
    asked += counting;
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    asked += counting;
    return __libc_calloc(n, bytes);
}

void *realloc(void *old, size_t bytes)
{
    asked += counting;
    return __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    asked += counting;
    return __libc_memalign(align, bytes);
}
#endif

enum { COUNT = 60000, SMALL = 40 };

static int calls(world *w, float *x, float *y)
{
    sn_coll_req *in, *out;
    for (int k = 0; k < 2 * SN_COLL_OPS; k++) {
        sn_coll_call call = {.op = (sn_coll_op) (k / 2),
                             .count = k % 2 ? COUNT : SMALL,
                             .in = x,
                             .out = y,
                             .deterministic = k % 3 == 0};
        RANK_OK(sn_coll_run(w->all, &call, soon()));
    }
    sn_coll_call part[2] = {{.op = SN_ALL_REDUCE, .count = 300, .in = x, .out = x},
                            {.op = SN_ALL_REDUCE, .count = 9, .in = x + 300, .out = y}};
    RANK_OK(sn_coll_post_many(w->all, part, 2, soon(), &in));
    RANK_OK(sn_coll_wait(in));
    RANK_OK(sn_coll_send(w->c, 1 - w->rank, 4, x, COUNT, soon(), &out));
    RANK_OK(sn_coll_recv(w->c, 1 - w->rank, 4, y, COUNT, soon(), &in));
    RANK_OK(sn_coll_wait(in));
    RANK_OK(sn_coll_wait(out));
    return 0;
}

static int quiet(sn_boot *boot, int rank, int host, void *ctx)
{
    world w;
    void *mem;
    size_t bytes = 2 * COUNT * sizeof(float);
    if (world_open(boot, host, &w) != 0)
        return 1;
    RANK_OK(sn_coll_alloc(w.c, 2 * bytes, &mem));
    float *arena = mem, *plain = calloc(2, bytes);
    for (int i = 0; i < 12; i++) {
        counting = i >= 4; /* once from each kind of memory */
        float *x = i % 2 ? arena : plain;
        if (calls(&w, x, x + 2 * COUNT) != 0)
            return 1;
    }
    counting = false;
    RANK_CHECK(asked == 0);
    free(plain);
    world_close(&w);
    return 0;
}

static void test_quiet(void **state)
{
    static const int here[] = {0, 0};
    if (!COUNTS) {
        print_message("skipped: a sanitizer brings its own malloc, which cannot be counted\n");
        skip();
    }
    WORLD(here, quiet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_quiet)};
    return sn_test_run(tests);
}
