/* SPDX-License-Identifier: Apache-2.0
 * Words of the command line against the tables. */
#include "cli.h"

#include <string.h>

static bool same_name(const char *flag, const char *given, size_t n)
{
    if (strlen(flag) != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (flag[i] != given[i] && !(flag[i] == '-' && given[i] == '_'))
            return false;
    return true;
}

static const sn_flag *find(const sn_flag *table, const char *given, size_t n)
{
    for (; table && table->name; table++)
        if (same_name(table->name, given, n))
            return table;
    return NULL;
}

static int collect(const sn_flag *table, const char **names, int n, int most)
{
    for (; table && table->name && n < most; table++)
        if (!table->hidden)
            names[n++] = table->name;
    return n;
}

static int unknown_flag(const sn_verb *verb, const char *given, size_t n)
{
    const char *names[128];
    char word[64];
    int count = collect(verb->more, names, collect(verb->flag, names, 0, 128), 128);
    snprintf(word, sizeof word, "%.*s", (int) n, given);
    const char *near = sn_str_nearest(word, names, count);
    fprintf(stderr, "supernode %s: unknown flag --%s%s%s%s; see supernode %s --help\n", verb->name,
            word, near ? ", did you mean --" : "", near ? near : "", near ? "?" : "", verb->name);
    return SN_EXIT_USAGE;
}

/* One "--name[=value]"; *at moves over a separate value. */
static int parse_flag(sn_args *args, int argc, char **argv, int *at)
{
    const char *given = argv[*at] + 2, *equals = strchr(given, '=');
    size_t n = equals ? (size_t) (equals - given) : strlen(given);
    const sn_flag *flag = find(args->verb->flag, given, n);
    if (!flag)
        flag = find(args->verb->more, given, n);
    if (!flag)
        return unknown_flag(args->verb, given, n);
    const char *value = equals ? equals + 1 : "";
    if (!flag->arg && equals) {
        fprintf(stderr, "supernode %s: --%s takes no value\n", args->verb->name, flag->name);
        return SN_EXIT_USAGE;
    }
    if (flag->arg && !equals) {
        if (*at + 1 >= argc) {
            fprintf(stderr, "supernode %s: --%s needs a value: --%s %s\n", args->verb->name,
                    flag->name, flag->name, flag->arg);
            return SN_EXIT_USAGE;
        }
        value = argv[++*at];
    }
    if (args->given == (int) SN_COUNT(args->flag)) {
        fprintf(stderr, "supernode %s: more than %d flags\n", args->verb->name, args->given);
        return SN_EXIT_USAGE;
    }
    args->flag[args->given] = flag;
    args->value[args->given++] = value;
    return -1;
}

int sn_args_parse(const sn_verb *verb, int argc, char **argv, sn_args *ret)
{
    *ret = (sn_args){.verb = verb};
    bool flags = true;
    for (int i = 0; i < argc; i++) {
        if (flags && (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))) {
            sn_verb_help(verb, stdout);
            return SN_EXIT_OK;
        }
        if (flags && !strcmp(argv[i], "--")) {
            flags = false;
        } else if (flags && !strncmp(argv[i], "--", 2)) {
            int code = parse_flag(ret, argc, argv, &i);
            if (code >= 0)
                return code;
        } else if (flags && argv[i][0] == '-' && argv[i][1]) {
            fprintf(stderr, "supernode %s: unknown flag %s; flags begin with --\n", verb->name,
                    argv[i]);
            return SN_EXIT_USAGE;
        } else if (ret->words < (int) SN_COUNT(ret->word)) {
            ret->word[ret->words++] = argv[i];
        } else {
            fprintf(stderr, "supernode %s: too many words\n", verb->name);
            return SN_EXIT_USAGE;
        }
    }
    return -1;
}

const char *sn_args_get(const sn_args *args, const char *name)
{
    for (int i = args->given - 1; i >= 0; i--)
        if (!strcmp(args->flag[i]->name, name))
            return args->value[i];
    return NULL;
}

bool sn_args_int(const sn_args *args, const char *name, int64_t least, int64_t most, int64_t *ret)
{
    const char *text = sn_args_get(args, name);
    int64_t v;
    if (!text)
        return true;
    if (!sn_str_to_int(text, &v) || v < least || v > most) {
        fprintf(stderr, "supernode %s: --%s is '%s', it must be a whole number from %lld to %lld\n",
                args->verb->name, name, text, (long long) least, (long long) most);
        return false;
    }
    *ret = v;
    return true;
}

int sn_exit_code(sn_status status)
{
    switch (status) {
    case SN_EINVAL:
    case SN_ENOTFOUND:
    case SN_EEXIST:
        return SN_EXIT_USAGE;
    case SN_EFIT:
    case SN_ENOTSUP:
    case SN_ENOMEM:
    case SN_ENOSPC:
    case SN_EPERM:
    case SN_EMISMATCH:
    case SN_ECORRUPT:
        return SN_EXIT_UNFIT;
    case SN_ECANCEL:
        return SN_EXIT_INTERRUPTED;
    default:
        return status >= 0 ? SN_EXIT_OK : SN_EXIT_FAILED;
    }
}

int sn_exit_with(const char *verb, sn_status status)
{
    fprintf(stderr, "supernode %s: %s\n", verb, sn_errmsg());
    return sn_exit_code(status);
}
