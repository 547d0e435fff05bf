/* SPDX-License-Identifier: Apache-2.0
 * What the tables say, as help text, man page and shell completion. */
#include "cli.h"

#include <string.h>

void sn_cli_help(FILE *out)
{
    fprintf(out,
            "supernode — many hosts and cards as one computer\n\nusage: supernode VERB [words] "
            "[--flags]\n\n");
    for (const sn_verb *v = sn_verbs; v->name; v++)
        if (!v->hidden)
            fprintf(out, "  %-12s %s\n", v->name, v->summary);
    fprintf(out, "\nexample: supernode train examples/gpt-english.yaml\n"
                 "Each verb explains itself: supernode VERB --help\n");
}

static void flags_help(const sn_flag *flag, FILE *out)
{
    for (; flag && flag->name; flag++) {
        char left[64];
        if (flag->hidden)
            continue;
        snprintf(left, sizeof left, "--%s%s%s", flag->name, flag->arg ? " " : "",
                 flag->arg ? flag->arg : "");
        fprintf(out, "  %-30s %s\n", left, flag->help);
    }
}

void sn_verb_help(const sn_verb *v, FILE *out)
{
    fprintf(out, "usage: supernode %s %s [--flags]\n\n%s\n", v->name, v->words, v->text);
    if (v->flag && v->flag->name) {
        fprintf(out, "\nflags:\n");
        flags_help(v->flag, out);
    }
    if (v->more) {
        fprintf(out, "\nkeys of the job file, as flags (a flag wins over the file):\n");
        flags_help(v->more, out);
    }
}

/* mdoc treats a leading dot and backslashes specially. */
static void man_text(const char *text, FILE *out)
{
    bool start = true;
    for (const char *p = text; *p; p++) {
        if (start && (*p == '.' || *p == '\''))
            fputs("\\&", out);
        if (*p == '\\')
            fputs("\\e", out);
        else
            fputc(*p, out);
        start = *p == '\n';
    }
    fputc('\n', out);
}

static void man_flags(const sn_flag *flag, FILE *out)
{
    for (; flag && flag->name; flag++) {
        if (flag->hidden)
            continue;
        fprintf(out, ".It Fl -%s", flag->name);
        if (flag->arg)
            fprintf(out, " Ar %s", flag->arg);
        fputc('\n', out);
        man_text(flag->help, out);
    }
}

void sn_cli_man(FILE *out)
{
    fputs(".\\\" SPDX-License-Identifier: Apache-2.0\n.Dd November 30, 2026\n.Dt SUPERNODE 1\n.Os\n"
          ".Sh NAME\n.Nm supernode\n.Nd many hosts and cards as one computer\n.Sh SYNOPSIS\n",
          out);
    for (const sn_verb *v = sn_verbs; v->name; v++)
        if (!v->hidden)
            fprintf(out, ".Nm\n.Cm %s\n.Op Fl -flags\n%s\n", v->name, v->words);
    fputs(".Sh DESCRIPTION\n", out);
    for (const sn_verb *v = sn_verbs; v->name; v++) {
        if (v->hidden)
            continue;
        fprintf(out, ".Ss %s \\(em %s\n.Bd -literal\n", v->name, v->summary);
        man_text(v->text, out);
        fputs(".Ed\n", out);
        if (v->flag && v->flag->name) {
            fputs(".Bl -tag -width Ds\n", out);
            man_flags(v->flag, out);
            fputs(".El\n", out);
        }
    }
    for (const sn_verb *v = sn_verbs; v->name; v++)
        if (!strcmp(v->name, "train")) {
            fputs(".Ss Keys of the job file, as flags\n.Bl -tag -width Ds\n", out);
            man_flags(v->more, out);
            fputs(".El\n", out);
        }
    fputs(".Sh EXIT STATUS\n0 ok, 1 the job failed, 2 usage, 3 cannot be satisfied, 4 time-out, "
          "5 no pool,\n130 interrupted.\n",
          out);
}

static void completion_flags(const sn_flag *flag, FILE *out)
{
    for (; flag && flag->name; flag++)
        if (!flag->hidden)
            fprintf(out, " --%s", flag->name);
}

void sn_cli_completion(FILE *out)
{
    fputs(
        "# SPDX-License-Identifier: Apache-2.0\n# bash completion for supernode\n_supernode()\n{\n"
        "    local word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]}\n    local flags=\n"
        "    if [ \"$COMP_CWORD\" = 1 ]; then\n        COMPREPLY=($(compgen -W \"",
        out);
    for (const sn_verb *v = sn_verbs; v->name; v++)
        if (!v->hidden)
            fprintf(out, "%s ", v->name);
    fputs("\" -- \"$word\"))\n        return\n    fi\n    case $verb in\n", out);
    for (const sn_verb *v = sn_verbs; v->name; v++) {
        if (v->hidden)
            continue;
        fprintf(out, "    %s) flags=\"", v->name);
        completion_flags(v->flag, out);
        completion_flags(v->more, out);
        fputs(" --help\" ;;\n", out);
    }
    fputs("    esac\n    if [[ $word == -* ]]; then\n"
          "        COMPREPLY=($(compgen -W \"$flags\" -- \"$word\"))\n    else\n"
          "        COMPREPLY=($(compgen -f -- \"$word\"))\n    fi\n}\n"
          "complete -o filenames -F _supernode supernode\n",
          out);
}
