/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

static sn_log_level limit = SN_LOG_INFO;
static char prefix[64];

void sn_log_init(sn_log_level level, const char *text)
{
    limit = level;
    snprintf(prefix, sizeof prefix, "%s", text ? text : "");
}

void sn_log(sn_log_level level, const char *format, ...)
{
    static const char *const name[] = {"error", "warning", "info", "debug"};
    if (level > limit)
        return;
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fprintf(stderr, "supernode: %s%s%s: %s\n", prefix, *prefix ? ": " : "", name[level], line);
}
