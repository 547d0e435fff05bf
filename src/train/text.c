/* SPDX-License-Identifier: Apache-2.0
 *
 * text — the training text as one run of bytes: [ train …………………… | held out … ].
 *
 * A small file is copied, so that an editor that shortens it while a job runs cannot take the
 * pages away under a worker; a large one is mapped. The files of a large directory are copied into
 * one file beside them, whose name follows from theirs, and that is mapped. */
#include "train/parts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "os/os.h"

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
    if (bytes > TRAIN_COPY_BYTES_MAX) {
        SN_TRY(sn_file_map(path, &t->map));
        t->bytes = (int64_t) t->map.bytes;
        return SN_OK;
    }
    size_t got;
    SN_TRY(sn_file_read(path, (size_t) TRAIN_COPY_BYTES_MAX, &t->copy, &got));
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

/* ---- the files of a directory ---- */

typedef struct files {
    sn_arena *arena;
    const char **path;
    int count;
    int64_t bytes;
    uint64_t named; /* names, lengths, times */
} files;

static sn_status list_files(const char *path, files *f)
{
    struct dirent **entry;
    int n = scandir(path, &entry, is_text, by_bytes);
    if (n < 0)
        return unreadable(path, errno);
    sn_status status = SN_OK;
    f->path = SN_NEW_N(f->arena, const char *, SN_MAX(1, n));
    for (int i = 0; i < n; i++) {
        struct stat st;
        const char *file = sn_arena_printf(f->arena, "%s/%s", path, entry[i]->d_name);
        free(entry[i]);
        if (status < 0)
            continue;
        if (stat(file, &st)) {
            status = unreadable(file, errno);
        } else if (S_ISREG(st.st_mode)) {
            if (access(file, R_OK))
                status = unreadable(file, errno);
            f->path[f->count++] = file;
            f->bytes += st.st_size;
            f->named = sn_hash64(f->named, sn_hash_bytes(file, strlen(file)),
                                 (uint64_t) st.st_size ^ (uint64_t) st.st_mtime << 40);
        }
    }
    free(entry);
    return status;
}

static sn_status read_all(sn_text *t, const files *f)
{
    t->copy = malloc((size_t) f->bytes + 1);
    if (!t->copy)
        return sn_fail(SN_ENOMEM, "data: no memory for %lld bytes", (long long) f->bytes);
    for (int i = 0; i < f->count; i++) {
        char *data;
        size_t bytes;
        SN_TRY(sn_file_read(f->path[i], (size_t) TRAIN_COPY_BYTES_MAX + 1, &data, &bytes));
        bool grew = t->bytes + (int64_t) bytes > f->bytes;
        if (!grew) {
            memcpy(t->copy + t->bytes, data, bytes);
            t->bytes += (int64_t) bytes;
        }
        free(data);
        if (grew)
            return sn_fail(SN_EIO, "data %s grew while it was read", f->path[i]);
    }
    return SN_OK;
}

static sn_status copy_into(int out, const char *path)
{
    char block[65536];
    ssize_t n = 0;
    int in = open(path, O_RDONLY | O_CLOEXEC);
    if (in < 0)
        return unreadable(path, errno);
    sn_status status = SN_OK;
    while (status >= 0 && (n = read(in, block, sizeof block)) > 0)
        status = sn_write_all(out, block, (size_t) n);
    if (n < 0)
        status = unreadable(path, errno);
    close(in);
    return status;
}

static sn_status join_files(const files *f, const char *joined)
{
    const char *part = sn_arena_printf(f->arena, "%s.%d", joined, (int) getpid());
    int out = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (out < 0) {
        sn_status status = sn_file_failed("write", part);
        return sn_fail_in(status,
                          "a text of %lld bytes in several files is kept as one "
                          "(data_cache: DIR says where)",
                          (long long) f->bytes);
    }
    sn_status status = SN_OK;
    for (int i = 0; i < f->count && status >= 0; i++)
        status = copy_into(out, f->path[i]);
    if (status >= 0 && (fsync(out) || rename(part, joined)))
        status = sn_file_failed("write", joined);
    close(out);
    if (status < 0)
        unlink(part);
    return status;
}

static sn_status map_joined(sn_text *t, const char *path, const char *cache, const files *f)
{
    struct stat st;
    const char *joined = sn_arena_printf(f->arena, "%s/.text.%016llx.joined", cache ? cache : path,
                                         (unsigned long long) f->named);
    if (stat(joined, &st) || st.st_size != f->bytes)
        SN_TRY(join_files(f, joined));
    SN_TRY(sn_file_map(joined, &t->map));
    t->bytes = (int64_t) t->map.bytes;
    return SN_OK;
}

static sn_status load_dir(sn_text *t, const char *path, const char *cache)
{
    files f = {.arena = sn_arena_create()};
    sn_status status = list_files(path, &f);
    if (status >= 0 && f.bytes == 0)
        status =
            sn_fail(SN_EINVAL, "data %s is a directory with no text in any *.txt file of it", path);
    if (status >= 0)
        status = f.bytes > TRAIN_COPY_BYTES_MAX ? map_joined(t, path, cache, &f) : read_all(t, &f);
    sn_arena_free(f.arena);
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

/* A mapped text is looked at in places: reading all of it would take as long as a pass over it. */
static uint64_t fingerprint(const sn_text *t)
{
    enum { BLOCK = 4096, BLOCKS = 1024 };
    const uint8_t *p = bytes_of(t);
    if (t->copy)
        return XXH3_64bits(p, (size_t) t->bytes);
    uint64_t h = (uint64_t) t->bytes;
    for (int64_t i = 0; i < BLOCKS; i++)
        h = sn_hash64(h, XXH3_64bits(p + (t->bytes - BLOCK) / (BLOCKS - 1) * i, BLOCK), 0);
    return sn_hash64(h, XXH3_64bits(p + t->bytes - BLOCK, BLOCK), 1);
}

static sn_status load(sn_text *t, const char *path, const char *cache, double held_out,
                      int64_t sequence)
{
    struct stat st;
    if (stat(path, &st))
        return unreadable(path, errno);
    if (S_ISDIR(st.st_mode))
        SN_TRY(load_dir(t, path, cache));
    else if (S_ISREG(st.st_mode))
        SN_TRY(load_file(t, path, st.st_size));
    else
        return sn_fail(SN_EINVAL, "data %s is neither a regular file nor a directory", path);
    SN_TRY(split(t, path, held_out, sequence));
    t->fingerprint = fingerprint(t);
    return SN_OK;
}

sn_status sn_text_open(const char *path, double held_out, int64_t sequence, sn_text **ret)
{
    return train_text_open(path, NULL, held_out, sequence, ret);
}

sn_status train_text_open(const char *path, const char *cache, double held_out, int64_t sequence,
                          sn_text **ret)
{
    if (!path || !path[0])
        return sn_fail(SN_EINVAL, "data: no file named");
    if (!(held_out > 0 && held_out < 1))
        return sn_fail(SN_EINVAL, "held_out %g is not between 0 and 1", held_out);
    if (cache)
        SN_TRY(sn_dir_create(cache));
    sn_text *t = sn_alloc(sizeof(*t));
    sn_str full = {0};
    absolute(path, &full);
    sn_status status = load(t, sn_str_get(&full), cache, held_out, sequence);
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

bool sn_text_mapped(const sn_text *t)
{
    return !t->copy;
}
