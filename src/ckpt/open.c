/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/parts.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- one file of a checkpoint ---- */

sn_status ckpt_file_open(const sn_ckpt *c, const ckpt_file *file, char path[4096], ckpt_reader *ret)
{
    if (snprintf(path, 4096, "%s/%s", c->dir, file->name) >= 4096)
        return sn_fail(SN_EINVAL, "the path %.80s… is too long", c->dir);
    return ckpt_reader_open(path, ret);
}

sn_status ckpt_file_verify(ckpt_file *file, ckpt_reader *r)
{
    uint64_t hash;
    if (file->verified || !file->hashed)
        return SN_OK;
    if (r->bytes != file->bytes)
        return sn_fail(SN_ECORRUPT, "%s: %llu bytes, the manifest says %llu", file->name,
                       (unsigned long long) r->bytes, (unsigned long long) file->bytes);
    SN_TRY(ckpt_reader_hash(r, &hash));
    if (hash != file->hash)
        return sn_fail(SN_ECORRUPT,
                       "%s: checksum differs: %016" PRIx64 ", the manifest says %016" PRIx64,
                       file->name, hash, file->hash);
    file->verified = true;
    return SN_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const ckpt_entry *) a)->name, ((const ckpt_entry *) b)->name);
}

sn_status ckpt_file_header(const sn_ckpt *c, ckpt_file *file, ckpt_reader *r)
{
    ckpt_entry *e;
    int n;
    if (file->data_at)
        return SN_OK;
    sn_status status = ckpt_reader_header(r, c->table.arena, &e, &n, &file->data_at);
    if (status < 0)
        return sn_fail_in(status, "%s", file->name);
    if (n)
        qsort(e, (size_t) n, sizeof *e, by_name);
    file->entry = e;
    file->entries = n;
    return SN_OK;
}

const ckpt_entry *ckpt_file_entry(const ckpt_file *file, const char *key)
{
    ckpt_entry want = {.name = key};
    if (!file->entries)
        return NULL;
    return bsearch(&want, file->entry, (size_t) file->entries, sizeof want, by_name);
}

/* ---- open and close ---- */

static sn_ckpt *create(const char *dir)
{
    sn_ckpt *c = sn_alloc(sizeof *c);
    c->table.arena = sn_arena_create();
    c->table.meta = "{}";
    c->dir = sn_strdup(dir);
    return c;
}

void sn_ckpt_close(sn_ckpt *c)
{
    if (!c)
        return;
    sn_arena_free(c->table.arena);
    free(c->dir);
    free(c);
}

static sn_status read_manifest(sn_ckpt *c)
{
    char path[4096];
    ckpt_reader r;
    if (snprintf(path, sizeof path, "%s/%s", c->dir, CKPT_MANIFEST_NAME) >= (int) sizeof path)
        return sn_fail(SN_EINVAL, "the path %.80s… is too long", c->dir);
    sn_status status = ckpt_reader_open(path, &r);
    if (status == SN_ENOTFOUND)
        return sn_fail(SN_ENOTFOUND, "it has no %s: it was not saved to the end",
                       CKPT_MANIFEST_NAME);
    SN_TRY(status);
    char *text = r.bytes <= CKPT_MANIFEST_MAX ? malloc(r.bytes + 1) : NULL;
    if (!text)
        status = sn_fail(SN_ENOMEM, "no memory for its %llu bytes", (unsigned long long) r.bytes);
    else
        status = ckpt_reader_get(&r, 0, r.bytes, text);
    if (status >= 0)
        status = ckpt_manifest_parse(text, r.bytes, true, &c->table);
    free(text);
    ckpt_reader_close(&r);
    return status < 0 ? sn_fail_in(status, CKPT_MANIFEST_NAME) : SN_OK;
}

/* All of it where `whole`, else sizes only: the checksum is then taken when a file is first used.
 */
static sn_status verify_files(sn_ckpt *c, bool whole)
{
    for (size_t i = 0; i < c->table.files; i++) {
        ckpt_file *file = &c->table.file[i];
        char path[4096];
        ckpt_reader r;
        SN_TRY(ckpt_file_open(c, file, path, &r));
        sn_status status = SN_OK;
        if (whole)
            status = ckpt_file_verify(file, &r);
        else if (r.bytes != file->bytes)
            status = sn_fail(SN_ECORRUPT, "%s: %llu bytes, the manifest says %llu", file->name,
                             (unsigned long long) r.bytes, (unsigned long long) file->bytes);
        ckpt_reader_close(&r);
        SN_TRY(status);
    }
    return SN_OK;
}

static sn_status open_step(const char *dir, int64_t step, bool whole, sn_ckpt **ret)
{
    char path[4096], name[CKPT_STEP_DIR];
    ckpt_step_dir(name, step);
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int) sizeof path)
        return sn_fail(SN_EINVAL, "the path %.80s… is too long", dir);
    sn_ckpt *c = create(path);
    sn_status status = read_manifest(c);
    if (status >= 0 && c->table.step != step)
        status = sn_fail(SN_ECORRUPT, "%s is of step %lld", CKPT_MANIFEST_NAME,
                         (long long) c->table.step);
    if (status >= 0)
        status = verify_files(c, whole);
    if (status < 0) {
        sn_ckpt_close(c);
        return sn_fail_in(status, "%s", name);
    }
    *ret = c;
    return SN_OK;
}

sn_status sn_ckpt_open(const char *dir, int64_t step, sn_ckpt **ret)
{
    sn_status status = step < 0 ? sn_fail(SN_EINVAL, "no step %lld", (long long) step)
                                : open_step(dir, step, false, ret);
    return status < 0 ? sn_fail_in(status, "%s", dir) : SN_OK;
}

/* ---- find ---- */

static bool step_of(const char *name, int64_t *ret)
{
    char again[CKPT_STEP_DIR];
    if (strncmp(name, "step-", 5))
        return false;
    const char *digits = name + 5 + strspn(name + 5, "0");
    int64_t step = 0;
    if (*digits && !sn_str_to_int(digits, &step))
        return false;
    if (step < 0)
        return false;
    ckpt_step_dir(again, step);
    if (strcmp(again, name))
        return false;
    *ret = step;
    return true;
}

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *) a, y = *(const int64_t *) b;
    return (x < y) - (x > y);
}

sn_status ckpt_steps(const char *dir, int64_t **ret_step, int *ret_count)
{
    DIR *d = opendir(dir);
    if (!d)
        return sn_file_failed("open", dir);
    int64_t *step = NULL, s;
    size_t n = 0, cap = 0;
    for (struct dirent *e; (e = readdir(d));) {
        if (!step_of(e->d_name, &s))
            continue;
        if (n == cap) {
            cap = cap ? cap * 2 : 16;
            step = sn_realloc(step, cap * sizeof *step);
        }
        step[n++] = s;
    }
    closedir(d);
    if (n)
        qsort(step, n, sizeof *step, newest_first);
    *ret_step = step;
    *ret_count = (int) n;
    return SN_OK;
}

/* One line for each that was passed over, once it is known what is used instead. */
static void tell_skipped(sn_str *out, const sn_str *why, const char *used)
{
    for (const char *line = sn_str_get(why); *line;) {
        size_t n = strcspn(line, "\n");
        if (out->len)
            sn_str_add(out, "\n");
        sn_str_add_n(out, line, n);
        sn_str_printf(out, used ? "; using %s" : "; there is no other%s", used ? used : "");
        line += n + (line[n] == '\n');
    }
}

sn_status sn_ckpt_find(const char *dir, sn_str *ret_skipped, sn_ckpt **ret)
{
    int64_t *step;
    int n, found = -1;
    sn_str why = {0};
    sn_status status = ckpt_steps(dir, &step, &n);
    if (status == SN_ENOTFOUND)
        return sn_fail(SN_ENOTFOUND, "no checkpoint in %s: there is no such directory", dir);
    SN_TRY(status);
    for (int i = 0; i < n && found < 0; i++) {
        if (open_step(dir, step[i], true, ret) >= 0)
            found = i;
        else
            sn_str_printf(&why, "%s%s", why.len ? "\n" : "", sn_errmsg());
    }
    char name[CKPT_STEP_DIR];
    if (found >= 0)
        ckpt_step_dir(name, step[found]);
    else if (n)
        status = sn_fail(SN_ENOTFOUND, "no whole checkpoint in %s: %s", dir, sn_str_get(&why));
    else
        status = sn_fail(SN_ENOTFOUND, "no checkpoint in %s", dir);
    if (ret_skipped)
        tell_skipped(ret_skipped, &why, found >= 0 ? name : NULL);
    sn_str_done(&why);
    free(step);
    return status;
}

sn_status sn_ckpt_newest(const char *dir, int64_t *ret_step)
{
    int64_t *step;
    int n, found = -1;
    char path[4096], name[CKPT_STEP_DIR];
    SN_TRY(ckpt_steps(dir, &step, &n));
    for (int i = 0; i < n && found < 0; i++) {
        ckpt_step_dir(name, step[i]);
        int bytes = snprintf(path, sizeof path, "%s/%s/%s", dir, name, CKPT_MANIFEST_NAME);
        if (bytes < (int) sizeof path && !access(path, F_OK))
            found = i;
    }
    if (found >= 0)
        *ret_step = step[found];
    free(step);
    return found >= 0 ? SN_OK : sn_fail(SN_ENOTFOUND, "no checkpoint in %s", dir);
}

/* ---- a user's file ---- */

static sn_status open_single(sn_ckpt *c, const char *path, const char *name)
{
    ckpt_reader r;
    ckpt_file file = {.name = sn_arena_str(c->table.arena, name)};
    SN_TRY(ckpt_reader_open(path, &r));
    file.bytes = r.bytes;
    sn_status status = ckpt_file_header(c, &file, &r);
    ckpt_reader_close(&r);
    SN_TRY(status);
    int index = ckpt_table_add_file(&c->table, &file);
    for (int i = 0; i < file.entries; i++)
        ckpt_table_add_whole(&c->table, &file.entry[i], index);
    return ckpt_table_finish(&c->table);
}

sn_status sn_ckpt_open_file(const char *path, sn_ckpt **ret)
{
    const char *slash = strrchr(path, '/');
    char *dir = sn_strdup(slash ? path : ".");
    if (slash)
        dir[SN_MAX(slash - path, 1)] = 0;
    sn_ckpt *c = create(dir);
    free(dir);
    size_t n = strlen(path);
    bool index = n > 5 && !strcmp(path + n - 5, ".json");
    sn_status status =
        index ? ckpt_index_open(c, path) : open_single(c, path, slash ? slash + 1 : path);
    if (status < 0) {
        sn_ckpt_close(c);
        return strstr(sn_errmsg(), path) ? status : sn_fail_in(status, "%s", path);
    }
    *ret = c;
    return SN_OK;
}

/* ---- what is in it ---- */

int64_t sn_ckpt_step(const sn_ckpt *c)
{
    return c->table.step;
}

const char *sn_ckpt_meta(const sn_ckpt *c)
{
    return c->table.meta;
}

int sn_ckpt_tensors(const sn_ckpt *c)
{
    return (int) c->table.tensors;
}

const char *sn_ckpt_tensor(const sn_ckpt *c, int i, sn_dtype *ret_dtype, sn_shape *ret_shape)
{
    const ckpt_tensor *t = &c->table.tensor[i];
    if (ret_dtype)
        *ret_dtype = t->dtype;
    if (ret_shape)
        *ret_shape = t->shape;
    return t->name;
}
