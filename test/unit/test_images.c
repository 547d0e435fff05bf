/* SPDX-License-Identifier: Apache-2.0
 * Pictures from idx files: plain and gzipped, in order and shuffled; files that are not right. */
#include "train/parts.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>
#include <zlib.h>

#include "unit/sn_test.h"

enum { COUNT = 50, HEIGHT = 3, WIDTH = 2, SIZE = HEIGHT * WIDTH };

static char dir[40];

/* `cut` bytes less (or, negative, more) than there should be. */
static void write_idx(const char *name, int kind, int count, int cut, bool packed)
{
    uint8_t data[2000] = {0, 0, 8, (uint8_t) kind, 0, 0, 0, (uint8_t) count};
    char path[128];
    int at = 8;
    if (kind == 3) {
        data[11] = HEIGHT;
        data[15] = WIDTH;
        at = 16;
    }
    for (int i = 0; i < count * (kind == 3 ? SIZE : 1); i++)
        data[at++] = (uint8_t) (kind == 3 ? i % 251 : i % 10);
    snprintf(path, sizeof path, "%s/%s-ubyte%s", dir, name, packed ? ".gz" : "");
    gzFile f = gzopen(path, packed ? "w" : "wT");
    assert_int_equal(gzwrite(f, data, (unsigned) (at - cut)), at - cut);
    gzclose(f);
}

static int setup(void **state)
{
    strcpy(dir, "/tmp/sn_images_XXXXXX");
    return mkdtemp(dir) ? 0 : 1;
}

static int teardown(void **state)
{
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command);
}

static void check(const char *prefix)
{
    sn_images *m;
    int64_t height, width;
    float pixels[3 * SIZE];
    int32_t labels[3];
    assert_ok(sn_images_open(dir, prefix, &m));
    assert_int_equal(sn_images_count(m, &height, &width), COUNT);
    assert_true(height == HEIGHT && width == WIDTH);
    sn_images_get(m, COUNT - 1, 3, pixels, labels); /* the last, the first, the second */
    for (int i = 0; i < SIZE; i++) {
        int last = ((COUNT - 1) * SIZE + i) % 251;
        assert_true(fabs((double) pixels[i] - last / 255.0) < 1e-6);
        assert_true(fabs((double) pixels[SIZE + i] - i / 255.0) < 1e-6);
    }
    assert_int_equal(labels[0], 9);
    assert_int_equal(labels[1], 0);
    assert_int_equal(labels[2], 1);
    for (int epoch = 0; epoch < 3; epoch++) {
        int kinds[10] = {0};
        for (int k = 0; k < COUNT; k++) {
            sn_images_draw(m, 4, epoch * COUNT + k, 1, pixels, labels);
            kinds[labels[0]]++;
        }
        for (int k = 0; k < 10; k++) /* every picture once */
            assert_int_equal(kinds[k], COUNT / 10);
    }
    sn_images_close(m);
}

static void test_read(void **state)
{
    write_idx("plain-images-idx3", 3, COUNT, 0, false);
    write_idx("plain-labels-idx1", 1, COUNT, 0, false);
    check("plain");
    write_idx("packed-images-idx3", 3, COUNT, 0, true);
    write_idx("packed-labels-idx1", 1, COUNT, 0, true);
    check("packed");
}

static void refuse(const char *prefix, sn_status want, const char *why)
{
    sn_images *m;
    assert_int_equal(sn_images_open(dir, prefix, &m), want);
    if (!strstr(sn_errmsg(), why))
        fail_msg("\"%s\" does not say \"%s\"", sn_errmsg(), why);
}

static void test_refused(void **state)
{
    refuse("none", SN_ENOTFOUND, "none-images-idx3-ubyte");
    write_idx("a-images-idx3", 3, COUNT, 0, false);
    refuse("a", SN_ENOTFOUND, "a-labels-idx1-ubyte");
    write_idx("a-labels-idx1", 1, COUNT - 1, 0, false);
    refuse("a", SN_ECORRUPT, "50 images and 49 labels");
    write_idx("a-labels-idx1", 3, 10, 0, false);
    refuse("a", SN_ECORRUPT, "no idx file of 1 dimensions");
    write_idx("b-images-idx3", 3, COUNT, 1, false);
    refuse("b", SN_ECORRUPT, "ends after 299 of 300");
    write_idx("b-images-idx3", 3, COUNT, -1, false);
    refuse("b", SN_ECORRUPT, "longer than its sizes say");
    write_idx("b-images-idx3", 3, 0, 0, false);
    refuse("b", SN_ECORRUPT, "a dimension of 0");
    write_idx("b-images-idx3", 3, COUNT, COUNT * SIZE + 10, false);
    refuse("b", SN_ECORRUPT, "ends after");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_read), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests_name(__FILE__, tests, setup, teardown);
}
