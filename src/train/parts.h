/* SPDX-License-Identifier: Apache-2.0
 *
 * parts — what the files of train share: the worker and the pieces it is made of. Private.
 *
 *   worker.c  opens everything, in order, and closes it in reverse
 *     feed.c    which bytes of the text are the samples of step s, window w
 *     state.c   the masters and moments of this card: drawn, saved, loaded
 *     loop.c    step, step, …; stop, skip, save, evaluate
 *     eval.c    the loss on held-out text
 *     save.c    a checkpoint that all ranks agree on */
#ifndef SN_TRAIN_PARTS_H
#define SN_TRAIN_PARTS_H

#include "ckpt/ckpt.h"
#include "train/train.h"

/* ---- job.c ---- */
sn_status train_plan_one_card(const sn_job *job, const sn_topo *topo, sn_plan **ret);

/* ---- feed.c: the input slots of a program, found once ---- */
typedef struct train_input {
    int32_t *at;     /* [sequence][samples] */
    int micro;       /* micro-batch it belongs to */
    int64_t samples; /* of the micro-batch, on this card */
    bool targets;    /* else ids */
} train_input;

typedef struct train_feed {
    int inputs;
    train_input *input;
    int data;                      /* my place on the data axis */
    int64_t sequence, micro_batch; /* samples of a whole micro-batch */
} train_feed;

sn_status train_feed_init(const sn_plan *plan, const sn_program *program, sn_exec *exec,
                          sn_arena *arena, train_feed *ret);
void train_feed_step(const train_feed *f, const sn_text *text, uint64_t seed, int64_t step);
/* Held-out windows number first, first + stride, … for samples [0, count) of this pass; none for
 * the rest of the batch. */
void train_feed_held(const train_feed *f, const sn_text *text, const int64_t *window,
                     int64_t windows);
int64_t train_held_windows(const sn_text *text, int64_t sequence);

/* ---- state.c ---- */
void train_state_init(const sn_plan *plan, const sn_program *program, sn_exec *exec, uint64_t seed);
/* The pieces of this card; `owned`: only those that this card saves. Returns their number. */
int train_state_pieces(const sn_plan *plan, const sn_program *program, sn_exec *exec, bool owned,
                       sn_arena *arena, sn_piece **ret);

/* ---- meta.c: what a checkpoint says beside its tensors ---- */
typedef struct train_meta {
    int64_t step, tokens, skipped;
} train_meta;
void train_meta_write(const sn_job *job, uint64_t data, const train_meta *m, sn_str *out);
/* SN_EMISMATCH names the numbers of the model that differ. *ret_notes: what else differs from this
 * job, in words. */
sn_status train_meta_read(const char *json, const sn_job *job, uint64_t data, train_meta *ret,
                          sn_str *ret_notes);

/* ---- the worker ---- */
typedef struct train_worker {
    const sn_train_opts *opts;
    const sn_job *job;
    sn_boot *boot;
    sn_net *net;
    sn_page *page; /* never NULL: `own_page` when the caller gave none */
    sn_page own_page;
    sn_recorder *recorder; /* NULL: off */
    sn_status ended;       /* how, for the recorder's last words */
    const char *why;
    int rank, world;
    sn_arena *arena;
    sn_text *text;
    sn_card *card;
    sn_plan *plan;
    sn_program *program;
    sn_coll *coll;      /* NULL in a world of one */
    sn_coll_group *all; /* the whole job, for what is no part of a program */
    sn_exec *exec;
    train_feed feed;
    int64_t *window; /* [batch], for evaluating */
    sn_piece *save, *load;
    int saves, loads;
    const char *ckpt_dir;
    float *vote, *tally; /* see loop.c */
    double peak_flops;   /* of the cards the job uses, as the topology says */
    sn_metrics *metrics; /* rank 0 without a launcher */
    train_meta at;       /* what the next checkpoint would say */
    int64_t saved_step;  /* newest checkpoint of this run or the resumed one, -1 none */
    int64_t step_ns;     /* of the last step: the longer it is the longer peers are waited for */
    sn_train_result result;
} train_worker;

sn_status train_worker_open(train_worker *w, sn_boot *boot, const sn_net_opts *net,
                            const sn_train_opts *opts);
void train_worker_close(train_worker *w);
sn_time train_deadline(const train_worker *w);
void train_warn(train_worker *w, const char *what);
/* The same for a whole sentence. Only rank 0 speaks: what all ranks know is said once. */
void train_say(train_worker *w, const char *text);
sn_status train_evaluate(train_worker *w, int64_t windows_max, double *ret_loss);
sn_status train_save(train_worker *w);
sn_status train_restore(train_worker *w);
sn_status train_loop(train_worker *w);

#endif
