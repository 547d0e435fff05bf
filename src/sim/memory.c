/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes of the fullest card, the first stage: Korthikanti et al., "Reducing activation
 * recomputation in large transformer models", MLSys 2023, equations 1 to 6, with the optimizer of
 * mixed precision: a parameter in 16 bits, its gradient in 32, master and two moments in 32. */
#include "sim/private.h"

#include <math.h>

/* Of a layer and micro-batch, in units of tokens x hidden. */
static double layer_activations(const sn_sim_model *m, const sn_sim_layout *l)
{
    double t = l->tensor, spread = l->sequence_parallel ? t : 1;
    double scores = 5 * (double) (m->heads * m->sequence) / (double) m->hidden / t;
    if (m->fused || l->recompute == SN_SIM_SELECTIVE)
        scores = 0;
    double mlp = (double) m->mlp / (double) m->hidden; /* 4: 19 of the 24 are 16 + 3 */
    double split = (m->gated ? 8 + 6 * mlp : 8 + 4 * mlp) / t;
    if (l->recompute == SN_SIM_FULL)
        return 2 / spread;
    return (m->drops ? 10 : 8) / spread + split + scores;
}

void sim_memory(const sn_sim_model *m, const sn_sim_layout *l, double parameters, sn_sim_step *ret)
{
    double n = (double) l->data * l->context, p = l->pipeline, v = l->virtual_stages;
    double tokens = (double) (m->sequence * l->micro_batch) / l->context;
    double unit = tokens * (double) m->hidden, layers = (double) m->layers / p;
    double flying = fmin((double) ret->micros, p);
    if (v > 1)
        flying = fmin((double) ret->micros, p) * (1 + (p - 1) / (p * v));
    if (l->schedule == SN_SIM_ZB_H2)
        flying = fmin((double) ret->micros, 2 * p - 1);
    double split = l->sequence_parallel ? l->tensor : 1;
    ret->parameters = 2 * parameters / (l->shards == 3 ? n : 1);
    ret->gradients = 4 * parameters / (l->shards >= 2 ? n : 1);
    ret->states = 12 * parameters / (l->shards ? n : 1);
    ret->activations = unit * layer_activations(m, l) * layers * flying;
    if (l->recompute == SN_SIM_FULL) { /* and one layer whole, while it is computed again */
        sn_sim_layout keep = *l;
        keep.recompute = SN_SIM_KEEP;
        ret->activations += unit * layer_activations(m, &keep);
    }
    if (m->drops)
        ret->activations += unit * flying / split; /* the embedding's dropout mask */
    if (p == 1)                                    /* the head is on this card too */
        ret->activations += 4 * tokens * (1 + (double) m->vocab / (double) m->hidden) *
                            (double) m->hidden / l->tensor;
    ret->memory = ret->parameters + ret->gradients + ret->states + ret->activations;
}
