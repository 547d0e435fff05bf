/* SPDX-License-Identifier: Apache-2.0
 *
 * text — the training text as one run of bytes: [ train …………………… | held out … ].
 *
 * A small file is copied, so that an editor that shortens it while a job runs cannot take the
 * pages away under a worker; a large one is mapped. */
#include "train/train.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "os/os.h"

#define COPY_BYTES_MAX (INT64_C(64) << 20)

struct sn_text {
    sn_map map;   /* data NULL: not mapped */
    char *copy;   /* NULL: not copied */
    int64_t held; /* bytes at the end */
    int64_t bytes;
    uint64_t fingerprint;
};

static const uint8_t *bytes_of(const sn_text *t)
{
    return t->copy ? (const uint8_t *) t->copy : t->map.data;
}

/* The path as a person in another directory would have to type it; the file need not exist. */
static void absolute(const char *path, sn_str *out)
{
    char *real = realpath(path, NULL);
    if (real) {
        sn_str_add(out, real);
    } else {
        char *here = path[0] == '/' ? NULL : getcwd(NULL, 0);
        sn_str_printf(out, "%s%s%s", here ? here : "", here ? "/" : "", path);
        free(here);
    }
    free(real);
}

static sn_status unreadable(const char *path, int code)
{
    if (code == ENOENT || code == ENOTDIR)
        return sn_fail(SN_ENOTFOUND,
                       "data %s does not exist: name a text file or a directory with *.txt files",
                       path);
    if (code == EACCES || code == EPERM)
        return sn_fail(SN_EPERM, "data %s may not be read by this user: %s", path, strerror(code));
    return sn_fail(SN_EIO, "data %s cannot be read: %s", path, strerror(code));
}

static sn_status load_file(sn_text *t, const char *path, int64_t bytes)
{
    if (access(path, R_OK))
        return unreadable(path, errno);
    if (bytes == 0)
        return sn_fail(SN_EINVAL, "data %s is empty", path);
    if (bytes > COPY_BYTES_MAX) {
        SN_TRY(sn_file_map(path, &t->map));
        t->bytes = (int64_t) t->map.bytes;
        return SN_OK;
    }
    size_t got;
    SN_TRY(sn_file_read(path, (size_t) COPY_BYTES_MAX, &t->copy, &got));
    t->bytes = (int64_t) got;
    return SN_OK;
}

static int is_text(const struct dirent *entry)
{
    size_t n = strlen(entry->d_name);
    return entry->d_name[0] != '.' && n > 4 && !strcmp(entry->d_name + n - 4, ".txt");
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name); /* not by locale: the same on every host */
}

static sn_status append_file(sn_text *t, const char *path)
{
    struct stat st;
    if (stat(path, &st))
        return unreadable(path, errno);
    if (!S_ISREG(st.st_mode))
        return SN_OK;
    if (access(path, R_OK))
        return unreadable(path, errno);
    char *data;
    size_t bytes;
    SN_TRY(sn_file_read(path, SIZE_MAX / 4, &data, &bytes));
    char *all = realloc(t->copy, (size_t) t->bytes + bytes + 1);
    if (all) {
        memcpy(all + t->bytes, data, bytes);
        t->copy = all;
        t->bytes += (int64_t) bytes;
    }
    free(data);
    return all ? SN_OK : sn_fail(SN_ENOMEM, "data %s: no memory for %zu more bytes", path, bytes);
}

static sn_status load_dir(sn_text *t, const char *path)
{
    struct dirent **entry;
    int n = scandir(path, &entry, is_text, by_bytes);
    if (n < 0)
        return unreadable(path, errno);
    sn_status status = SN_OK;
    for (int i = 0; i < n; i++) {
        sn_str file = {0};
        sn_str_printf(&file, "%s/%s", path, entry[i]->d_name);
        if (status == SN_OK)
            status = append_file(t, sn_str_get(&file));
        sn_str_done(&file);
        free(entry[i]);
    }
    free(entry);
    if (status == SN_OK && t->bytes == 0)
        return sn_fail(SN_EINVAL, "data %s is a directory with no text in any *.txt file of it",
                       path);
    return status;
}

static sn_status split(sn_text *t, const char *path, double held_out, int64_t sequence)
{
    t->held = (int64_t) ((double) t->bytes * held_out);
    int64_t train = t->bytes - t->held, least = SN_MIN(train, t->held);
    if (least >= sequence + 1)
        return SN_OK;
    return sn_fail(SN_EINVAL,
                   "data %s is too short: its %s part has %lld of %lld bytes, one sample of model "
                   "sequence %lld needs %lld: use a longer text or a shorter sequence",
                   path, least == train ? "training" : "held-out", (long long) least,
                   (long long) t->bytes, (long long) sequence, (long long) sequence + 1);
}

static sn_status load(sn_text *t, const char *path, double held_out, int64_t sequence)
{
    struct stat st;
    if (stat(path, &st))
        return unreadable(path, errno);
    if (S_ISDIR(st.st_mode))
        SN_TRY(load_dir(t, path));
    else if (S_ISREG(st.st_mode))
        SN_TRY(load_file(t, path, st.st_size));
    else
        return sn_fail(SN_EINVAL, "data %s is neither a regular file nor a directory", path);
    SN_TRY(split(t, path, held_out, sequence));
    t->fingerprint = XXH3_64bits(bytes_of(t), (size_t) t->bytes);
    return SN_OK;
}

sn_status sn_text_open(const char *path, double held_out, int64_t sequence, sn_text **ret)
{
    if (!path || !path[0])
        return sn_fail(SN_EINVAL, "data: no file named");
    if (!(held_out > 0 && held_out < 1))
        return sn_fail(SN_EINVAL, "held_out %g is not between 0 and 1", held_out);
    sn_text *t = sn_alloc(sizeof(*t));
    sn_str full = {0};
    absolute(path, &full);
    sn_status status = load(t, sn_str_get(&full), held_out, sequence);
    sn_str_done(&full);
    if (status < 0) {
        sn_text_close(t);
        return status;
    }
    *ret = t;
    return SN_OK;
}

void sn_text_close(sn_text *t)
{
    if (!t)
        return;
    if (t->map.data)
        sn_file_unmap(&t->map);
    free(t->copy);
    free(t);
}

int64_t sn_text_train_bytes(const sn_text *t)
{
    return t->bytes - t->held;
}

int64_t sn_text_held_bytes(const sn_text *t)
{
    return t->held;
}

const uint8_t *sn_text_train(const sn_text *t)
{
    return bytes_of(t);
}

const uint8_t *sn_text_held(const sn_text *t)
{
    return bytes_of(t) + t->bytes - t->held;
}

uint64_t sn_text_fingerprint(const sn_text *t)
{
    return t->fingerprint;
}
