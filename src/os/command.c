/* SPDX-License-Identifier: Apache-2.0
 *
 * command — another program, run for its effect; what it printed becomes part of the error. */
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

sn_status sn_program_find(const char *name, char ret[256])
{
    static const char *const dirs[] = {"/usr/sbin", "/sbin",           "/usr/bin",
                                       "/bin",      "/usr/local/sbin", "/usr/local/bin"};
    char path[256];
    for (size_t i = 0; i < SN_COUNT(dirs); i++)
        if (snprintf(path, sizeof path, "%s/%s", dirs[i], name) < (int) sizeof path &&
            access(path, X_OK) == 0) {
            memcpy(ret, path, sizeof path);
            return SN_OK;
        }
    return sn_fail(SN_ENOTFOUND, "the program %s is not installed", name);
}

typedef struct start {
    const char *const *argv;
    int input, output, netns;
} start;

static int child_exec(void *ctx)
{
    static char language[] = "LC_ALL=C", path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
    static char *const calm[] = {language, path, NULL};
    const start *s = ctx;
    if (dup2(s->input, 0) < 0 || dup2(s->output, 1) < 0 || dup2(s->output, 2) < 0)
        return 127;
    if (s->netns >= 0 && setns(s->netns, CLONE_NEWNET)) {
        dprintf(2, "cannot enter the network namespace: %s", strerror(errno));
        return 127;
    }
    execve(s->argv[0], (char *const *) s->argv, calm);
    dprintf(2, "cannot execute: %s", strerror(errno));
    return 127;
}

static void keep_words(sn_command *c, const char *const *argv)
{
    size_t used = 0;
    c->words[0] = 0;
    for (int i = 0; argv[i] && used < sizeof c->words - 1; i++) {
        const char *slash = i ? NULL : strrchr(argv[i], '/');
        int n = snprintf(c->words + used, sizeof c->words - used, "%s%s", i ? " " : "",
                         slash ? slash + 1 : argv[i]);
        used += n > 0 ? (size_t) n : 0;
    }
}

static sn_status memory_file(const char *content, int *ret_fd)
{
    int fd = memfd_create("command", MFD_CLOEXEC);
    if (fd < 0)
        return sn_fail(SN_EIO, "cannot make a memory file: %s", strerror(errno));
    size_t bytes = content ? strlen(content) : 0;
    if (bytes) {
        sn_status status = sn_write_all(fd, content, bytes);
        if (status < 0) {
            close(fd);
            return status;
        }
        lseek(fd, 0, SEEK_SET);
    }
    *ret_fd = fd;
    return SN_OK;
}

sn_status sn_command_start(const char *const *argv, const char *input, int netns, sn_command *ret)
{
    sn_status status;
    sn_command c;
    start s = {argv, -1, -1, netns};
    SN_TRY_OR(memory_file(input, &s.input), out);
    SN_TRY_OR(memory_file(NULL, &s.output), out);
    int keep[] = {s.input, s.output, netns};
    keep_words(&c, argv);
    SN_TRY_OR(sn_child_fork(&(sn_fork_opts){.keep = keep, .keeps = netns >= 0 ? 3 : 2}, child_exec,
                            &s, &c.child),
              out);
    c.output = s.output;
    s.output = -1;
    *ret = c;
out:
    if (s.input >= 0)
        close(s.input);
    if (s.output >= 0)
        close(s.output);
    return status;
}

/* What the command printed, as one line. */
static void take_output(int fd, char *out, size_t bytes)
{
    ssize_t n = pread(fd, out, bytes - 1, 0);
    n = SN_MAX(n, 0);
    while (n > 0 && (out[n - 1] == '\n' || out[n - 1] == ' '))
        n--;
    out[n] = 0;
    for (char *p = out; (p = strchr(p, '\n'));)
        *p = ';';
}

sn_status sn_command_finish(sn_command *c, sn_time deadline, sn_str *ret_output)
{
    sn_exit end;
    sn_status status = SN_OK;
    char text[4096];
    if (!sn_child_wait(&c->child, deadline, &end)) {
        status = sn_fail(SN_ETIME, "%s did not end in time and was killed", c->words);
        sn_child_kill(&c->child, SIGKILL);
        sn_child_wait(&c->child, -1, &end);
    } else {
        take_output(c->output, text, sizeof text);
        if (end.signal)
            status = sn_fail(SN_EIO, "%s was killed by signal %d", c->words, end.signal);
        else if (end.code)
            status =
                sn_fail(SN_EIO, "%s failed: %.300s", c->words, *text ? text : "it said nothing");
        else if (ret_output)
            sn_str_add(ret_output, text);
    }
    close(c->output);
    c->output = -1;
    return status;
}
