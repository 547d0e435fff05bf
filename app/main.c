/* SPDX-License-Identifier: Apache-2.0
 * The one command. */
#include "cli.h"

#include "os/os.h"

#include <errno.h>
#include <string.h>

static int unknown_verb(const char *word)
{
    const char *names[64];
    int n = 0;
    for (const sn_verb *v = sn_verbs; v->name && n < 64; v++)
        if (!v->hidden)
            names[n++] = v->name;
    const char *near = sn_str_nearest(word, names, n);
    fprintf(stderr, "supernode: unknown verb '%s'%s%s%s; see supernode --help\n", word,
            near ? ", did you mean " : "", near ? near : "", near ? "?" : "");
    return SN_EXIT_USAGE;
}

/* What was printed has arrived, unless its reader has heard enough. */
static int written(int code)
{
    if (code || (!fflush(stdout) && !ferror(stdout)) || errno == EPIPE)
        return code;
    fprintf(stderr, "supernode: cannot write to stdout: %s\n", strerror(errno));
    return SN_EXIT_FAILED;
}

int main(int argc, char **argv)
{
    sn_fd_standard(); /* no file may come to be stdout or stderr */
    errno = 0;
    if (argc < 2) {
        sn_cli_help(stderr);
        return SN_EXIT_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        sn_cli_help(stdout);
        return written(SN_EXIT_OK);
    }
    if (!strcmp(argv[1], "--version")) {
        printf("supernode %s\n", SN_VERSION);
        return SN_EXIT_OK;
    }
    for (const sn_verb *v = sn_verbs; v->name; v++)
        if (!strcmp(v->name, argv[1])) {
            sn_args args;
            int code = sn_args_parse(v, argc - 2, argv + 2, &args);
            return written(code >= 0 ? code : v->run(&args));
        }
    return unknown_verb(argv[1]);
}
