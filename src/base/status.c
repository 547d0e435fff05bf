/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char text[512];

sn_status sn_fail(sn_status status, const char *format, ...)
{
    char next[sizeof text]; /* the arguments may point into `text` */
    va_list args;
    va_start(args, format);
    vsnprintf(next, sizeof next, format, args);
    va_end(args);
    memcpy(text, next, sizeof text);
    return status;
}

sn_status sn_fail_in(sn_status status, const char *format, ...)
{
    char prefix[sizeof text];
    va_list args;
    va_start(args, format);
    vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    size_t n = strlen(prefix);
    if (n + 2 >= sizeof prefix)
        n = sizeof prefix - 3;
    memcpy(prefix + n, ": ", 2);
    snprintf(prefix + n + 2, sizeof prefix - n - 2, "%.*s", (int) (sizeof prefix - n - 3), text);
    memcpy(text, prefix, sizeof text);
    return status;
}

const char *sn_errmsg(void)
{
    return text;
}

const char *sn_status_name(sn_status status)
{
    switch (status) {
#define ROW(name, value, meaning)                                                                  \
    case name:                                                                                     \
        return #name;
        SN_STATUS_LIST(ROW)
#undef ROW
    }
    return "SN_?";
}

const char *sn_status_meaning(sn_status status)
{
    switch (status) {
#define ROW(name, value, meaning)                                                                  \
    case name:                                                                                     \
        return meaning;
        SN_STATUS_LIST(ROW)
#undef ROW
    }
    return "an unknown status";
}

void sn_assert_failed(const char *cond, const char *file, int line, const char *func)
{
    fprintf(stderr, "supernode: bug: %s does not hold at %s:%d in %s\n", cond, file, line, func);
    abort();
}
