/* SPDX-License-Identifier: Apache-2.0
 *
 * sim/private — what the files of sim share. */
#ifndef SN_SIM_PRIVATE_H
#define SN_SIM_PRIVATE_H

#include "sim/sim.h"

typedef struct sim_layer { /* seconds of a layer of a micro-batch on a card */
    double forward, backward, weights;
    double core;    /* of forward: scores to values, what selective recomputation repeats */
    double tensor;  /* collectives of one direction */
    double context; /* keys and values of the other parts of a sequence, exposed */
    double head;    /* not of a layer: the head and loss of a micro-batch, both directions */
} sim_layer;

sim_layer sim_layer_price(const sn_sim_cluster *c, const sn_sim_model *m, const sn_sim_layout *l);
void sim_step_price(const sn_sim_cluster *c, const sn_sim_model *m, const sn_sim_layout *l,
                    int64_t batch, const sim_layer *y, sn_sim_step *ret);
void sim_memory(const sn_sim_model *m, const sn_sim_layout *l, double parameters, sn_sim_step *ret);

#endif
