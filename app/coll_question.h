/* SPDX-License-Identifier: Apache-2.0
 *
 * coll_question — what supernode coll explain is asked, and its answer: rows with their predicted
 * and, when asked to, measured times. */
#ifndef SN_APP_COLL_QUESTION_H
#define SN_APP_COLL_QUESTION_H

#include "calibration.h"

#include "topo/topo.h"

enum { SN_QUESTION_MEMBERS = 1024 };

typedef struct sn_question {
    sn_algo_call call;
    sn_algo_group group;
    sn_algo_model model;
    const sn_topo *topo;
    const char *cluster;               /* the file that the topology is from, NULL: this machine */
    const sn_calibration *calibration; /* what the model is from; NULL: the topology */
    int hosts, cards;                  /* cards of each, where they are even */
    int host[SN_QUESTION_MEMBERS], card[SN_QUESTION_MEMBERS];
} sn_question;

typedef struct sn_row_times {
    const sn_algo_row *row;
    bool fits;
    double ns, waiting_ns; /* waiting: what it were less if signals and messages took no time */
    double measured_ns;    /* 0: not */
} sn_row_times;

typedef struct sn_answer {
    int candidates;
    sn_row_times candidate[SN_ALGO_ROWS_MAX]; /* those that fit first, the fastest first */
    const sn_algo_row *choice;
    bool measured;
    const char *where;       /* it was measured, in words */
    const sn_algo_row *best; /* of those measured */
    double regret;           /* 0.05: the choice takes 5 % longer than the best */
} sn_answer;

sn_status sn_question_answer(const sn_question *q, sn_answer *ret);
/* Runs every row that fits on hosts emulated here. */
sn_status sn_question_measure(const sn_question *q, sn_answer *inout);

void sn_answer_text(const sn_question *q, const sn_answer *a, sn_str *out);
void sn_answer_json(const sn_question *q, const sn_answer *a); /* to stdout */

#endif
