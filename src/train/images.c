/* SPDX-License-Identifier: Apache-2.0
 *
 * images — pictures with labels from idx files, plain or gzipped, as MNIST and its likes come.
 *
 *   PREFIX-images-idx3-ubyte   00 00 08 03 | count | height | width | bytes …      big-endian
 *   PREFIX-labels-idx1-ubyte   00 00 08 01 | count | bytes …
 *
 * Batches are taken in the order that texts are: each epoch every picture once, shuffled. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "train/parts.h"

#define BYTES_MAX (INT64_C(1) << 34)

struct sn_images {
    uint8_t *pixels, *labels;
    int64_t count, height, width;
};

typedef struct source {
    gzFile file;
    const char *path;
} source;

static sn_status open_source(const char *folder, const char *prefix, const char *what, sn_str *path,
                             source *ret)
{
    static const char *const ending[] = {"", ".gz"};
    for (size_t i = 0; i < SN_COUNT(ending); i++) {
        sn_str_clear(path);
        sn_str_printf(path, "%s/%s-%s-ubyte%s", folder, prefix, what, ending[i]);
        if (access(sn_str_get(path), F_OK))
            continue;
        *ret = (source){gzopen(sn_str_get(path), "re"), sn_str_get(path)};
        return ret->file ? SN_OK : sn_file_failed("open", sn_str_get(path));
    }
    return sn_fail(SN_ENOTFOUND, "there is no %s (nor without .gz): a folder of idx files is read",
                   sn_str_get(path));
}

static sn_status get(const source *s, void *to, int64_t bytes)
{
    for (int64_t at = 0; at < bytes;) {
        int n = gzread(s->file, (char *) to + at, (unsigned) SN_MIN(bytes - at, 1 << 24));
        if (n <= 0)
            return sn_fail(SN_ECORRUPT, "%s ends after %lld of %lld bytes, or is damaged", s->path,
                           (long long) at, (long long) bytes);
        at += n;
    }
    return SN_OK;
}

/* The sizes of `rank` dimensions and the bytes after them, to which nothing may follow. */
static sn_status read_idx(const source *s, int rank, int64_t size[3], uint8_t **ret)
{
    uint8_t head[4], number[4], more;
    int64_t bytes = 1;
    SN_TRY(get(s, head, 4));
    if (head[0] || head[1] || head[2] != 8 || head[3] != rank)
        return sn_fail(SN_ECORRUPT, "%s is no idx file of %d dimensions of bytes", s->path, rank);
    for (int d = 0; d < rank; d++) {
        SN_TRY(get(s, number, 4));
        size[d] = (int64_t) number[0] << 24 | number[1] << 16 | number[2] << 8 | number[3];
        if (size[d] < 1 || size[d] > BYTES_MAX / bytes)
            return sn_fail(SN_ECORRUPT, "%s has a dimension of %lld", s->path, (long long) size[d]);
        bytes *= size[d];
    }
    uint8_t *data = malloc((size_t) bytes);
    if (!data)
        return sn_fail(SN_ENOMEM, "%s: no memory for %lld bytes", s->path, (long long) bytes);
    sn_status status = get(s, data, bytes);
    if (status >= 0 && gzread(s->file, &more, 1) != 0)
        status = sn_fail(SN_ECORRUPT, "%s is longer than its sizes say", s->path);
    if (status < 0)
        free(data);
    else
        *ret = data;
    return status;
}

static sn_status read_file(const char *folder, const char *prefix, const char *what, int rank,
                           int64_t size[3], uint8_t **ret)
{
    sn_str path = {0};
    source s;
    sn_status status = open_source(folder, prefix, what, &path, &s);
    if (status >= 0) {
        status = read_idx(&s, rank, size, ret);
        gzclose(s.file);
    }
    sn_str_done(&path);
    return status;
}

sn_status sn_images_open(const char *folder, const char *prefix, sn_images **ret)
{
    sn_images *m = sn_alloc(sizeof *m);
    int64_t size[3], labels[3];
    sn_status status = read_file(folder, prefix, "images-idx3", 3, size, &m->pixels);
    if (status >= 0)
        status = read_file(folder, prefix, "labels-idx1", 1, labels, &m->labels);
    if (status >= 0 && labels[0] != size[0])
        status = sn_fail(SN_ECORRUPT, "%s/%s: %lld images and %lld labels", folder, prefix,
                         (long long) size[0], (long long) labels[0]);
    if (status < 0) {
        sn_images_close(m);
        return status;
    }
    m->count = size[0];
    m->height = size[1];
    m->width = size[2];
    *ret = m;
    return SN_OK;
}

void sn_images_close(sn_images *m)
{
    if (!m)
        return;
    free(m->pixels);
    free(m->labels);
    free(m);
}

int64_t sn_images_count(const sn_images *m, int64_t *ret_height, int64_t *ret_width)
{
    if (ret_height)
        *ret_height = m->height;
    if (ret_width)
        *ret_width = m->width;
    return m->count;
}

static void put(const sn_images *m, int64_t index, float *pixels, int32_t *label)
{
    int64_t n = m->height * m->width;
    const uint8_t *from = m->pixels + index * n;
    for (int64_t p = 0; p < n; p++)
        pixels[p] = (float) from[p] * (1 / 255.0f);
    *label = m->labels[index];
}

void sn_images_get(const sn_images *m, int64_t first, int64_t count, float *pixels, int32_t *labels)
{
    for (int64_t i = 0; i < count; i++)
        put(m, (first + i) % m->count, pixels + i * m->height * m->width, labels + i);
}

void sn_images_draw(const sn_images *m, uint64_t seed, int64_t first, int64_t count, float *pixels,
                    int32_t *labels)
{
    uint64_t n = (uint64_t) m->count;
    for (int64_t i = 0; i < count; i++) {
        uint64_t k = (uint64_t) (first + i);
        put(m, (int64_t) train_permute(seed, k / n, n, k % n), pixels + i * m->height * m->width,
            labels + i);
    }
}
