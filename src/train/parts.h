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

#include <jansson.h>

#include "ckpt/ckpt.h"
#include "compress/compress.h"
#include "train/train.h"

/* ---- wire.c: what travels encoded between hosts ---- */
typedef struct train_wires train_wires;
uint64_t train_wires_bytes(const sn_plan *plan, const sn_program *p); /* of coll's arena */
/* Collective; groups: the plan's, borrowed. */
sn_status train_wires_open(const sn_plan *plan, const sn_program *p, sn_coll *c,
                           sn_coll_group *const *groups, sn_time deadline, train_wires **ret);
void train_wires_close(train_wires *s); /* NULL is fine */
sn_compress *train_wires_get(const train_wires *s, int wire);
void train_wires_plain(train_wires *s, bool plain);
void train_wires_progress(train_wires *s);
sn_compress_stats train_wires_stats(const train_wires *s);
/* What this card owes, for a checkpoint; s NULL: nothing. */
int train_wires_pieces(const train_wires *s, sn_arena *arena, sn_piece **ret);
/* Take over what a checkpoint of any split says is owed. *ret_sources: hosts that owed something in
 * it. s NULL: only look. */
sn_status train_wires_load(train_wires *s, const sn_ckpt *c, int *ret_sources);
train_wires *train_exec_wires(const sn_exec *e); /* NULL: none */

/* ---- trace.c: when each instruction of a few steps ran, and each transfer was under way ---- */
typedef struct train_trace train_trace;
train_trace *train_trace_open(const sn_plan *plan, const sn_program *program, int64_t steps,
                              const char *run_dir);
void train_trace_close(train_trace *t); /* NULL is fine */
/* A step begins: events are kept until as many steps as were asked for are over. */
void train_trace_step(train_trace *t, int64_t step);
/* An instruction: a kernel's time, or how long a transfer was under way. Full or over: ignored. */
void train_trace_add(train_trace *t, int instr, sn_time begin, sn_time end);
/* The event of standing still for what this instruction posted. */
static inline int train_trace_wait(int instr)
{
    return ~instr;
}
bool train_trace_over(const train_trace *t, int64_t step);
/* RUN/trace-RANK.jsonl: a trace event of Chrome's format on each line, without the brackets. */
sn_status train_trace_write(const train_trace *t, const char *run_dir, const char *host);
void train_exec_trace(sn_exec *e, train_trace *trace);

/* ---- compression.c: which codec ---- */
#define TRAIN_AUTO_GRADIENTS "ternary" /* doc/compression.md says why */
/* The other way for parameters that nobody said must be kept; false: there is none. */
bool train_compression_spread(const sn_job *job, sn_plan_compression *c);
bool train_compression_auto(const sn_job *job);
bool train_compression_encodes(const sn_plan_compression *c);
double train_codec_rate(void); /* bytes of f32 a second, measured now with auto's codec */
/* "none", or "GRADIENTS, parameters CODEC" as the job has it; auto is "auto". */
const char *train_compression_text(const sn_job *job, char out[96]);

/* ---- job.c ---- */
sn_topo *train_one_card(const char *kind); /* with the memory that there is */
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

/* ---- order.c: a permutation of 0 … n − 1 for each (seed, epoch), held nowhere ---- */
uint64_t train_permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t i);

sn_status train_feed_init(const sn_plan *plan, const sn_program *program, sn_exec *exec,
                          sn_arena *arena, train_feed *ret);
/* The batch whose first sample is number `first` of all that the job takes. */
void train_feed_step(const train_feed *f, const sn_tokens *t, uint64_t seed, int64_t first);
/* Held-out windows number first, first + stride, … for samples [0, count) of this pass; none for
 * the rest of the batch. */
void train_feed_held(const train_feed *f, const sn_tokens *t, const int64_t *window,
                     int64_t windows);
int64_t train_held_windows(const sn_tokens *t, int64_t sequence);

/* ---- prefetch.c: a thread that fills batches ahead of the steps ---- */
typedef struct train_prefetch train_prefetch;
/* Batches `first`, first + batch, …: `batches` of them, at most `depth` ahead. Borrows f, t. */
sn_status train_prefetch_open(const train_feed *f, const sn_tokens *t, uint64_t seed, int64_t first,
                              int64_t batch, int64_t batches, int depth, train_prefetch **ret);
/* The next batch into f's inputs. Allocates nothing. SN_ETIME: the data did not come. */
sn_status train_prefetch_take(train_prefetch *p, sn_time deadline);
void train_prefetch_close(train_prefetch *p); /* NULL is fine */

/* ---- text.c ---- */
#define TRAIN_COPY_BYTES_MAX (INT64_C(64) << 20) /* a larger text is mapped */
/* As sn_text_open; cache: where the one file of a large directory is kept, NULL: in it. */
sn_status train_text_open(const char *path, const char *cache, double held_out, int64_t sequence,
                          sn_text **ret);

/* ---- state.c ---- */
void train_state_init(const sn_plan *plan, const sn_program *program, sn_exec *exec, uint64_t seed);
/* The pieces of this card; `owned`: only those that this card saves, else one for each state of the
 * program. Returns their number. */
int train_state_pieces(const sn_plan *plan, const sn_program *program, sn_exec *exec, bool owned,
                       sn_arena *arena, sn_piece **ret);
/* Fill all of them. What was seen of a master, where the checkpoint does not say, is the master. */
sn_status train_state_load(const sn_program *program, const sn_ckpt *c, sn_piece *piece,
                           int pieces);

/* ---- hf.c ---- */
/* Masters, and what was seen of them, from job->init. */
sn_status train_state_from_hf(const sn_job *job, const sn_plan *plan, const sn_program *program,
                              sn_exec *exec);

/* ---- meta.c: what a checkpoint says beside its tensors ---- */
typedef struct train_meta {
    int64_t step, tokens, skipped;
} train_meta;
/* page: whose last steps the description keeps, NULL none */
void train_meta_write(const sn_job *job, uint64_t data, const train_meta *m, const sn_page *page,
                      sn_str *out);
/* The last steps before the checkpoint into the page's ring. */
void train_meta_past(const char *json, int64_t step, sn_page *page);
/* The codec that the checkpoint's run used, "" when that was another number of hosts. */
void train_meta_codec(const char *json, int hosts, char out[64]);
/* SN_EMISMATCH names the numbers of the model that differ. *ret_notes: what else differs from this
 * job, in words. */
sn_status train_meta_read(const char *json, const sn_job *job, uint64_t data, train_meta *ret,
                          sn_str *ret_notes);

/* ---- past.c: the last steps before a checkpoint ---- */
void train_past_write(const sn_page *page, int64_t step, sn_str *out);
/* how many of them are in `rows` (hostile JSON or NULL is fine) */
int train_past_read(const json_t *rows, int64_t step, sn_page_step ret[SN_PAGE_RING]);

/* ---- the worker ---- */
typedef struct train_worker {
    const sn_train_opts *opts;
    const sn_job *job; /* the caller's, or `settled` */
    sn_job settled;    /* with a codec in the place of auto */
    sn_boot *boot;
    sn_net *net;
    sn_page *page; /* never NULL: `own_page` when the caller gave none */
    sn_page own_page;
    sn_recorder *recorder; /* NULL: off */
    sn_status ended;       /* how, for the recorder's last words */
    const char *why;
    int rank, world;
    sn_arena *arena;
    sn_tokens *tokens;
    sn_card *card;
    sn_plan *plan;
    sn_program *program;
    sn_coll *coll;      /* NULL in a world of one */
    sn_coll_group *all; /* the whole job, for what is no part of a program */
    sn_exec *exec;
    train_feed feed;
    train_trace *trace;       /* NULL: none, or written */
    train_prefetch *prefetch; /* NULL: batches are filled as they are needed */
    int64_t *window;          /* [batch], for evaluating */
    sn_piece *save, *load;
    int saves, loads;
    const char *ckpt_dir;
    bool link_known;     /* between hosts, measured already */
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
int64_t train_first_sample(const train_worker *w); /* of the next step */
void train_warn(train_worker *w, const char *what);
/* The same for a whole sentence. Only rank 0 speaks: what all ranks know is said once. */
void train_say(train_worker *w, const char *text);
/* The working parameters of all cards, from everyone's masters or what was seen of them. */
sn_status train_gather(train_worker *w, sn_exec_wire wire);
/* What compression saved, in w->result and RUN/compression.json. Collective. */
sn_status train_tell_compression(train_worker *w);
/* Write what was traced, if anything, and trace no more. A file that cannot be written is a
 * warning. */
void train_end_trace(train_worker *w);
sn_status train_evaluate(train_worker *w, int64_t windows_max, double *ret_loss);
sn_status train_save(train_worker *w);
sn_status train_restore(train_worker *w);
sn_status train_loop(train_worker *w);

#endif
