/* SPDX-License-Identifier: Apache-2.0
 *
 * launcher — the loop between one attempt's descriptors and the supervisor. Private to the layer.
 *
 *   watch.c   descriptors, pages, clock ──► events ──► ctl ──► actions ──► pool.c */
#ifndef SN_POOL_LAUNCHER_H
#define SN_POOL_LAUNCHER_H

#include "pool/attempt.h"

#define POOL_TICK (50 * SN_MS)

/* A worker's page as ctl wants it, with the texts it points to. */
typedef struct pool_text {
    char op[SN_PAGE_TEXT], error[512];
} pool_text;

typedef struct pool_launcher {
    const sn_pool_job *job;
    sn_ctl *ctl;
    sn_isolation isolation; /* in use */
    pool_attempt attempt;
    bool running; /* the attempt holds something */
    bool whole;   /* it was started completely: every page is there */
    bool over;
    int level; /* of interrupt, told to ctl */
    sn_time tick, timer;
    sn_page **pages;     /* [world], for on_tick */
    sn_ctl_view *view;   /* [world] */
    pool_text *text;     /* [world] */
    struct pollfd *poll; /* [2·hosts + 2·world] */
    sn_ctl_action finish;
    bool refused; /* the first attempt could not be started */
} pool_launcher;

/* Sleep until something happens or is due, and feed ctl all of it. */
void pool_watch(pool_launcher *l);
/* One event to ctl, its actions carried out. */
void pool_feed(pool_launcher *l, sn_ctl_event event);

#endif
