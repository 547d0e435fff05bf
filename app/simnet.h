/* SPDX-License-Identifier: Apache-2.0
 * sim net: the comparison that text, JSON and page show. */
#ifndef SN_APP_SIMNET_H
#define SN_APP_SIMNET_H

#include "sim/net/net.h"

enum { SIMNET_CONTROLS = 5, SIMNET_LOADS = 6, SIMNET_SEEDS_MAX = 20 };
extern const char *const simnet_control[SIMNET_CONTROLS]; /* none, dcqcn, tuned, learned, ideal */

typedef struct simnet_row {
    int control, load;   /* numbers of the lists */
    sn_roce_result mean; /* over seeds: the figures that the table shows; pauses the longest */
    int stable;          /* of the seeds */
    const char *why;     /* the first condition missed, or NULL */
} simnet_row;

typedef struct simnet_comparison {
    sn_roce_opts opts;
    int seeds;
    uint64_t first_seed;
    double load[SIMNET_LOADS];
    simnet_row row[SIMNET_LOADS][SIMNET_CONTROLS];
    sn_roce_result shown[SIMNET_CONTROLS]; /* the first seed at 90 %: goodput over time */
} simnet_comparison;

sn_status simnet_choose(int control, const sn_roce_policy *policy, sn_roce_opts *opts);
sn_status simnet_page(const simnet_comparison *c, const char *path);

#endif
