/* SPDX-License-Identifier: Apache-2.0
 * supernode topo — shows this machine, or the one that a file describes. */
#include "cli.h"
#include "cmd.h"

#include "os/os.h"
#include "probe/probe.h"
#include "topo/topo.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 64 << 20 };

typedef void (*writer)(const sn_topo *topo, sn_str *out);

static sn_status choose_writer(const sn_args *args, writer *ret)
{
    static const struct {
        const char *flag;
        writer write;
    } forms[] = {{"json", sn_topo_json}, {"dot", sn_topo_dot}, {"yaml", sn_topo_yaml}};
    writer chosen = NULL;
    for (size_t i = 0; i < SN_COUNT(forms); i++) {
        if (!sn_args_get(args, forms[i].flag))
            continue;
        if (chosen)
            return sn_fail(SN_EINVAL, "--json, --dot and --yaml exclude each other");
        chosen = forms[i].write;
    }
    if (args->words > 1)
        return sn_fail(SN_EINVAL, "one file is shown, and `%s` is a second", args->word[1]);
    *ret = chosen ? chosen : sn_topo_print;
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

int sn_cmd_topo(const sn_args *args)
{
    writer write = NULL;
    sn_topo *topo = NULL;
    sn_status status = choose_writer(args, &write);
    if (status >= 0)
        status = read_topo(args->words ? args->word[0] : NULL, &topo);
    if (status < 0)
        return sn_exit_with("topo", status);
    sn_str out = {0};
    write(topo, &out);
    bool written = fwrite(sn_str_get(&out), 1, out.len, stdout) == out.len && !fflush(stdout);
    sn_str_done(&out);
    sn_topo_free(topo);
    if (written)
        return SN_EXIT_OK;
    return sn_exit_with("topo", sn_fail(SN_EIO, "cannot write the answer: is the disk full?"));
}
