/* SPDX-License-Identifier: Apache-2.0
 *
 * What the workers traced (one event a line, a file a rank) as one file that Perfetto opens. A rank
 * without a file, such as one that was killed, is left out and named. */
#include "cmd.h"

#include "os/os.h"

#include <stdlib.h>
#include <string.h>

/* The whole lines of one file, as members of an array; false: there are none. */
static bool add_lines(const char *path, sn_str *out)
{
    char *text;
    size_t bytes;
    bool any = false;
    if (sn_file_read(path, SIZE_MAX, &text, &bytes) < 0)
        return false;
    const char *at = text;
    for (const char *end; (end = strchr(at, '\n')); at = end + 1) {
        sn_str_printf(out, "%s%.*s", out->len > 1 && out->data[out->len - 1] != '[' ? ",\n" : "",
                      (int) (end - at), at);
        any = true;
    }
    free(text);
    return any;
}

sn_status sn_trace_join(const sn_run *run, int world, const char *file)
{
    sn_str out = {0}, missing = {0};
    int there = 0;
    sn_str_add(&out, "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [");
    for (int r = 0; r < world; r++) {
        char path[4096], name[64];
        snprintf(name, sizeof name, "trace-%d.jsonl", r);
        if (sn_run_path(run, name, path) >= 0 && add_lines(path, &out))
            there++;
        else
            sn_str_printf(&missing, " %d", r);
    }
    sn_str_add(&out, "]}\n");
    sn_status status = SN_OK;
    if (there == 0)
        status = sn_fail(SN_ENOTFOUND, "no rank traced anything: the run had no second step");
    else
        status = sn_file_write(file, sn_str_get(&out), out.len);
    if (status >= 0 && there < world)
        sn_log(SN_LOG_WARN, "the trace lacks rank%s, ignoring", sn_str_get(&missing));
    sn_str_done(&out);
    sn_str_done(&missing);
    return status;
}
