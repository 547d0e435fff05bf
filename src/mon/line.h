/* SPDX-License-Identifier: Apache-2.0
 *
 * line — the progress line as a pure function of what is known. Private to mon.
 *
 *   step 120/600 ▕████▌            ▏ loss 2.013  41.2k tok/s  38 % of peak  …  ETA 1m 02s */
#ifndef SN_MON_LINE_H
#define SN_MON_LINE_H

#include "base/base.h"

typedef struct mon_view {
    int64_t step, first, steps;
    double loss, val_loss; /* val_loss: the last one seen, NaN none */
    double tokens_per_s, peak_share, exposed_share, eta_s;
} mon_view;

typedef struct mon_look {
    int columns; /* never more than these; 0: no limit, no bar */
    bool utf8, colour;
} mon_look;

/* What does not fit is left out, the least important first; the columns used are returned. */
int mon_line(sn_str *out, const mon_view *view, mon_look look);

#endif
