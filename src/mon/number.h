/* SPDX-License-Identifier: Apache-2.0
 *
 * number — numbers as text, the same under every locale, and never "nan" where a reader would
 * choke. Private to mon. */
#ifndef SN_MON_NUMBER_H
#define SN_MON_NUMBER_H

#include "mon/mon.h"

/* The shortest decimal that reads back as the same double; null when it is not finite. */
void mon_json_number(sn_str *out, double v);
void mon_json_text(sn_str *out, const char *text); /* quoted and escaped */

/* `v` with `digits` decimals; "–" when it is not finite. */
void mon_fixed(sn_str *out, double v, int digits);

/* Shares and rates of a step; 0 where there is nothing to divide by. */
double mon_tokens_per_s(double tokens, double ns);
double mon_share(double part, double whole);     /* clamped to 0 … 1 */
void mon_short_count(char out[16], double v);    /* "41.2k", "980", "1.25M" */
void mon_duration(char out[32], double seconds); /* "48s", "1m 02s", "2h 05m", "3d 04h" */

#endif
