/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole small jobs: this program starts itself as the workers. Every story runs with process
 * groups and, where it can, with namespaces, and afterwards nothing may be left of it. */
#include "pool/attempt.h"
#include "pool/pool.h"
#include "unit/pool_worker.h"
#include "unit/sn_test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

typedef struct story {
    const char *mode;
    int64_t step_limit_ms;
    int retries;
    sn_isolation isolation;
    const char *kill_host;        /* its agent, once all workers train */
    int interrupt_at_step, level; /* interrupted() says `level` once rank 0 completed the step */

    char dir[64];
    char notes[4096];
    int ticks, attempts;
    int64_t last_step;
    int ready_fd; /* told once all workers train */
} story;

static char dirs[100][64];
static int dir_count;
static sn_status namespaces; /* of sn_pool_namespaces_possible */

/* ---- what is left? ---- */

/* Running (not zombie) processes whose words contain `token`, opened as pidfds. */
static int find_processes(const char *token, int *pidfds, int max)
{
    DIR *proc = opendir("/proc");
    struct dirent *d;
    int n = 0;
    while ((d = readdir(proc))) {
        char path[300], words[1024];
        int pid = atoi(d->d_name);
        if (pid <= 0 || pid == getpid())
            continue;
        snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
        int fd = open(path, O_RDONLY | O_CLOEXEC), pidfd;
        ssize_t got = fd >= 0 ? read(fd, words, sizeof words) : 0;
        if (fd >= 0)
            close(fd);
        if (got <= 0 || !memmem(words, (size_t) got, token, strlen(token)))
            continue;
        if (n < max && sn_pidfd_open(pid, &pidfd) == SN_OK)
            pidfds[n++] = pidfd;
    }
    closedir(proc);
    return n;
}

static int interfaces(void)
{
    DIR *d = opendir("/sys/class/net");
    int n = 0;
    while (d && readdir(d))
        n++;
    closedir(d);
    return n;
}

static int descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void assert_nothing_left(const story *s)
{
    int pidfd[16];
    int n = find_processes(s->dir, pidfd, 16);
    for (int i = 0; i < n; i++)
        close(pidfd[i]);
    assert_int_equal(n, 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no zombie either */
    assert_int_equal(errno, ECHILD);
}

/* ---- telling a story ---- */

/* The process with the agent's name among our children. */
static void kill_agent(const char *host)
{
    DIR *proc = opendir("/proc");
    struct dirent *d;
    while ((d = readdir(proc))) {
        char path[300], *text, want[64];
        size_t bytes;
        snprintf(path, sizeof path, "/proc/%s/status", d->d_name);
        FILE *f = atoi(d->d_name) > 0 ? fopen(path, "re") : NULL;
        if (!f)
            continue;
        char content[512] = "";
        bytes = fread(content, 1, sizeof content - 1, f);
        fclose(f);
        snprintf(want, sizeof want, "PPid:\t%d\n", (int) getpid());
        text = bytes ? strstr(content, want) : NULL;
        snprintf(want, sizeof want, "Name:\tsn-%s\n", host);
        if (text && strstr(content, want))
            kill(atoi(d->d_name), SIGKILL);
    }
    closedir(proc);
}

static void on_tick(void *ctx, sn_page *const *pages, int world)
{
    story *s = ctx;
    int training = 0;
    s->ticks++;
    for (int r = 0; r < world; r++)
        training += pages[r]->state == SN_WORKER_TRAINING && pages[r]->step > 0;
    s->last_step = pages[0]->step;
    if (s->kill_host && training == world) {
        kill_agent(s->kill_host);
        s->kill_host = NULL;
    }
    if (s->ready_fd >= 0 && training == world) {
        if (write(s->ready_fd, "r", 1) == 1)
            s->ready_fd = -1;
    }
}

static void on_note(void *ctx, const char *text)
{
    story *s = ctx;
    size_t used = strlen(s->notes);
    snprintf(s->notes + used, sizeof s->notes - used, "%s\n", text);
}

static const char *const *on_attempt(void *ctx, int attempt)
{
    static const char *const resume[] = {"--resume", NULL};
    story *s = ctx;
    assert_int_equal(attempt, s->attempts);
    s->attempts++;
    return attempt ? resume : NULL;
}

static int interrupted(void *ctx)
{
    const story *s = ctx;
    return s->interrupt_at_step && s->last_step >= s->interrupt_at_step ? s->level : 0;
}

static sn_status run(story *s, sn_pool_result *ret)
{
    snprintf(s->dir, sizeof s->dir, "/tmp/sn-pool-%d-%d", (int) getpid(), dir_count);
    memcpy(dirs[dir_count++], s->dir, sizeof s->dir);
    const char *const argv[] = {"/proc/self/exe", "worker", s->mode, s->dir, NULL};
    s->ready_fd = s->ready_fd ? s->ready_fd : -1;
    sn_pool_job job = {.hosts = 2,
                       .cards_per_host = 2,
                       .world = 4,
                       .isolation = s->isolation,
                       .argv = argv,
                       .log_dir = s->dir,
                       .retries = s->retries,
                       .step_limit_ns = s->step_limit_ms * SN_MS,
                       .ctx = s,
                       .on_tick = on_tick,
                       .on_note = on_note,
                       .on_attempt = on_attempt,
                       .interrupted = interrupted};
    return sn_pool_run(&job, ret);
}

static sn_pool_result tell(story *s)
{
    sn_pool_result result = {.exit_code = -1};
    int before = interfaces(), fds = descriptors();
    assert_ok(run(s, &result));
    assert_nothing_left(s);
    assert_int_equal(interfaces(), before);
    assert_int_equal(descriptors(), fds);
    assert_int_equal(result.isolation, s->isolation);
    assert_int_equal(result.attempts, s->attempts);
    return result;
}

static void assert_says(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" does not say \"%s\"", text, part);
}

static char *log_of(const story *s, int rank)
{
    static char text[4096];
    char path[128], *data;
    size_t bytes;
    snprintf(path, sizeof path, "%s/rank-%d.log", s->dir, rank);
    assert_ok(sn_file_read(path, sizeof text - 1, &data, &bytes));
    memcpy(text, data, bytes + 1);
    free(data);
    return text;
}

/* Both kinds of host, or one with the reason said. */
static int kinds(sn_isolation out[2])
{
    out[0] = SN_ISOLATION_GROUPS;
    out[1] = SN_ISOLATION_NAMESPACES;
    return namespaces == SN_OK ? 2 : 1;
}

#define EACH_KIND(kind)                                                                            \
    sn_isolation kinds_[2], kind;                                                                  \
    for (int k_ = 0, n_ = kinds(kinds_); k_ < n_ && (kind = kinds_[k_], 1); k_++)

/* ---- the stories ---- */

static void test_clean(void **state)
{
    EACH_KIND(kind)
    {
        story s = {.mode = "clean", .isolation = kind, .retries = 3};
        sn_pool_result r = tell(&s);
        if (r.exit_code)
            fail_msg("%s\n%s", r.reason, s.notes);
        assert_int_equal(r.status, SN_OK);
        assert_string_equal(r.reason, "");
        assert_int_equal(r.attempts, 1);
        assert_string_equal(s.notes, "");
        assert_int_equal(s.last_step, WORKER_STEPS); /* the last tick saw the end */
        assert_says(log_of(&s, 3), kind == SN_ISOLATION_GROUPS
                                       ? "rank 3 of 4 on h1, no address, threads 1"
                                       : "rank 3 of 4 on h1, 10.77.0.2, threads 1");
    }
}

static void test_apart(void **state)
{
    if (namespaces < 0) {
        print_message("skipped: no namespaces here\n");
        skip();
    }
    story s = {.mode = "apart", .isolation = SN_ISOLATION_NAMESPACES};
    sn_pool_result r = tell(&s);
    if (r.exit_code)
        fail_msg("%s\n%s", r.reason, s.notes);
    assert_int_equal(access("/dev/shm/sn-test-pool", F_OK), -1);
}

static void test_killed(void **state)
{
    EACH_KIND(kind)
    {
        story s = {.mode = "die", .isolation = kind, .retries = 3};
        sn_pool_result r = tell(&s);
        assert_int_equal(r.exit_code, 0);
        assert_int_equal(r.attempts, 2);
        assert_says(s.notes, "rank 3 on h1 (pid ");
        assert_says(s.notes,
                    ") was killed by SIGKILL during " WORKER_OP "; restarting, retry 1 of 3\n");
        assert_null(strstr(s.notes, "called off")); /* the survivors' echo is not said */
        assert_says(log_of(&s, 3), "---- attempt 2 ----\nrank 3 of 4");
        assert_says(log_of(&s, 0), "called off, victim 3");
        assert_says(log_of(&s, 0), "resumed");
    }
}

static void test_always_fails(void **state)
{
    EACH_KIND(kind)
    {
        story s = {.mode = "fail", .isolation = kind, .retries = 2};
        sn_pool_result r = tell(&s);
        assert_int_equal(r.exit_code, 1);
        assert_int_equal(r.attempts, 3);
        assert_int_equal(r.status, SN_EIO);
        assert_says(r.reason, "rank 0 on h0 (pid ");
        assert_says(r.reason, "failed during " WORKER_OP ": the disk is gone");
        assert_says(s.notes, "giving up, 2 retries made no progress");
    }
}

static void test_final(void **state)
{
    story s = {.mode = "final", .isolation = SN_ISOLATION_GROUPS, .retries = 2};
    sn_pool_result r = tell(&s);
    assert_int_equal(r.exit_code, 1);
    assert_int_equal(r.attempts, 1);
    assert_int_equal(r.status, SN_EFIT);
    assert_says(r.reason, "needs 9 GiB");
}

static void test_stopped(void **state)
{
    sn_isolation kind = namespaces == SN_OK ? SN_ISOLATION_NAMESPACES : SN_ISOLATION_GROUPS;
    story s = {.mode = "stop", .isolation = kind, .retries = 1};
    sn_pool_result r = tell(&s);
    assert_int_equal(r.exit_code, 0);
    assert_int_equal(r.attempts, 2);
    assert_says(s.notes, "rank 3 on h1 (pid ");
    assert_says(s.notes, "stopped responding (no heartbeat for 1.");
    assert_says(s.notes, " s) during " WORKER_OP);
}

static void test_stuck(void **state)
{
    story s = {
        .mode = "stuck", .isolation = SN_ISOLATION_GROUPS, .retries = 1, .step_limit_ms = 300};
    sn_pool_result r = tell(&s);
    assert_int_equal(r.exit_code, 0);
    assert_int_equal(r.attempts, 2);
    assert_says(s.notes, "no step was completed for 0.3 s; longest in one place is rank ");
    assert_says(s.notes, "during " WORKER_OP);
}

static void test_host_killed(void **state)
{
    EACH_KIND(kind)
    {
        story s = {.mode = "long", .isolation = kind, .retries = 1, .kill_host = "h1"};
        sn_pool_result r = tell(&s);
        assert_int_equal(r.exit_code, 0);
        assert_int_equal(r.attempts, 2);
        assert_says(s.notes, "host h1 was lost with ranks 2 to 3: its agent (pid ");
        assert_says(s.notes, "was killed by SIGKILL; rank 2 was lost ");
    }
}

static void test_garbage(void **state)
{
    story s = {.mode = "garbage", .isolation = SN_ISOLATION_GROUPS, .retries = 1};
    sn_pool_result r = tell(&s);
    assert_int_equal(r.exit_code, 0);
    assert_int_equal(r.attempts, 2);
    assert_says(s.notes, "rank 1 on h0 (pid ");
    assert_says(s.notes, "broke a protocol: ");
}

static void test_host_lost(void **state)
{
    story s = {.mode = "host", .isolation = SN_ISOLATION_GROUPS, .retries = 1};
    sn_pool_result r = tell(&s);
    assert_int_equal(r.exit_code, 0);
    assert_int_equal(r.attempts, 2);
    assert_says(s.notes, "host h1 was lost with ranks 2 to 3: its agent (pid ");
    assert_says(s.notes, "was killed by SIGKILL");
}

static void test_agent_stopped(void **state)
{
    story s = {.mode = "mute", .isolation = SN_ISOLATION_GROUPS, .retries = 1};
    sn_pool_result r = tell(&s);
    assert_int_equal(r.exit_code, 0);
    assert_int_equal(r.attempts, 2);
    assert_says(s.notes, "rank 3 on h1 (pid ");
    assert_says(s.notes, "died in an unknown way during " WORKER_OP);
}

static void test_interrupt(void **state)
{
    EACH_KIND(kind)
    {
        story s = {
            .mode = "forever", .isolation = kind, .retries = 3, .interrupt_at_step = 2, .level = 1};
        sn_pool_result r = tell(&s);
        assert_int_equal(r.exit_code, 130);
        assert_true(r.interrupted);
        assert_string_equal(s.notes, "");
    }
}

static void test_orphans(void **state)
{
    EACH_KIND(kind)
    {
        story s = {.mode = "orphan", .isolation = kind};
        assert_int_equal(tell(&s).exit_code, 0);
    }
}

/* The launcher, a child of ours, is killed: all of the job's processes must be gone at once. */
static void test_launcher_killed(void **state)
{
    EACH_KIND(kind)
    {
        int pair[2], pidfd[64], how;
        char byte;
        assert_ok(sn_pair_stream(pair));
        fflush(NULL);
        pid_t launcher = fork();
        assert_true(launcher >= 0);
        if (launcher == 0) {
            story mine = {.mode = "forever", .isolation = kind, .ready_fd = pair[1]};
            sn_pool_result r;
            run(&mine, &r);
            _exit(1);
        }
        char dir[64];
        snprintf(dir, sizeof dir, "/tmp/sn-pool-%d-", (int) launcher);
        struct pollfd p = {.fd = pair[0], .events = POLLIN};
        while (!sn_poll(&p, 1, sn_now() + 5 * SN_SEC))
            fail_msg("the workers did not start");
        assert_int_equal(read(pair[0], &byte, 1), 1);
        int n = find_processes(dir, pidfd, 64);
        assert_in_range(n, 4, 64);
        kill(launcher, SIGKILL);
        sn_time limit = sn_now() + SN_SEC;
        assert_int_equal(waitpid(launcher, &how, 0), launcher);
        for (int i = 0; i < n; i++) {
            struct pollfd gone = {.fd = pidfd[i], .events = POLLIN};
            assert_int_equal(sn_poll(&gone, 1, limit), 1);
            close(pidfd[i]);
        }
        assert_int_equal(find_processes(dir, pidfd, 64), 0);
        close(pair[0]);
        close(pair[1]);
        char remove[128];
        snprintf(remove, sizeof remove, "rm -rf %s*", dir);
        assert_int_equal(system(remove), 0);

        story again = {.mode = "clean", .isolation = kind};
        assert_int_equal(tell(&again).exit_code, 0);
    }
}

/* ---- bad requests ---- */

static void test_requests(void **state)
{
    static const char *const self[] = {"/proc/self/exe", "worker", "clean", "x", NULL};
    static const char *const none[] = {"/no/such/program", NULL};
    static const char *const text[] = {"/etc/passwd", NULL};
    static const struct {
        sn_pool_job job;
        sn_status status;
        const char *says;
    } bad[] = {
        {{.hosts = 1, .cards_per_host = 0, .world = 1, .argv = self}, SN_EINVAL, "at least 1"},
        {{.hosts = 2, .cards_per_host = 2, .world = 5, .argv = self},
         SN_EFIT,
         "5 workers are asked, but 2 hosts with 2 cards each hold 4"},
        {{.hosts = 300, .cards_per_host = 1, .world = 300, .argv = self}, SN_EFIT, "at most"},
        {{.hosts = 1, .cards_per_host = 1, .world = 1}, SN_EINVAL, "no program"},
        {{.hosts = 1, .cards_per_host = 1, .world = 1, .argv = none},
         SN_ENOTFOUND,
         "cannot execute /no/such/program: No such file"},
        {{.hosts = 1, .cards_per_host = 1, .world = 1, .argv = text},
         SN_EPERM,
         "cannot execute /etc/passwd: Permission denied"},
        {{.hosts = 1, .cards_per_host = 1, .world = 1, .argv = self, .log_dir = "/proc/none/x"},
         SN_ENOTFOUND,
         "/proc/none"},
    };
    for (size_t i = 0; i < SN_COUNT(bad); i++) {
        sn_pool_result r = {.attempts = 77};
        assert_int_equal(sn_pool_run(&bad[i].job, &r), bad[i].status);
        assert_says(sn_errmsg(), bad[i].says);
        assert_int_equal(r.attempts, 77);
    }
}

/* What ip says reaches the user, and nothing stays open. */
static void test_network_refused(void **state)
{
    if (namespaces < 0) {
        print_message("skipped: no namespaces here\n");
        skip();
    }
    int fds = descriptors(), fd = -1;
    pool_host nowhere = {.name = "h0", .agent = {.pid = 1 << 30}};
    assert_true(pool_network_create(&nowhere, 1, 0, &fd) < 0);
    assert_says(sn_errmsg(), "cannot wire the emulated hosts: ip -batch - failed: ");
    assert_says(sn_errmsg(), "No such process");
    assert_int_equal(fd, -1);
    assert_int_equal(descriptors(), fds);
}

/* Out of descriptors at every place of the start, one after the other: a sentence each time, never
 * a rest. */
static void test_no_descriptors(void **state)
{
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    int highest = dup(0), refused = 0, started = 0, fds = descriptors() - 1;
    close(highest);
    for (int more = 0; more < 48; more += 3) {
        story s = {.mode = "brief", .isolation = SN_ISOLATION_AUTO};
        sn_pool_result r;
        struct rlimit few = {(rlim_t) (highest + more), old.rlim_max};
        dir_count -= dir_count == SN_COUNT(dirs); /* the same directory again */
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        sn_status status = run(&s, &r);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
        refused += status < 0;
        started += status >= 0;
        if (status < 0 && !*sn_errmsg())
            fail_msg("no sentence with %d descriptors", more);
        assert_nothing_left(&s);
        assert_int_equal(descriptors(), fds);
    }
    assert_true(refused > 5 && started > 5);
}

static void test_not_a_program(void **state)
{
    char path[64], command[160];
    snprintf(path, sizeof path, "/tmp/sn-pool-%d-script", (int) getpid());
    assert_ok(sn_file_write(path, "no program\n", 11));
    snprintf(command, sizeof command, "chmod 755 %s", path);
    assert_int_equal(system(command), 0);
    const char *const argv[] = {path, NULL};
    sn_pool_job job = {
        .hosts = 1, .cards_per_host = 2, .world = 1, .argv = argv, .log_dir = "/tmp", .retries = 1};
    sn_pool_result r;
    assert_ok(sn_pool_run(&job, &r));
    unlink(path);
    unlink("/tmp/rank-0.log");
    assert_int_equal(r.exit_code, 1);
    assert_int_equal(r.isolation, SN_ISOLATION_GROUPS); /* one host needs no namespaces */
    assert_says(r.reason, "Exec format error");
}

/* Without rights: forced namespaces are refused with the reason, AUTO goes on with groups. */
static void test_no_rights(void **state)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        if (geteuid() == 0 && (setgid(65534) || setuid(65534)))
            _exit(9);
        sn_pool_result r;
        story forced = {.mode = "clean", .isolation = SN_ISOLATION_NAMESPACES};
        if (run(&forced, &r) != SN_EPERM || !strstr(sn_errmsg(), "namespaces need root"))
            _exit(1);
        story any = {.mode = "clean", .isolation = SN_ISOLATION_AUTO};
        if (run(&any, &r) != SN_OK || r.exit_code || r.isolation != SN_ISOLATION_GROUPS)
            _exit(2);
        char command[160];
        snprintf(command, sizeof command, "rm -rf %s %s", forced.dir, any.dir);
        _exit(!strstr(any.notes, "hosts are process groups") || system(command) ? 3 : 0);
    }
    int how;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_int_equal(how, 0);
}

static int set_up(void **state)
{
    namespaces = sn_pool_namespaces_possible();
    if (namespaces < 0)
        print_message("only process groups are tested: %s\n", sn_errmsg());
    return 0;
}

static int tear_down(void **state)
{
    char command[128];
    int bad = 0;
    for (int i = 0; i < dir_count; i++) {
        snprintf(command, sizeof command, "rm -rf %s", dirs[i]);
        bad |= system(command);
    }
    return bad;
}

int main(int argc, char **argv)
{
    if (argc > 3 && !strcmp(argv[1], "worker"))
        return worker_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clean),         cmocka_unit_test(test_apart),
        cmocka_unit_test(test_killed),        cmocka_unit_test(test_always_fails),
        cmocka_unit_test(test_final),         cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_stuck),         cmocka_unit_test(test_host_killed),
        cmocka_unit_test(test_garbage),       cmocka_unit_test(test_host_lost),
        cmocka_unit_test(test_agent_stopped), cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_orphans),       cmocka_unit_test(test_launcher_killed),
        cmocka_unit_test(test_requests),      cmocka_unit_test(test_network_refused),
        cmocka_unit_test(test_not_a_program), cmocka_unit_test(test_no_descriptors),
        cmocka_unit_test(test_no_rights),
    };
    return cmocka_run_group_tests_name(__FILE__, tests, set_up, tear_down);
}
