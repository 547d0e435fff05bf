/* SPDX-License-Identifier: Apache-2.0
 * Other programs, asked line by line. */
#include "bench_peer.h"

#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int spawn(const char *const *argv, int in, int out, int err, pid_t *ret)
{
    extern char **environ;
    posix_spawn_file_actions_t act;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&act);
    posix_spawn_file_actions_adddup2(&act, in, 0);
    posix_spawn_file_actions_adddup2(&act, out, 1);
    posix_spawn_file_actions_adddup2(&act, err, 2);
    posix_spawnattr_init(&attr); /* a group of its own: what it starts can be ended with it */
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
    int code = posix_spawnp(ret, argv[0], &act, &attr, (char *const *) argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&act);
    return code;
}

sn_status bench_peer_start(const char *const *argv, bench_peer *ret)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1}, err = memfd_create("peer-stderr", MFD_CLOEXEC);
    pid_t pid = 0;
    int code = err < 0 || pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) ? errno : 0;
    if (!code)
        code = spawn(argv, in[0], out[1], err, &pid);
    if (in[0] >= 0)
        close(in[0]);
    if (out[1] >= 0)
        close(out[1]);
    *ret = (bench_peer){.pid = code ? 0 : pid, .in = in[1], .out = out[0], .err = err};
    if (!code)
        return SN_OK;
    bench_peer_stop(ret, 0);
    return sn_fail(SN_EIO, "%s cannot be started: %s", argv[0], strerror(code));
}

/* The last line of its stderr that says something. */
static void last_words(const bench_peer *p, char *ret, size_t max)
{
    char tail[512];
    off_t end = lseek(p->err, 0, SEEK_END), from = SN_MAX(0, end - (off_t) sizeof tail + 1);
    ssize_t n = pread(p->err, tail, sizeof tail - 1, from);
    n = SN_MAX(n, 0);
    while (n > 0 && strchr("\n -", tail[n - 1]))
        n--;
    tail[n] = 0;
    const char *line = strrchr(tail, '\n');
    snprintf(ret, max, "%.160s", line ? line + 1 : tail);
}

static sn_status ended(const bench_peer *p)
{
    char words[200];
    last_words(p, words, sizeof words);
    return sn_fail(SN_EPEER, "the peer ended%s%s", *words ? ": " : "", words);
}

sn_status bench_peer_say(bench_peer *p, const char *line)
{
    char text[256];
    int n = snprintf(text, sizeof text, "%.254s\n", line);
    /* A pipe without a reader would end us. */
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    sigaction(SIGPIPE, &ignore, &before);
    ssize_t put = write(p->in, text, (size_t) n);
    sigaction(SIGPIPE, &before, NULL);
    return put == n ? SN_OK : ended(p);
}

sn_status bench_peer_line(bench_peer *p, double seconds, char *ret, size_t max)
{
    sn_time end = sn_now() + (sn_time) (seconds * 1e9);
    for (;;) {
        char *newline = memchr(p->data, '\n', p->have);
        if (newline || p->have == sizeof p->data) {
            size_t n = newline ? (size_t) (newline - p->data) : p->have;
            snprintf(ret, max, "%.*s", (int) n, p->data);
            size_t used = n + (newline != NULL);
            p->have -= used;
            memmove(p->data, p->data + used, p->have);
            return SN_OK;
        }
        struct pollfd fd = {.fd = p->out, .events = POLLIN};
        int64_t left = (end - sn_now() + SN_MS - 1) / SN_MS;
        if (left <= 0)
            return sn_fail(SN_ETIME, "the peer did not answer in %g s", seconds);
        if (poll(&fd, 1, (int) SN_MIN(left, 1 << 20)) <= 0)
            continue;
        ssize_t n = read(p->out, p->data + p->have, sizeof p->data - p->have);
        if (n <= 0)
            return ended(p);
        p->have += (size_t) n;
    }
}

sn_status bench_peer_ask(bench_peer *p, const char *line, double seconds, double *ret)
{
    char answer[256];
    SN_TRY(bench_peer_say(p, line));
    SN_TRY(bench_peer_line(p, seconds, answer, sizeof answer));
    char *space = strchr(answer, ' ');
    if (space)
        *space = 0;
    if (!sn_str_to_float(answer, ret))
        return sn_fail(SN_EPEER, "the peer answered '%.100s' instead of a number", answer);
    return SN_OK;
}

static bool left_by(pid_t pid, sn_time deadline)
{
    int pidfd = -1;
    if (sn_pidfd_open(pid, &pidfd) >= 0) {
        struct pollfd p = {.fd = pidfd, .events = POLLIN};
        int64_t left = SN_MAX(0, deadline - sn_now()) / SN_MS;
        while (poll(&p, 1, (int) left) < 0 && errno == EINTR)
            continue;
        close(pidfd);
    }
    return waitpid(pid, NULL, WNOHANG) != 0;
}

void bench_peer_stop(bench_peer *p, double seconds)
{
    if (p->in >= 0)
        close(p->in);
    if (p->pid > 0 && !left_by(p->pid, sn_now() + (sn_time) (seconds * 1e9))) {
        kill(-p->pid, SIGTERM);
        if (!left_by(p->pid, sn_now() + 5 * SN_SEC)) {
            kill(-p->pid, SIGKILL);
            while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
                continue;
        }
    }
    if (p->out >= 0)
        close(p->out);
    if (p->err >= 0)
        close(p->err);
    *p = (bench_peer){.in = -1, .out = -1, .err = -1};
}

/* ---- files ---- */

sn_status bench_peer_file(const char *dir, const char *name, char *ret, size_t max)
{
    const char *const place[] = {dir, SN_SOURCE_DIR "/bench", SN_DATA_DIR "/bench"};
    for (size_t i = 0; i < SN_COUNT(place); i++) {
        if (!place[i])
            continue;
        snprintf(ret, max, "%s/%s", place[i], name);
        if (!access(ret, R_OK))
            return SN_OK;
    }
    return sn_fail(SN_ENOTFOUND, "%s is not there; SUPERNODE_PEERS may name its directory", name);
}

sn_status bench_dir_create(char *ret, size_t max)
{
    const char *base = getenv("TMPDIR");
    snprintf(ret, max, "%s/supernode-bench-XXXXXX", base && *base ? base : "/var/tmp");
    if (!mkdtemp(ret))
        return sn_fail(SN_EIO, "%s: %s", ret, strerror(errno));
    return SN_OK;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    remove(path); /* what stays is only a temporary file */
    return 0;
}

void bench_dir_remove(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

sn_status bench_text_write(const char *path, size_t bytes)
{
    static const char *const word[] = {"the",  "a",    "small", "large", "red",   "cat", "dog",
                                       "bird", "tree", "river", "runs",  "sees",  "and", "then",
                                       "but",  "over", "under", "finds", "likes", ".\n"};
    sn_str text = {0};
    sn_prng draw = {.seed = 1};
    while (text.len < bytes)
        sn_str_printf(&text, "%s ", word[sn_prng_below(&draw, SN_COUNT(word))]);
    sn_status status = sn_file_write(path, sn_str_get(&text), text.len);
    sn_str_done(&text);
    return status;
}
