/* SPDX-License-Identifier: Apache-2.0
 *
 * plan — from a graph, a topology and a card count to one straight-line program per card.
 *
 *   graph ─ mark stages ─ fuse ─ backward ─ shard over the tensor axis ─ shard over the data axis
 *         ─ order (1F1B) ─ insert collectives, sends, receives ─ buckets, optimizer ─ place memory
 * → programs
 *
 * Mesh: world = data × pipeline × tensor cards. Rank of (d, s, t): tensor varies fastest (nearest
 * cards); which of pipeline and data comes next is part of the choice (`order`): the chattier axis
 * gets the nearer tier.
 *
 * Sharding of a value on an axis: whole, split along a dim, or partial (sum or max). It follows
 * from the shard rules of the op rows: each node picks one label to split (or none), its backward
 * nodes follow their origin; where a consumer needs another form than the producer leaves, a
 * collective is inserted (partial → whole: all_reduce; partial → split: reduce_scatter; split →
 * whole: all_gather; whole → split: a slice). The picks minimise time under memory: Megatron's
 * column/row pairs, sequence split and vocabulary split come out of it. Constraint that makes the
 * axis "tensor": a node with a matrix parameter splits that parameter.
 *
 * Optimizer state is sharded over the data axis (stage 1): gradients are reduce-scattered in
 * buckets, AdamW updates my shard of f32 master weights, parameters are all-gathered. Where the
 * cards of a data group are on several hosts, both may be encoded (compression): then the working
 * parameters are what all have *seen* of the masters, which the gathering brings up to date; or
 * every card keeps the whole state and gradients are all-reduced encoded.
 *
 * Invariants (sn_program_check asserts them over all ranks)
 *  1. Sends meet receives (pair, tag, bytes, order), collectives meet in every group in the same
 *     order with the same counts.
 *  2. Every ticket is waited for exactly once, before the slots it uses are reused; no two live
 *     slots overlap.
 *  3. Same inputs → the same plan and the same bytes of every program on every rank. Pure. */
#ifndef SN_PLAN_PLAN_H
#define SN_PLAN_PLAN_H

#include "algo/algo.h"
#include "base/base.h"
#include "codec/codec.h"
#include "graph/graph.h"
#include "topo/topo.h"

/* ---- what is asked ---- */
typedef sn_status (*sn_plan_build)(void *ctx, sn_arena *arena, int64_t micro_batch,
                                   double tokens_per_step, sn_graph **ret);

typedef struct sn_plan_compression { /* of data groups that span hosts; zero: none */
    sn_codec gradients, parameters;
    bool kept;       /* parameters do not travel: each card of a data group that spans hosts has the
                        whole state of the optimizer, and gradients are all-reduced */
    int passes;      /* of the parameters' codec: codes of what the code before left; 0: 1 */
    double momentum; /* top-k's momentum correction of gradients */
    bool forget;     /* what a code leaves out of a gradient is not sent later */
    double codec_bytes_per_s; /* of f32 encoded and decoded by one card; 0: 1 GB/s */
} sn_plan_compression;

typedef struct sn_plan_opts {
    const sn_topo *topo; /* rank r runs on card r */
    int cards;           /* to use; 0: all of topo */
    int tensor, pipeline,
        data;      /* 0: auto. All given: their product must be ≤ cards and is what is used */
    int64_t batch; /* samples a step, whole job */
    int64_t accumulation; /* micro-batches a step */
    int64_t tokens_per_sample;
    sn_dtype precision;    /* F32 or BF16: storage of parameters and activations, and the wire */
    uint64_t memory_limit; /* bytes a card; 0: the topology's */
    uint64_t bucket_bytes; /* 0: 1 MiB */
    bool forward_only;     /* for evaluating and generating: no backward, no optimizer */
    sn_plan_compression compression;
    sn_plan_build build;
    void *ctx;
} sn_plan_opts;

/* ---- what comes out ---- */
typedef enum sn_group_axis {
    SN_AXIS_TENSOR,
    SN_AXIS_PIPELINE,
    SN_AXIS_DATA,
    SN_AXIS_WORLD
} sn_group_axis;

typedef struct sn_plan_group {
    const char *name; /* "data[s0,t1]", "tensor[d0,s1]", "world" */
    sn_group_axis axis;
    int members;
    int *rank;
    int *host; /* of each member, as the topology says */
} sn_plan_group;

typedef struct sn_plan_cost {
    double step_ns, compute_ns, collective_ns, pipeline_ns /* transfers + bubble */, optimizer_ns;
    uint64_t memory_bytes, params_bytes, grads_bytes, optimizer_bytes,
        activation_bytes; /* of the fullest card */
    double flops;         /* model FLOPs of a step, whole job */
    double plain_bytes,
        coded_bytes; /* that data groups move between hosts in a step: uncompressed, as planned */
} sn_plan_cost;

typedef struct sn_candidate {
    int tensor, pipeline, data;
    bool pipeline_near; /* order: ranks of one pipeline are nearer than those of one data group */
    bool feasible;
    sn_plan_cost cost;
    const char *why; /* "heads 6 is not divisible by tensor 4", "needs 3.1 GiB, a card has 2.0 GiB",
                        "41 % slower: bubble" */
} sn_candidate;

typedef struct sn_plan {
    sn_arena *arena;
    int tensor, pipeline, data, world;
    bool pipeline_near;
    const sn_topo *topo;
    sn_plan_opts opts;
    sn_graph *graph; /* fused, with backward, stages marked */
    int groups;
    sn_plan_group *group;
    sn_plan_cost cost; /* predicted, of the choice */
    int candidates;    /* all that were looked at, best first */
    sn_candidate *candidate;
    const char *reason;               /* one sentence: why this one */
    struct sn_plan_private *private_; /* shardings, stage cuts */
} sn_plan;

/* SN_EFIT: nothing fits: the sentence says which number stands in the way and what would fit
 * ("heads 3 cannot be split over tensor 2: tensor may be 1 or 3", "batch_size 8 is not divisible by
 * gradient_accumulation 3 × data 2: …", "needs 5.2 GiB a card, 2.0 GiB are there: tensor 4 would
 * need 1.4 GiB", "16 cards asked, 8 exist"). */
sn_status sn_plan_make(const sn_plan_opts *opts, sn_plan **ret);
void sn_plan_free(sn_plan *plan);
/* the choice, its parts, the runners-up and why they lost */
void sn_plan_print(const sn_plan *plan, sn_str *out);
/* the forward graph with its stages and what changes form on the way, for Graphviz */
void sn_plan_dot(const sn_plan *plan, sn_str *out);
void sn_plan_coords(const sn_plan *plan, int rank, int *ret_tensor, int *ret_stage, int *ret_data);
int sn_plan_rank(const sn_plan *plan, int tensor, int stage, int data);

/* ---- programs ---- */
typedef enum sn_slot_kind {
    SN_SLOT_INPUT, /* filled by the caller before the step: graph input `value` of micro-batch
                      `micro` */
    SN_SLOT_PARAM, /* working parameters, views into the flat parameter buffer */
    SN_SLOT_GRAD,  /* F32 accumulated gradients, views into the flat gradient buffer */
    SN_SLOT_MASTER,
    SN_SLOT_MOMENT1,
    SN_SLOT_MOMENT2, /* F32 optimizer state of my shard */
    SN_SLOT_SEEN,    /* F32, BF16 precision with encoded gathering: what all cards of the data group
                        have seen of the masters; in F32 precision the parameters are that */
    SN_SLOT_STATE, /* F32, a state of the graph, whole on each card of its stage: the program writes
                        its next content over it once a micro-batch */
    SN_SLOT_HYPER, /* [8] F32, filled by the caller, see SN_OP_ADAMW */
    SN_SLOT_SCALARS, /* [2] F32: loss (mean over the step's tokens) and Σ grad², whole job, valid
                        after the step on every rank */
    SN_SLOT_RESULT,  /* forward_only: the graph's "logits" where this card has them, else none */
    SN_SLOT_ACTIVATION,
    SN_SLOT_KINDS
} sn_slot_kind;

typedef struct sn_slot { /* a tensor's place on this card */
    const char *name;
    sn_slot_kind kind;
    sn_dtype dtype;
    sn_shape shape;  /* local */
    uint64_t offset; /* bytes, from the card's memory; 64-byte aligned unless a view */
    uint64_t bytes;
    int value;   /* graph value, -1 none */
    int micro;   /* micro-batch, -1: persistent */
    int base;    /* a view: the slot it lies in, -1 a slot of its own */
    uint64_t at; /* a view: bytes from the start of base */
    int first,
        last; /* instructions between which it is alive; persistent: the whole program and beyond */
} sn_slot;

typedef enum sn_instr_kind {
    SN_INSTR_KERNEL,
    SN_INSTR_COLL,
    SN_INSTR_SEND,
    SN_INSTR_RECV,
    SN_INSTR_WAIT
} sn_instr_kind;
typedef enum sn_phase {
    SN_PHASE_FORWARD,
    SN_PHASE_BACKWARD,
    SN_PHASE_REDUCE,
    SN_PHASE_OPTIMIZER,
    SN_PHASE_GATHER
} sn_phase;

typedef struct sn_instr {
    sn_instr_kind kind;
    sn_phase phase;
    int micro; /* -1 none */
    int node;  /* graph node it came from, -1 none */
    /* KERNEL: operands are slots, -1 absent */
    sn_op op;
    sn_attr attr;
    uint32_t accumulate;
    int ins, outs;
    int in[SN_OP_IN_MAX], out[SN_OP_OUT_MAX];
    /* COLL (in[0] → out[0]), SEND (in[0]), RECV (out[0]) */
    sn_coll_op coll;
    sn_red red;
    int group;     /* index into plan->group */
    int64_t count; /* as sn_coll_call.count */
    sn_dtype dtype;
    int peer; /* rank */
    uint32_t tag;
    int priority;
    int ticket; /* COLL, SEND, RECV set it; WAIT waits for it */
    int wire;   /* COLL whose bytes between hosts are encoded: index into program->wire + 1; 0: not.
                   A REDUCE_SCATTER of that kind uses up what it reads. */
} sn_instr;

typedef struct sn_wire_param { /* a parameter in the vector of a wire */
    int value;
    int64_t at, count;                               /* elements of the vector */
    int64_t begin[SN_RANK_MAX], extent[SN_RANK_MAX]; /* its block on this card */
    int64_t rows, cols; /* travels as a matrix (PowerSGD); 0: as it is */
    sn_codec codec;     /* else: of its own code */
    int passes;
    int parts, part; /* over the tensor axis, this card's */
    bool owner; /* false: another card (replica over the tensor axis) saves what belongs to it */
} sn_wire_param;

typedef struct sn_wire { /* one vector that is reduced or gathered encoded, once a step */
    const char *name;    /* "gradients of bucket 3" */
    sn_coll_op op;       /* REDUCE_SCATTER, ALL_GATHER; ALL_REDUCE */
    sn_codec codec;
    int passes;
    double momentum;
    bool forget;   /* no residuals */
    int group;     /* index into plan->group */
    int64_t count; /* elements of the whole vector */
    int bucket;
    int params;
    sn_wire_param *param;
} sn_wire;

typedef struct sn_state { /* one piece of persistent training state on this card: what checkpoints
                             carry */
    int value;            /* the parameter, or the state */
    sn_slot_kind kind;    /* MASTER, MOMENT1, MOMENT2, SEEN; STATE */
    int slot;             /* where: elements [slot_at, slot_at + flat_count) of this slot */
    int64_t slot_at;
    int64_t begin[SN_RANK_MAX],
        extent[SN_RANK_MAX];        /* the tensor-parallel block of the parameter on this card */
    int64_t flat_begin, flat_count; /* range of the flattened block */
    bool owner; /* false: another card (replica over the tensor axis) saves it */
} sn_state;

typedef struct sn_program {
    sn_arena *arena;
    int rank;
    uint64_t
        memory_bytes; /* what the caller allocates (from coll's arena), 64-byte aligned, zeroed */
    int slots, instrs, tickets, states, wires;
    sn_slot *slot;
    sn_instr *instr;
    sn_state *state;
    sn_wire *wire;
    int hyper, scalars, result; /* slots, -1 none */
    /* Where the working parameters come from: [gather_first, gather_last) of phase GATHER posts
     * what rebuilds them from the masters, at the start of the step; the first reader of each waits
     * for it. Running only these and waiting for what is under way does the same after a load.
     * Where nothing has changed the masters since, a step may leave them out. */
    int gather_first, gather_last;
} sn_program;

sn_status sn_plan_program(const sn_plan *plan, int rank, sn_program **ret);
void sn_program_free(sn_program *program);
void sn_program_print(const sn_plan *plan, const sn_program *program, sn_str *out);
void sn_program_check(const sn_plan *plan, sn_program *const *all /* [world] */);

#endif
