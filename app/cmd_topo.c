/* SPDX-License-Identifier: Apache-2.0
 * supernode topo — shows this machine, or the one that a file describes. */
#include "cmd_topo.h"

#include "os/os.h"
#include "probe/probe.h"
#include "topo/topo.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_OK = 0, EXIT_USAGE = 2, EXIT_UNSATISFIED = 3, FILE_BYTES_MAX = 64 << 20 };

static const char help[] =
    "Usage: supernode topo [--json | --dot | --yaml] [FILE]\n"
    "\n"
    "Shows hosts, cards, NICs, switches and what a message between two cards costs: of this\n"
    "machine, or of the one in FILE (a cluster description in YAML, or XML of hwloc).\n"
    "\n"
    "  --json   for programs\n"
    "  --dot    for Graphviz\n"
    "  --yaml   as a cluster description, to edit or to carry elsewhere\n"
    "  --help   this text\n"
    "\n"
    "Example: supernode topo --dot examples/clusters/two-hosts.yaml | dot -Tsvg > two-hosts.svg\n";

typedef void (*writer)(const sn_topo *topo, sn_str *out);

typedef struct options {
    writer write;
    const char *file; /* NULL: this machine */
    bool help;
} options;

static sn_status parse_options(int argc, char **argv, options *ret)
{
    static const struct option flags[] = {{"json", no_argument, NULL, 'j'},
                                          {"dot", no_argument, NULL, 'd'},
                                          {"yaml", no_argument, NULL, 'y'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    options o = {0};
    optind = 0; /* start anew: glibc's word for it */
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, "h", flags, NULL)) != -1;) {
        writer w = c == 'j'   ? sn_topo_json
                   : c == 'd' ? sn_topo_dot
                   : c == 'y' ? sn_topo_yaml
                              : NULL;
        if (c == '?')
            return sn_fail(SN_EINVAL, "topo has no option `%s`; try --help", argv[optind - 1]);
        if (w && o.write && w != o.write)
            return sn_fail(SN_EINVAL, "--json, --dot and --yaml exclude each other");
        o.write = w ? w : o.write;
        o.help = o.help || c == 'h';
    }
    if (argc - optind > 1)
        return sn_fail(SN_EINVAL, "topo takes one file, and `%s` is a second", argv[optind + 1]);
    o.file = argv[optind];
    o.write = o.write ? o.write : sn_topo_print;
    *ret = o;
    return SN_OK;
}

/* XML starts with a `<`, which no cluster description does. */
static bool is_xml(const char *text)
{
    text += strncmp(text, "\xef\xbb\xbf", 3) ? 0 : 3;
    return text[strspn(text, " \t\r\n")] == '<';
}

static sn_status read_topo(const char *file, sn_topo **ret)
{
    char *text;
    size_t bytes;
    if (!file)
        return sn_probe_machine(ret);
    SN_TRY(sn_file_read(file, FILE_BYTES_MAX - 1, &text, &bytes));
    sn_status status = is_xml(text) ? sn_probe_hwloc_xml_text(text, bytes, file, ret)
                                    : sn_topo_parse(text, bytes, file, ret);
    free(text);
    return status;
}

static int complain(sn_status status)
{
    fprintf(stderr, "supernode topo: %s\n", sn_errmsg());
    return status == SN_EINVAL || status == SN_ENOTFOUND ? EXIT_USAGE : EXIT_UNSATISFIED;
}

int sn_cmd_topo(int argc, char **argv)
{
    options o = {0};
    sn_topo *topo;
    sn_status status = parse_options(argc, argv, &o);
    if (status < 0)
        return complain(status);
    if (o.help) {
        fputs(help, stdout);
        return EXIT_OK;
    }
    status = read_topo(o.file, &topo);
    if (status < 0)
        return complain(status);
    sn_str out = {0};
    o.write(topo, &out);
    bool written = fwrite(sn_str_get(&out), 1, out.len, stdout) == out.len && !fflush(stdout);
    sn_str_done(&out);
    sn_topo_free(topo);
    if (written)
        return EXIT_OK;
    return complain(sn_fail(SN_EIO, "cannot write the answer: is the disk full?"));
}
