/* SPDX-License-Identifier: Apache-2.0
 *
 * Publishing: check what the ranks wrote, make their names durable, rename the manifest, and only
 * then clear what nobody needs any more. */
#include "ckpt/parts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static sn_status check_meta(const char *meta)
{
    json_error_t error;
    json_t *o = json_loads(meta, JSON_REJECT_DUPLICATES, &error);
    sn_status status = json_is_object(o) ? SN_OK
                                         : sn_fail(SN_EINVAL, "meta is not a JSON object: %s",
                                                   o ? "another value" : error.text);
    json_decref(o);
    return status;
}

static sn_status sync_dir(int fd, const char *path)
{
    return fsync(fd) ? sn_file_failed("sync", path) : SN_OK;
}

static sn_status open_dir(int at, const char *path, int *ret)
{
    int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return sn_file_failed("open", path);
    *ret = fd;
    return SN_OK;
}

/* Every file is where the manifest will say; its bytes were hashed when they were written. */
static sn_status check_files(const ckpt_table *t, int dir_fd, const char *path)
{
    for (size_t i = 0; i < t->files; i++) {
        struct stat st;
        if (fstatat(dir_fd, t->file[i].name, &st, 0))
            return sn_fail(SN_ENOTFOUND,
                           "%s/%s was written by its rank and is not here: %s; is the directory "
                           "shared by all hosts?",
                           path, t->file[i].name, strerror(errno));
        if ((uint64_t) st.st_size != t->file[i].bytes)
            return sn_fail(SN_ECORRUPT, "%s/%s has %lld bytes, its rank wrote %llu", path,
                           t->file[i].name, (long long) st.st_size,
                           (unsigned long long) t->file[i].bytes);
    }
    return SN_OK;
}

static sn_status parse_parts(ckpt_table *t, const char *const *part, int parts)
{
    if (parts < 1)
        return sn_fail(SN_EINVAL, "a checkpoint of no parts");
    for (int i = 0; i < parts; i++) {
        char what[32];
        snprintf(what, sizeof what, "part %d", i);
        SN_TRY(ckpt_table_add_part(t, part[i], what));
    }
    return ckpt_table_finish(t);
}

static bool is_ours(const char *name)
{
    size_t n = strlen(name);
    static const char end[] = ".safetensors";
    return !strncmp(name, CKPT_MANIFEST_NAME, strlen(CKPT_MANIFEST_NAME)) ||
           (name[0] == 'r' && n > sizeof end && !strcmp(name + n - (sizeof end - 1), end));
}

static bool is_listed(const ckpt_table *t, const char *name)
{
    for (size_t i = 0; t && i < t->files; i++)
        if (!strcmp(t->file[i].name, name))
            return true;
    return t && !strcmp(name, CKPT_MANIFEST_NAME);
}

/* Remove our files from a step's directory but for those that `keep` lists. Best effort: what
 * stays costs room, not correctness. */
static void clear_dir(int dir_fd, const ckpt_table *keep)
{
    int again = dup(dir_fd);
    DIR *d = again < 0 ? NULL : fdopendir(again);
    if (!d) {
        if (again >= 0)
            close(again);
        return;
    }
    rewinddir(d);
    for (struct dirent *e; (e = readdir(d));)
        if (is_ours(e->d_name) && !is_listed(keep, e->d_name))
            unlinkat(dir_fd, e->d_name, 0);
    closedir(d);
}

/* The manifest goes first and durably: no reader ever finds one whose files are half gone. */
static void delete_step(int root, const char *root_path, int64_t step)
{
    char name[CKPT_STEP_DIR];
    int fd = -1;
    ckpt_step_dir(name, step);
    if (open_dir(root, name, &fd) < 0)
        return;
    bool gone = !unlinkat(fd, CKPT_MANIFEST_NAME, 0) || errno == ENOENT;
    if (gone && !fsync(fd))
        clear_dir(fd, NULL);
    close(fd);
    if (unlinkat(root, name, AT_REMOVEDIR))
        sn_log(SN_LOG_DEBUG, "%s/%s stays: %s", root_path, name, strerror(errno));
}

/* Of the steps up to this one the newest `keep` complete ones stay; older ones and the remains of
 * saves that were never published go. Later steps are another run's future: not ours to judge. */
static void delete_old(int root, const char *dir, int64_t step, int keep)
{
    int64_t *steps;
    int n, complete = 0;
    if (ckpt_steps(dir, &steps, &n) < 0)
        return;
    for (int i = 0; i < n; i++) {
        char path[CKPT_STEP_DIR + 32];
        if (steps[i] > step)
            continue;
        ckpt_step_dir(path, steps[i]);
        strcat(path, "/" CKPT_MANIFEST_NAME);
        bool published = !faccessat(root, path, F_OK, 0);
        complete += published;
        if (steps[i] < step && (!published || complete > keep))
            delete_step(root, dir, steps[i]);
    }
    free(steps);
}

static sn_status publish(const char *path, int step_fd, ckpt_table *t, const char *meta,
                         const char *const *part, int parts)
{
    char manifest[4096];
    if (snprintf(manifest, sizeof manifest, "%s/%s", path, CKPT_MANIFEST_NAME) >=
        (int) sizeof manifest - 8)
        return sn_fail(SN_EINVAL, "the path %.80s… is too long", path);
    SN_TRY(check_files(t, step_fd, path));
    SN_TRY(sync_dir(step_fd, path));
    sn_str text = {0};
    ckpt_manifest_text(&text, t->step, meta, part, parts);
    sn_status status = sn_file_write(manifest, text.data, text.len);
    sn_str_done(&text);
    return status;
}

sn_status sn_ckpt_publish(const char *dir, int64_t step, const char *const *part, int parts,
                          const char *meta, int keep)
{
    char name[CKPT_STEP_DIR], path[4096 - 64];
    int root = -1, fd = -1;
    sn_status status;
    ckpt_step_dir(name, step);
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int) sizeof path)
        return sn_fail(SN_EINVAL, "the path %.80s… is too long", dir);
    ckpt_table t = {.arena = sn_arena_create(), .step = step};
    SN_TRY_OR(check_meta(meta), done);
    SN_TRY_OR(parse_parts(&t, part, parts), done);
    root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) {
        status = sn_file_failed("open", dir);
        goto done;
    }
    SN_TRY_OR(open_dir(root, name, &fd), done);
    SN_TRY_OR(publish(path, fd, &t, meta, part, parts), done);
    SN_TRY_OR(sync_dir(root, dir), done);
    clear_dir(fd, &t);
    if (keep > 0)
        delete_old(root, dir, step, keep);
done:
    if (fd >= 0)
        close(fd);
    if (root >= 0)
        close(root);
    sn_arena_free(t.arena);
    return status < 0 ? sn_fail_in(status, "checkpoint %s", name) : SN_OK;
}
