/* SPDX-License-Identifier: Apache-2.0
 * Texts that a Debian package ships, as a program or compressed, made into a file once. */
#include "job.h"

#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct corpus {
    const char *name, *package;
    const char *from; /* the package's file, NULL: a program */
    const char *const *argv;
} corpus;

#define GCIDE "/usr/share/dictd/gcide.dict.dz" /* dictzip's files are gzip's */

static const char *const bible[] = {"bible", "-f", "gen1:1-rev22:21", NULL};
static const char *const gcide[] = {"gzip", "-dc", GCIDE, NULL};
static const corpus table[] = {{"bible-kjv", "bible-kjv", NULL, bible},
                               {"dict-gcide", "dict-gcide", GCIDE, gcide}};

extern char **environ;

/* Run argv with stdin empty and stdout into `path`; the child's exit status decides. */
static sn_status run_into(const corpus *c, const char *path)
{
    posix_spawn_file_actions_t act;
    posix_spawn_file_actions_init(&act);
    posix_spawn_file_actions_addopen(&act, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&act, 1, path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawn_file_actions_addopen(&act, 2, "/dev/null", O_WRONLY, 0);
    pid_t pid;
    struct stat st;
    if (c->from && stat(c->from, &st)) {
        posix_spawn_file_actions_destroy(&act);
        return sn_fail(SN_ENOTFOUND,
                       "data: the text %s comes from %s, which is not here: apt-get install %s",
                       c->name, c->from, c->package);
    }
    int code = posix_spawnp(&pid, c->argv[0], &act, NULL, (char *const *) c->argv, environ);
    posix_spawn_file_actions_destroy(&act);
    if (code)
        return sn_fail(SN_ENOTFOUND,
                       "data: the text %s comes from the program %s, which is not here: "
                       "apt-get install %s",
                       c->name, c->argv[0], c->package);
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return sn_fail(SN_EIO, "cannot wait for %s: %s", c->argv[0], strerror(errno));
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        return sn_fail(SN_EIO, "%s failed while writing %s", c->argv[0], path);
    return SN_OK;
}

sn_status sn_job_corpus(const char *data, const char *cache_dir, sn_arena *arena,
                        const char **ret_path)
{
    struct stat st;
    *ret_path = data;
    for (size_t i = 0; i < SN_COUNT(table); i++) {
        if (strcmp(table[i].name, data) || !stat(data, &st))
            continue; /* a file of that name wins */
        const char *path = sn_arena_printf(arena, "%s/%s.txt", cache_dir, table[i].name);
        const char *part = sn_arena_printf(arena, "%s.%d", path, (int) getpid());
        *ret_path = path;
        if (!stat(path, &st) && st.st_size)
            return SN_OK;
        SN_TRY(sn_dir_create(cache_dir));
        sn_status status = run_into(&table[i], part);
        if (status >= 0 && rename(part, path))
            status = sn_fail(SN_EIO, "cannot rename to %s: %s", path, strerror(errno));
        if (status < 0)
            unlink(part);
        return status;
    }
    return SN_OK;
}
