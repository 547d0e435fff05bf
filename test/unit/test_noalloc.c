/* SPDX-License-Identifier: Apache-2.0
 * The step loop asks for no memory: malloc and its like are counted here, in every library of the
 * process but one, while steps run. oneDNN makes a few small nodes for each product it executes and
 * gives them back before it returns; so calls from it (and from libstdc++ for it) are not counted.
 */
#include "unit/train_world.h"

#include <link.h>

static int64_t asked; /* while counting */
static bool counting;

typedef struct range {
    uintptr_t from, to;
} range;

static range foreign[16];
static int foreigns;

static int note_library(struct dl_phdr_info *info, size_t bytes, void *ctx)
{
    if (!strstr(info->dlpi_name, "libdnnl") && !strstr(info->dlpi_name, "libstdc++"))
        return 0;
    for (int i = 0; i < info->dlpi_phnum && foreigns < (int) SN_COUNT(foreign); i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD) {
            uintptr_t from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            foreign[foreigns++] = (range){from, from + info->dlpi_phdr[i].p_memsz};
        }
    return 0;
}

static bool is_ours(const void *caller)
{
    for (int i = 0; i < foreigns; i++)
        if ((uintptr_t) caller >= foreign[i].from && (uintptr_t) caller < foreign[i].to)
            return false;
    return true;
}

#ifndef __SANITIZE_ADDRESS__ /* which brings its own malloc: then nothing is counted */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);

void *malloc(size_t bytes)
{
    asked += counting && is_ours(__builtin_return_address(0));
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    asked += counting && is_ours(__builtin_return_address(0));
    return __libc_calloc(n, bytes);
}

void *realloc(void *old, size_t bytes)
{
    asked += counting && is_ours(__builtin_return_address(0));
    return __libc_realloc(old, bytes);
}
#endif

static void count(world *w, const sn_step_metrics *row)
{
    counting = row->step >= 2 && row->step < STEPS - 3;
    w->trigger = asked;
}

static void run(world *w, int t, int p, int d)
{
    world_split(w, t, p, d);
    w->on_step = count;
    world_run(w);
    world_clear(world_dir);
    assert_int_equal(w->rows, STEPS);
    assert_int_equal(w->trigger, 0);
}

static void test_one_card(void **state)
{
    world *w = world_create();
    run(w, 1, 1, 1);
    world_free(w);
}

/* On one host: what UCX does inside for messages between hosts is its own. */
static void test_many_cards(void **state)
{
    world *w = world_create();
    w->one_host = true;
    w->job.accumulation = 2;
    run(w, 2, 2, 2);
    w->job.precision = SN_BF16;
    run(w, 2, 1, 2);
    world_free(w);
}

/* Encoded between two hosts of the topology, which share their memory for the reason above. */
static void test_encoded(void **state)
{
    world *w = world_create();
    w->one_host = true;
    w->topo_hosts = 2;
    w->job.compression.codec = "onebit";
    run(w, 1, 1, 4);
    w->job.precision = SN_BF16;
    w->job.compression.codec = "powersgd:1";
    run(w, 2, 1, 2);
    w->job.compression.codec = "topk:0.05+int8";
    run(w, 2, 1, 2);
    world_free(w);
}

int main(void)
{
    dl_iterate_phdr(note_library, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_card),
        cmocka_unit_test(test_many_cards),
        cmocka_unit_test(test_encoded),
    };
    return cmocka_run_group_tests_name(__FILE__, tests, world_setup, world_teardown);
}
