/* SPDX-License-Identifier: Apache-2.0
 * Save, publish, find, load; damaged, foreign and old checkpoints. */
#include "ckpt/parts.h"
#include "unit/ckpt_world.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];
static world w;
static cut *in;

/* One directory, one world of three ranks, for each test. */
static int setup(void **state)
{
    world_dir(dir);
    w = (world){.tensors = 2,
                .t = {{"wte", SN_F32, SN_SHAPE(64, 12), 1}, {"h.0.bias", SN_BF16, SN_SHAPE(7), 2}}};
    sn_prng p = {.seed = 5};
    in = calloc(1, sizeof *in);
    in->ranks = 2;
    cut_block(in, &p, &w.t[0], 0, 0, 32, 2);
    cut_block(in, &p, &w.t[0], 0, 32, 32, 2);
    cut_block(in, &p, &w.t[1], -1, 0, 0, 1);
    cut_fill(&w, in);
    return 0;
}

static int teardown(void **state)
{
    cut_free(in);
    world_remove(dir);
    return 0;
}

static const char *path_of(int64_t step, const char *name)
{
    static char path[256];
    char step_dir[CKPT_STEP_DIR];
    ckpt_step_dir(step_dir, step);
    snprintf(path, sizeof path, "%s/%s/%s", dir, step_dir, name);
    return path;
}

static int64_t found_step(const char *want_skipped)
{
    sn_ckpt *c = NULL;
    sn_str skipped = {0};
    if (sn_ckpt_find(dir, &skipped, &c) < 0)
        fail_msg("%s", sn_errmsg());
    if (!strstr(sn_str_get(&skipped), want_skipped))
        fail_msg("\"%s\" lacks \"%s\"", sn_str_get(&skipped), want_skipped);
    int64_t step = sn_ckpt_step(c);
    assert_ok(cut_load(c, in));
    assert_true(cut_equal(&w, in));
    sn_ckpt_close(c);
    sn_str_done(&skipped);
    return step;
}

static void test_save_and_find(void **state)
{
    sn_ckpt *c;
    assert_int_equal(sn_ckpt_find(dir, NULL, &c), SN_ENOTFOUND);
    assert_int_equal(sn_ckpt_find("/no/such/place", NULL, &c), SN_ENOTFOUND);
    assert_ok(cut_save(dir, 100, in, 0));
    assert_ok(cut_save(dir, 200, in, 0));
    assert_int_equal(found_step(""), 200);
    assert_ok(sn_ckpt_open(dir, 100, &c));
    assert_string_equal(sn_ckpt_meta(c), "{ \"at\": 100, \"lr\": 0.1 }"); /* verbatim */
    assert_int_equal(sn_ckpt_tensors(c), 2);
    sn_dtype dtype;
    sn_shape shape;
    assert_string_equal(sn_ckpt_tensor(c, 1, &dtype, &shape), "wte");
    assert_true(dtype == SN_F32 && sn_shape_equal(shape, SN_SHAPE(64, 12)));
    assert_ok(cut_load(c, in));
    assert_true(cut_equal(&w, in));
    sn_ckpt_close(c);
    sn_ckpt_close(NULL);
    assert_int_equal(sn_ckpt_open(dir, 300, &c), SN_ENOTFOUND);
}

/* Whole tensors: the file is one that any reader of safetensors reads. */
static void test_single_card_is_plain(void **state)
{
    cut one = {.ranks = 1};
    sn_prng p = {.seed = 1};
    cut_block(&one, &p, &w.t[0], -1, 0, 0, 1);
    cut_block(&one, &p, &w.t[1], -1, 0, 0, 1);
    cut_fill(&w, &one);
    assert_ok(cut_save(dir, 7, &one, 0));
    sn_ckpt *c;
    assert_ok(sn_ckpt_open_file(path_of(7, "r0000.safetensors"), &c));
    assert_int_equal(sn_ckpt_tensors(c), 2);
    assert_ok(cut_load(c, in)); /* into the pieces of two ranks */
    assert_true(cut_equal(&w, in));
    sn_ckpt_close(c);
    for (int i = 0; i < 2; i++)
        free(one.piece[0][i].data);
}

static void flip(const char *path, off_t at)
{
    int fd = open(path, O_RDWR);
    char byte;
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static off_t bytes_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

/* Whatever single bit of whatever file is wrong: it is named, and the one before is used. */
static void test_flipped_bits(void **state)
{
    static const char *const name[] = {"manifest.json", "r0000.safetensors", "r0001.safetensors"};
    assert_ok(cut_save(dir, 100, in, 0));
    assert_ok(cut_save(dir, 200, in, 0));
    for (size_t f = 0; f < SN_COUNT(name); f++) {
        const char *path = path_of(200, name[f]);
        off_t bytes = bytes_of(path), stride = bytes / 40 + 1;
        for (off_t at = 0; at < bytes; at += stride) {
            flip(path, at);
            char want[96];
            snprintf(want, sizeof want, "step-00000200: %s", name[f]);
            assert_int_equal(found_step(want), 100);
            found_step("; using step-00000100");
            flip(path, at);
        }
    }
    assert_int_equal(found_step(""), 200);
}

static void test_torn_files(void **state)
{
    assert_ok(cut_save(dir, 100, in, 0));
    assert_ok(cut_save(dir, 200, in, 0));
    char *text;
    size_t bytes;
    static const char *const name[] = {"manifest.json", "r0001.safetensors"};
    for (size_t f = 0; f < SN_COUNT(name); f++) {
        const char *path = path_of(200, name[f]);
        assert_ok(sn_file_read(path, 1 << 20, &text, &bytes));
        for (size_t cut_at = 0; cut_at < bytes; cut_at += bytes / 30 + 1) {
            assert_int_equal(truncate(path, (off_t) cut_at), 0);
            assert_int_equal(found_step(name[f]), 100);
        }
        assert_int_equal(unlink(path), 0);
        assert_int_equal(found_step(name[f]), 100);
        assert_int_equal(mkfifo(path, 0600), 0); /* must not hang */
        assert_int_equal(found_step(name[f]), 100);
        unlink(path);
        assert_ok(sn_file_write(path, text, bytes));
        assert_int_equal(found_step(""), 200);
        free(text);
    }
    assert_ok(sn_file_read(path_of(100, "manifest.json"), 1 << 20, &text, &bytes));
    assert_ok(sn_file_write(path_of(200, "manifest.json"), text, bytes)); /* a foreign one */
    assert_int_equal(found_step("manifest.json is of step 100"), 100);
    free(text);
    unlink(path_of(100, "r0000.safetensors"));
    sn_ckpt *c;
    assert_int_equal(sn_ckpt_find(dir, NULL, &c), SN_ENOTFOUND);
    assert_non_null(strstr(sn_errmsg(), "step-00000100"));
    assert_non_null(strstr(sn_errmsg(), "r0000.safetensors"));
}

/* Opened without reading the files: the damage is found when they are used. */
static void test_damage_found_at_load(void **state)
{
    assert_ok(cut_save(dir, 100, in, 0));
    const char *path = path_of(100, "r0001.safetensors");
    flip(path, bytes_of(path) - 1);
    sn_ckpt *c;
    assert_ok(sn_ckpt_open(dir, 100, &c));
    assert_int_equal(sn_ckpt_load(c, in->piece[1], in->pieces[1]), SN_ECORRUPT);
    assert_non_null(strstr(sn_errmsg(), "r0001.safetensors"));
    sn_ckpt_close(c);
}

static void test_wrong_wishes(void **state)
{
    assert_ok(cut_save(dir, 100, in, 0));
    sn_ckpt *c;
    float room[64 * 12];
    assert_ok(sn_ckpt_open(dir, 100, &c));
    sn_piece p = {.name = "wte",
                  .dtype = SN_F32,
                  .shape = SN_SHAPE(64, 12),
                  .extent = {64, 12},
                  .flat_count = 64 * 12,
                  .data = room};
    sn_piece q = p;
    assert_ok(sn_ckpt_load(c, &p, 1));
    q.name = "wpe";
    assert_int_equal(sn_ckpt_load(c, &q, 1), SN_ENOTFOUND);
    assert_non_null(strstr(sn_errmsg(), "\"wte\""));
    q = p;
    q.shape.dim[1] = 13;
    assert_int_equal(sn_ckpt_load(c, &q, 1), SN_EMISMATCH);
    assert_non_null(strstr(sn_errmsg(), "F32 [64,12]"));
    assert_non_null(strstr(sn_errmsg(), "F32 [64,13]"));
    q = p;
    q.dtype = SN_BF16;
    assert_int_equal(sn_ckpt_load(c, &q, 1), SN_EMISMATCH);
    q = p;
    q.begin[0] = 1;
    assert_int_equal(sn_ckpt_load(c, &q, 1), SN_EINVAL);
    q = p;
    q.data = NULL;
    assert_int_equal(sn_ckpt_load(c, &q, 1), SN_EINVAL);
    sn_ckpt_close(c);
}

static void test_wrong_saves(void **state)
{
    sn_str part = {0};
    float room[64 * 12] = {0};
    sn_piece p = {.name = "wte",
                  .dtype = SN_F32,
                  .shape = SN_SHAPE(64, 12),
                  .extent = {64, 12},
                  .flat_count = 64 * 12,
                  .data = room};
    static const char *const names[] = {"", "__metadata__", "\xff"};
    for (size_t i = 0; i < SN_COUNT(names); i++) {
        sn_piece q = p;
        q.name = names[i];
        assert_int_equal(sn_ckpt_write_part(dir, 1, 0, &q, 1, &part), SN_EINVAL);
    }
    sn_piece q = p;
    q.flat_count = 1 << 20;
    assert_int_equal(sn_ckpt_write_part(dir, 1, 0, &q, 1, &part), SN_EINVAL);
    assert_int_equal(sn_ckpt_write_part(dir, -1, 0, &p, 1, &part), SN_EINVAL);
    sn_piece twice[] = {p, p};
    assert_int_equal(sn_ckpt_write_part(dir, 1, 0, twice, 2, &part), SN_EINVAL);
    assert_non_null(strstr(sn_errmsg(), "twice"));
    assert_ok(sn_ckpt_write_part(dir, 1, 0, twice, 1, &part));
    const char *text[] = {part.data, part.data};
    assert_int_equal(sn_ckpt_publish(dir, 1, text, 2, "{}", 0), SN_ECORRUPT); /* one file twice */
    assert_int_equal(sn_ckpt_publish(dir, 1, text, 1, "[]", 0), SN_EINVAL);
    assert_int_equal(sn_ckpt_publish(dir, 1, text, 1, "{", 0), SN_EINVAL);
    assert_int_equal(sn_ckpt_publish(dir, 1, text, 0, "{}", 0), SN_EINVAL);
    assert_int_equal(sn_ckpt_publish(dir, 2, text, 1, "{}", 0), SN_ENOTFOUND);
    assert_int_equal(truncate(path_of(1, "r0000.safetensors"), 100), 0);
    assert_int_equal(sn_ckpt_publish(dir, 1, text, 1, "{}", 0), SN_ECORRUPT);
    unlink(path_of(1, "r0000.safetensors"));
    assert_int_equal(sn_ckpt_publish(dir, 1, text, 1, "{}", 0), SN_ENOTFOUND);
    assert_non_null(strstr(sn_errmsg(), "shared by all hosts"));
    sn_str_done(&part);
}

static int entries(int64_t step)
{
    DIR *d = opendir(path_of(step, ""));
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return d ? n : -1;
}

static void test_keep(void **state)
{
    for (int64_t step = 10; step <= 50; step += 10)
        assert_ok(cut_save(dir, step, in, 0));
    unlink(path_of(30, "manifest.json")); /* a save that was never finished */
    assert_ok(cut_save(dir, 60, in, 3));
    assert_int_equal(entries(10), -1);
    assert_int_equal(entries(20), -1);
    assert_int_equal(entries(30), -1);
    assert_int_equal(entries(40), 3);
    assert_int_equal(entries(50), 3);
    FILE *f = fopen(path_of(40, "notes.txt"), "w"); /* a user's own file stays */
    fclose(f);
    assert_ok(cut_save(dir, 70, in, 1));
    assert_int_equal(entries(40), 1);
    assert_int_equal(entries(50), -1);
    assert_int_equal(entries(60), -1);
    assert_int_equal(found_step(""), 70);
    /* Back to an earlier step: what is later is not counted and not touched. */
    assert_ok(cut_save(dir, 55, in, 1));
    assert_int_equal(entries(55), 3);
    assert_int_equal(entries(70), 3);
}

/* The same step again: the old one is whole until the new one is, then its files go. */
static void test_same_step_again(void **state)
{
    assert_ok(cut_save(dir, 100, in, 0));
    sn_str part = {0};
    assert_ok(sn_ckpt_write_part(dir, 100, 0, in->piece[0], in->pieces[0], &part));
    assert_non_null(strstr(part.data, "r0000-1.safetensors"));
    assert_int_equal(found_step(""), 100);
    assert_ok(cut_save(dir, 100, in, 0));
    assert_int_equal(entries(100), 3);
    assert_int_equal(found_step(""), 100);
    sn_str_done(&part);
}

static void test_hostile_manifest(void **state)
{
    static const char *const bad[] = {
        "",
        "{}",
        "[]",
        "null",
        "{\"format\":\"x\"}",
        "{\"format\":\"supernode-checkpoint\",\"version\":1,\"step\":1,\"meta\":\"\",\"parts\":[1]"
        "}",
        "{\"format\":\"supernode-checkpoint\",\"version\":1,\"step\":1,\"meta\":\"\",\"parts\":["
        "{\"file\":\"../x\",\"bytes\":1,\"xxh3_64\":\"0123456789abcdef\",\"pieces\":[]}]}",
        "{\"format\":\"supernode-checkpoint\",\"version\":1,\"step\":1,\"meta\":\"\",\"parts\":["
        "{\"file\":\"/etc/passwd\",\"bytes\":1,\"xxh3_64\":\"0123456789abcdef\",\"pieces\":[]}]}",
        "{\"format\":\"supernode-checkpoint\",\"version\":1,\"step\":1,\"step\":1,\"meta\":\"\","
        "\"parts\":[]}",
        "{\"format\":\"supernode-checkpoint\",\"version\":1,\"step\":1,\"meta\":\"\",\"parts\":["
        "{\"file\":\"a\",\"bytes\":1,\"xxh3_64\":\"0123456789abcdef\",\"pieces\":[{\"tensor\":"
        "\"t\","
        "\"dtype\":\"F32\",\"shape\":[4611686018427387904,4]}]}]}",
        "{\"format\":\"supernode-checkpoint\",\"version\":1,\"step\":1,\"meta\":\"\",\"parts\":["
        "{\"file\":\"a\",\"bytes\":1,\"xxh3_64\":\"0123456789abcdef\",\"pieces\":[{\"tensor\":"
        "\"t\","
        "\"dtype\":\"F32\",\"shape\":[4],\"key\":\"t@0\",\"begin\":[3],\"extent\":[2],"
        "\"flat\":[0,2]}]}]}",
        "{\"format\":\"supernode-checkpoint\",\"version\":2,\"step\":1,\"meta\":\"\",\"parts\":[]}",
    };
    for (size_t i = 0; i < SN_COUNT(bad); i++) {
        ckpt_table t = {.arena = sn_arena_create()};
        if (ckpt_manifest_parse(bad[i], strlen(bad[i]), false, &t) >= 0)
            fail_msg("accepted: %s", bad[i]);
        assert_int_equal(ckpt_manifest_parse(bad[i], strlen(bad[i]), true, &t), SN_ECORRUPT);
        sn_arena_free(t.arena);
    }
    static const struct {
        const char *name;
        bool ok;
    } file[] = {{"r0000.safetensors", true}, {"", false},     {"a/b", false}, {"..", false},
                {".hidden", false},          {"a..b", false}, {"/a", false},  {"a\\b", false}};
    for (size_t i = 0; i < SN_COUNT(file); i++)
        assert_int_equal(ckpt_file_name_ok(file[i].name), file[i].ok);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_save_and_find),        T(test_single_card_is_plain),
        T(test_flipped_bits),         T(test_torn_files),
        T(test_damage_found_at_load), T(test_wrong_wishes),
        T(test_wrong_saves),          T(test_keep),
        T(test_same_step_again),      T(test_hostile_manifest),
    };
    return sn_test_run(tests);
}
