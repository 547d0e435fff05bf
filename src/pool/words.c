/* SPDX-License-Identifier: Apache-2.0
 *
 * words — what a worker is started with: its argument list and its environment. */
#include "pool/words.h"
#include "pool/attempt.h"

#include <string.h>
#include <unistd.h>

static int count(const char *const *words)
{
    int n = 0;
    while (words && words[n])
        n++;
    return n;
}

char **pool_words_argv(const pool_attempt *a, const pool_worker *w, const char *const *extra)
{
    const char *const *given = a->job->argv;
    int n = 0, own = 13, given_n = count(given), extra_n = count(extra);
    char **v = SN_NEW_N(a->arena, char *, given_n + extra_n + own);
    for (int i = 0; i < given_n; i++)
        v[n++] = sn_arena_str(a->arena, given[i]);
    for (int i = 0; i < extra_n; i++)
        v[n++] = sn_arena_str(a->arena, extra[i]);
    const struct {
        const char *name;
        int value;
    } number[] = {{"--rank", w->rank},
                  {"--world", a->job->world},
                  {"--agent-fd", w->boot_fd},
                  {"--page-fd", w->page_fd}};
    for (size_t i = 0; i < SN_COUNT(number); i++) {
        v[n++] = sn_arena_str(a->arena, number[i].name);
        v[n++] = sn_arena_printf(a->arena, "%d", number[i].value);
    }
    v[n++] = sn_arena_str(a->arena, "--host");
    v[n++] = sn_arena_str(a->arena, a->host[w->host].name);
    if (a->isolation == SN_ISOLATION_NAMESPACES) {
        char address[32];
        pool_network_address(address, w->host);
        v[n++] = sn_arena_str(a->arena, "--bind-address");
        v[n++] = sn_arena_str(a->arena, address);
    }
    return v;
}

/* One card is one thread: the layers' own threads are few and known. A crash must end the process
 * at once with the signal it got, so UCX's handlers stay out. `must` replaces what the user has,
 * the rest only fills in. */
static const struct {
    const char *name, *value;
    bool must;
} setting[] = {
    {"OMP_NUM_THREADS", "1", true},           {"OPENBLAS_NUM_THREADS", "1", true},
    {"UCX_HANDLE_ERRORS", "none", false},     {"UCX_ERROR_SIGNALS", "", false},
    {"UCX_WARN_UNUSED_ENV_VARS", "n", false},
};

static bool has_name(const char *entry, const char *name)
{
    size_t n = strlen(name);
    return !strncmp(entry, name, n) && entry[n] == '=';
}

char **pool_words_environment(sn_arena *arena)
{
    int n = 0, have = count((const char *const *) environ);
    bool present[SN_COUNT(setting)] = {0};
    char **v = SN_NEW_N(arena, char *, have + (int) SN_COUNT(setting) + 1);
    for (int i = 0; i < have; i++) {
        bool replaced = false;
        for (size_t k = 0; k < SN_COUNT(setting); k++)
            if (has_name(environ[i], setting[k].name)) {
                replaced = setting[k].must;
                present[k] = !setting[k].must;
            }
        if (!replaced)
            v[n++] = sn_arena_str(arena, environ[i]);
    }
    for (size_t k = 0; k < SN_COUNT(setting); k++)
        if (!present[k])
            v[n++] = sn_arena_printf(arena, "%s=%s", setting[k].name, setting[k].value);
    return v;
}
