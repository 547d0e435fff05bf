/* SPDX-License-Identifier: Apache-2.0
 * Training with compression between hosts: what it saves, what a checkpoint keeps of it, how auto
 * decides. */
#include "unit/train_world.h"

static const struct {
    int t, p, d;
    const char *codec;
    sn_dtype precision;
} cases[] = {
    {1, 1, 2, "onebit", SN_F32},
    {2, 1, 2, "powersgd:2", SN_F32},
    {1, 1, 4, "topk:0.05+int8", SN_BF16},
    {2, 2, 2, "int4", SN_F32},
};

static world *world_of(size_t k)
{
    world *w = world_create();
    world_split(w, cases[k].t, cases[k].p, cases[k].d);
    w->job.compression.codec = cases[k].codec;
    w->job.precision = cases[k].precision;
    return w;
}

static uint64_t moved; /* between hosts by all ranks */

static void count_bytes(world *w, const sn_step_metrics *row)
{
    moved += row->bytes_net;
    w->trigger = (int64_t) moved;
}

/* The loss falls as it does uncompressed, about, and far fewer bytes cross. */
static void test_saves(void **state)
{
    for (size_t k = 0; k < 3; k++) {
        world *w = world_of(k);
        w->job.gpt.layers = 1;
        w->job.gpt.hidden = 128; /* so that the factors are small against their matrix */
        w->on_step = count_bytes;
        world_run(w);
        int64_t coded = w->trigger;
        double loss = w->result[0].final_loss;
        assert_true(loss < w->loss[0] - 2); /* uncompressed it falls by 4 */
        w->job.compression.codec = "none";
        world_run(w);
        double less = 1 - (double) coded / (double) w->trigger;
        if (less < 0.9)
            fail_msg("%s: only %.1f %% less", cases[k].codec, 100 * less);
        world_free(w);
        world_clear(world_dir);
    }
}

/* ---- resuming in the same split: as if nothing had happened ---- */

static void stop_at(world *w, const sn_step_metrics *row)
{
    if (row->step - 1 == w->trigger)
        __atomic_store_n(&w->page[0]->stop, 1, __ATOMIC_RELAXED);
}

static void test_resume(void **state)
{
    for (size_t k = 0; k < SN_COUNT(cases); k++) {
        world *w = world_of(k);
        double loss[STEPS];
        w->job.compression.warmup = 3;
        world_run(w);
        memcpy(loss, w->loss, sizeof loss);
        double final = w->result[0].final_loss;
        world_clear(world_dir);
        w->on_step = stop_at;
        w->trigger = STEPS / 2;
        world_run(w);
        int64_t done = w->result[0].steps;
        assert_true(w->result[0].stopped);
        w->on_step = NULL;
        w->resume = true;
        world_run(w);
        assert_int_equal(w->result[0].first_step, done);
        assert_memory_equal(w->loss + done, loss + done, (size_t) (STEPS - done) * sizeof(*loss));
        assert_true(w->result[0].final_loss == final);
        world_free(w);
        world_clear(world_dir);
    }
}

/* Uncompressed steps before are those of a job without compression, bit by bit. */
static void test_warmup(void **state)
{
    world *w = world_of(0);
    double loss[STEPS];
    w->job.compression.codec = "none";
    world_run(w);
    memcpy(loss, w->loss, sizeof loss);
    w->job.compression.codec = "onebit";
    w->job.compression.warmup = 6;
    world_run(w);
    assert_memory_equal(w->loss, loss, 6 * sizeof(*loss));
    assert_true(w->loss[7] != loss[7]);
    w->job.compression.warmup = STEPS;
    world_run(w);
    assert_memory_equal(w->loss, loss, sizeof loss);
    world_free(w);
    world_clear(world_dir);
}

/* ---- resuming in another split: what is owed in all stays ---- */

/* Add tensor `name` to sum; false: there is none. */
static bool add_tensor(const sn_ckpt *c, const char *name, double *sum, int64_t *ret_count)
{
    for (int i = 0; i < sn_ckpt_tensors(c); i++) {
        sn_piece p = {.name = name};
        if (strcmp(sn_ckpt_tensor(c, i, &p.dtype, &p.shape), name))
            continue;
        memcpy(p.extent, p.shape.dim, sizeof(p.extent));
        p.flat_count = *ret_count = sn_shape_count(p.shape);
        float *data = p.data = calloc((size_t) p.flat_count, sizeof(float));
        assert_ok(sn_ckpt_load(c, &p, 1));
        for (int64_t k = 0; k < p.flat_count; k++)
            sum[k] += (double) data[k];
        free(data);
        return true;
    }
    return false;
}

enum { MOST = 1 << 16 };

static int64_t owed_of(const sn_ckpt *c, const char *param, double *sum)
{
    int64_t n = 0;
    memset(sum, 0, MOST * sizeof(*sum));
    for (int h = 0; h < RANKS_MAX; h++) {
        char name[128];
        snprintf(name, sizeof name, "compress.owed.%d/%s", h, param);
        add_tensor(c, name, sum, &n);
        snprintf(name, sizeof name, "compress.owed_back/%s", param);
        if (h == 0)
            add_tensor(c, name, sum, &n);
    }
    return n;
}

/* Returns how much is owed of all parameters together. */
static double compare(const char *dir_a, const char *dir_b)
{
    sn_ckpt *a, *b;
    static double x[MOST], y[MOST];
    double all = 0;
    assert_ok(sn_ckpt_find(dir_a, NULL, &a));
    assert_ok(sn_ckpt_find(dir_b, NULL, &b));
    for (int i = 0; i < sn_ckpt_tensors(a); i++) {
        const char *name = sn_ckpt_tensor(a, i, &(sn_dtype){0}, &(sn_shape){0});
        int64_t n = 0, m = 0;
        bool seen = !strncmp(name, "compress.seen/", 14);
        if (!strncmp(name, "compress.", 9) && !seen)
            continue;
        memset(x, 0, sizeof x);
        memset(y, 0, sizeof y);
        assert_true(add_tensor(a, name, x, &n) && add_tensor(b, name, y, &m));
        assert_int_equal(n, m);
        assert_memory_equal(x, y, (size_t) n * sizeof(*x));
        if (strncmp(name, "adam", 4) && !seen && owed_of(a, name, x) > 0) {
            assert_true(owed_of(b, name, y) == n);
            for (int64_t k = 0; k < n; k++) {
                all += fabs(x[k]);
                if (fabs(x[k] - y[k]) > 1e-6 + 1e-5 * fabs(x[k]))
                    fail_msg("%s[%lld]: %g owed, then %g", name, (long long) k, x[k], y[k]);
            }
        }
    }
    sn_ckpt_close(a);
    sn_ckpt_close(b);
    return all;
}

static void to_hosts(world *w, int d)
{
    world_split(w, 1, 1, d);
    w->topo_hosts = d == 4 ? 4 : 0;
}

/* Between two hosts and four, with parameters that are kept and that travel: sums are coded once,
 * twice, or never. */
static void test_reshard(void **state)
{
    static const struct {
        const char *codec, *parameters;
        int d;
    } from[] = {{"onebit", "kept", 2},    {"onebit", "kept", 4},     {"onebit", "onebit", 2},
                {"topk:0.02", "kept", 2}, {"powersgd:2", "kept", 2}, {"powersgd:2", "ternary", 2}};
    static const struct {
        int t, p, d;
        const char *parameters;
    } to[] = {{1, 1, 4, "kept"}, {2, 1, 2, "kept"}, {1, 1, 2, "int8"}, {1, 1, 8, "kept"}};
    snprintf(world_copy_dir, sizeof world_copy_dir, "%s_copy", world_dir);
    for (size_t c = 0; c < SN_COUNT(from); c++) {
        world *w = world_of(0);
        to_hosts(w, from[c].d);
        w->job.steps = 5;
        w->job.compression.codec = from[c].codec;
        w->job.compression.parameters = from[c].parameters;
        world_run(w);
        for (size_t k = 0; k < SN_COUNT(to); k++) {
            world_split(w, to[k].t, to[k].p, to[k].d);
            w->topo_hosts = to[k].d == 4 ? 4 : 0;        /* also from two hosts to four */
            if (strcmp(from[c].parameters, "kept") == 0) /* else what was seen must stay */
                w->job.compression.parameters = to[k].parameters;
            world_run_fn(w, world_copy);
            for (int r = 0; r < world_size(w); r++)
                assert_int_equal(w->status[r], SN_OK);
            assert_true(compare(world_dir, world_copy_dir) > 0);
            world_clear(world_copy_dir);
        }
        world_free(w);
        world_clear(world_dir);
    }
}

/* To and from a job without compression. */
static void test_on_and_off(void **state)
{
    world *w = world_of(0);
    w->job.compression.codec = "none";
    w->job.steps = 4;
    world_run(w);
    w->resume = true;
    w->job.compression.codec = "onebit";
    w->job.steps = 8;
    world_run(w);
    w->job.compression.codec = "none";
    w->job.steps = 12;
    world_run(w);
    assert_int_equal(w->result[0].first_step, 8);
    assert_true(w->loss[11] < w->loss[0] || isnan(w->loss[0]));
    world_split(w, 1, 1, 1);
    w->job.compression.codec = "onebit"; /* one host: nothing to encode */
    w->job.steps = 16;
    world_run(w);
    assert_int_equal(w->result[0].steps, 16);
    world_free(w);
    world_clear(world_dir);
}

/* ---- auto ---- */

static void test_auto(void **state)
{
    sn_plan_compression c;
    sn_str why = {0};
    sn_job job = {.gpt = {4, 144, 4, 64, 256, 0}, .compression = {.codec = "auto"}};
    sn_topo *topo = world_topo(2, 2);
    assert_ok(sn_job_compression(&job, topo, 1.25e8, 2e9, &c, &why)); /* 1 Gbit/s */
    assert_int_not_equal(c.gradients.kind, SN_CODEC_NONE);
    assert_true(c.kept);
    assert_non_null(strstr(sn_str_get(&why), "auto takes"));
    sn_str_clear(&why);
    assert_ok(sn_job_compression(&job, topo, 1e11, 2e9, &c, &why));
    assert_int_equal(c.gradients.kind, SN_CODEC_NONE);
    assert_int_equal(c.parameters.kind, SN_CODEC_NONE);
    assert_false(c.kept);
    assert_non_null(strstr(sn_str_get(&why), "auto leaves the bytes as they are"));
    sn_str_clear(&why);
    assert_ok(sn_job_compression(&job, NULL, 0, 0, &c, &why));
    assert_int_equal(c.gradients.kind, SN_CODEC_NONE);
    job.compression.codec = "zip";
    assert_int_equal(sn_job_compression(&job, topo, 0, 0, &c, NULL), SN_EINVAL);
    assert_non_null(strstr(sn_errmsg(), "onebit"));
    job.compression.codec = "onebit";
    job.compression.parameters = "powersgd:2";
    assert_int_equal(sn_job_compression(&job, topo, 0, 0, &c, NULL), SN_EINVAL);
    sn_str_done(&why);
    sn_topo_free(topo);
}

/* Workers decide alike by what rank 0 measured, and a resumed run stays with it. */
static void test_auto_runs(void **state)
{
    world *w = world_of(0);
    w->job.compression.codec = "auto";
    w->job.steps = 4;
    world_run(w);
    w->resume = true;
    w->job.steps = 8;
    world_run(w);
    assert_int_equal(w->result[0].first_step, 4);
    assert_int_equal(w->result[1].steps, 8);
    world_free(w);
    world_clear(world_dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_saves),      cmocka_unit_test(test_resume),
        cmocka_unit_test(test_warmup),     cmocka_unit_test(test_reshard),
        cmocka_unit_test(test_on_and_off), cmocka_unit_test(test_auto),
        cmocka_unit_test(test_auto_runs),
    };
    return cmocka_run_group_tests_name(__FILE__, tests, world_setup, world_teardown);
}
