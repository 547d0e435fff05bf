/* SPDX-License-Identifier: Apache-2.0
 *
 * cli — verbs and flags as tables. Parsing, --help, shell completion and the man page all come from
 * them.
 *
 * Flags: --name VALUE, --name=VALUE, --switch; '_' and '-' are the same in a name, so that the
 * flags of other trainers (--batch_size) work. What is not a flag is a positional word. "--" ends
 * the flags. Exit codes: 0 ok, 1 job failed, 2 usage, 3 cannot be satisfied, 4 time-out, 5 no pool,
 * 130 interrupted. */
#ifndef SN_APP_CLI_H
#define SN_APP_CLI_H

#include "base/base.h"

#include <stdio.h>

enum {
    SN_EXIT_OK = 0,
    SN_EXIT_FAILED = 1,
    SN_EXIT_USAGE = 2,
    SN_EXIT_UNFIT = 3,
    SN_EXIT_INTERRUPTED = 130
};

typedef struct sn_flag {
    const char *name; /* "batch-size" */
    const char *arg;  /* "N", "FILE"; NULL: a switch */
    const char *help;
    bool hidden;
} sn_flag;

typedef struct sn_args {
    const struct sn_verb *verb;
    int given; /* flags, in the order given */
    const sn_flag *flag[128];
    const char *value[128]; /* "" for a switch */
    int words;
    const char *word[16];
} sn_args;

typedef struct sn_verb {
    const char *name, *words; /* "train", "[JOB.yaml]" */
    const char *summary;      /* one line */
    const char *text;         /* a paragraph with an example, for --help and the man page */
    const sn_flag *flag;      /* ends with name NULL */
    const sn_flag *more;      /* a second table (the job's keys), or NULL */
    int (*run)(const sn_args *args);
    bool hidden;
} sn_verb;

extern const sn_verb sn_verbs[]; /* ends with name NULL */

/* Fills *ret from argv[0 … argc) (after the verb). Prints the sentence and returns an exit code on
 * error, -1 when fine. */
int sn_args_parse(const sn_verb *verb, int argc, char **argv, sn_args *ret);
/* the last one given; NULL: not given */
const char *sn_args_get(const sn_args *args, const char *name);
/* An integer flag in [least, most]; leaves *ret alone when not given; false after printing the
 * sentence. */
bool sn_args_int(const sn_args *args, const char *name, int64_t least, int64_t most, int64_t *ret);

/* "supernode train: sentence" on stderr; returns the exit code that belongs to the status. */
int sn_exit_with(const char *verb, sn_status status);
int sn_exit_code(sn_status status);

void sn_cli_help(FILE *out);
void sn_verb_help(const sn_verb *verb, FILE *out);
void sn_cli_man(FILE *out);        /* supernode.1, mdoc */
void sn_cli_completion(FILE *out); /* bash */

#endif
