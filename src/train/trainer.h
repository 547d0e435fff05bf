/* SPDX-License-Identifier: Apache-2.0
 *
 * trainer — any graph with any loss, trained step by step by the calling program. Included by
 * train.h.
 *
 *   open(build) ─ input("x", …) input("labels", …) ─ step(lr) ─ … ─ predict ─ save
 *
 * One card, in this process: what a program with samples of its own needs (a policy, an example, a
 * test). Batches are whole; the trainer cuts them into micro-batches. A step allocates nothing.
 * A trainer belongs to one thread at a time. */
#ifndef SN_TRAIN_TRAINER_H
#define SN_TRAIN_TRAINER_H

#include "base/base.h"
#include "graph/graph.h"

typedef struct sn_trainer sn_trainer;

typedef struct sn_trainer_opts {
    /* Builds the graph for so many samples; its loss is scaled by 1 / samples_per_step, so that
     * micro-batches add up to a mean. Inputs say with batch_dim which dimension counts samples;
     * a value named "logits" is what sn_trainer_predict returns. */
    sn_status (*build)(void *ctx, sn_arena *arena, int64_t samples, double samples_per_step,
                       sn_graph **ret);
    void *ctx;
    int64_t batch;        /* samples a step */
    int64_t accumulation; /* micro-batches a step, 0: 1 */
    const char *card;     /* NULL: "cpu" */
    sn_dtype precision;   /* F32 or BF16 */
    struct {              /* AdamW; all zero: 0.9, 0.999, 1e-8, no decay, no clipping */
        double beta1, beta2, eps, weight_decay, clip;
    } adamw;
    uint64_t seed;         /* of the weights */
    uint64_t memory_limit; /* bytes, 0: what there is */
} sn_trainer_opts;

/* SN_EFIT: it does not fit the memory, or accumulation does not divide batch; what the graph's own
 * calls say. */
sn_status sn_trainer_open(const sn_trainer_opts *opts, sn_trainer **ret);
void sn_trainer_close(sn_trainer *t); /* NULL is fine */

/* The input of that name for the next step, the whole batch in the graph's layout; copied. `bytes`
 * guards against another layout. SN_ENOTFOUND lists the inputs. */
sn_status sn_trainer_input(sn_trainer *t, const char *name, const void *data, size_t bytes);
/* Forward, backward, AdamW with this rate. *ret_loss and *ret_grad_norm may be NULL. A gradient
 * that is not finite leaves everything as it was: *ret_grad_norm is then not finite either. */
sn_status sn_trainer_step(sn_trainer *t, double lr, double *ret_loss, double *ret_grad_norm);
int64_t sn_trainer_steps(const sn_trainer *t);
/* The loss of what the inputs hold, nothing learnt. */
sn_status sn_trainer_loss(sn_trainer *t, double *ret_loss);
/* "logits" of what the inputs hold, as F32 in the graph's layout: `count` elements. SN_ENOTSUP: the
 * graph names none. */
sn_status sn_trainer_predict(sn_trainer *t, float *ret, int64_t count);

/* Parameters by name: the f32 masters. SN_ENOTFOUND names the nearest. */
sn_status sn_trainer_get(const sn_trainer *t, const char *name, float *ret, int64_t count);
sn_status sn_trainer_set(sn_trainer *t, const char *name, const float *data, int64_t count);
int64_t sn_trainer_parameters(const sn_trainer *t); /* elements */

/* A checkpoint of the present step in dir, as jobs write it; the newest one back. */
sn_status sn_trainer_save(sn_trainer *t, const char *dir);
sn_status sn_trainer_load(sn_trainer *t, const char *dir);

#endif
