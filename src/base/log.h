/* SPDX-License-Identifier: Apache-2.0
 *
 * log — one line on stderr. Libraries return, programs log: a layer logs at debug only.
 * error: someone must act; warn: degraded and going on; info: what a person would narrate; debug:
 * per object. */
#ifndef SN_BASE_LOG_H
#define SN_BASE_LOG_H

typedef enum sn_log_level { SN_LOG_ERROR, SN_LOG_WARN, SN_LOG_INFO, SN_LOG_DEBUG } sn_log_level;

/* prefix: "rank 3 h1", copied; NULL for none */
void sn_log_init(sn_log_level level, const char *prefix);
void sn_log(sn_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
