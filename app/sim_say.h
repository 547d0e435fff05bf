/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_say — what foresight tells: tables for people, JSON for programs, a page with pictures. */
#ifndef SN_APP_SIM_SAY_H
#define SN_APP_SIM_SAY_H

#include "sim/sim.h"

typedef struct sim_question {
    sn_sim_cluster cluster;
    sn_sim_model model;
    int64_t batch;
    double seconds; /* that the answer took */
} sim_question;

void sim_layout_text(const sn_sim_layout *l,
                     sn_str *out); /* "tensor 8 x pipeline 8 x data 16, …" */

void sim_say_plan(const sim_question *q, const sn_sim_answer *a);
void sim_json_plan(const sim_question *q, const sn_sim_answer *a);
/* ran [1 + recoveries]: the one asked for, then all of them */
void sim_say_run(const sim_question *q, const sn_sim_answer *a, const sn_sim_plan_of_run *p,
                 const sn_sim_ran *ran);
void sim_json_run(const sim_question *q, const sn_sim_answer *a, const sn_sim_plan_of_run *p,
                  const sn_sim_ran *ran);
void sim_say_truth(const sn_sim_fact *fact, int facts, bool json);
/* seconds of an all-reduce in a ring and of an all-to-all of 1 GB a card among so many cards */
void sim_say_links(const sn_topo *topo, const sn_sim_cluster *c, int cards, double ring, double all,
                   bool json);
void sim_say_cards(void);
void sim_say_models(void);
sn_status sim_say_claims(bool json);

/* The step as a trace for Perfetto: all micro-batches of all stages. */
void sim_trace(const sim_question *q, const sn_sim_answer *a, sn_str *out);

/* A self-contained page: the step as a Gantt chart of the stages, its parts, memory, the sweep over
 * cards, and with a run its days. */
void sim_page(const sim_question *q, const sn_sim_answer *a, const sn_sim_ran *ran, sn_str *out);

#endif
