/* SPDX-License-Identifier: Apache-2.0
 *
 * plan/private — what the passes of the planner share.
 *
 *   model     a graph with stages, rules, labels and forms: everything about the work, nothing
 * about ranks price     what a kernel, a collective and a transfer cost on the chosen cards layout
 * where each parameter of a stage lies in the flat buffers, cut into buckets
 *
 * A *form* says how a value lies on one mesh axis: whole, split along a dimension, or partial. A
 * value has one form per axis; the axes do not know each other. */
#ifndef SN_PLAN_PRIVATE_H
#define SN_PLAN_PRIVATE_H

#include "plan/plan.h"

/* The two axes along which values are sharded; the pipeline axis moves values, it shards none. */
enum { PLAN_TENSOR, PLAN_DATA, PLAN_AXES };

enum { FORM_WHOLE = -1, FORM_SUM = -2, FORM_MAX = -3 }; /* 0 and above: split along that dim */

#define PLAN_ALIGN 32 /* elements between the starts of parameters: 64 bytes even in BF16 */

typedef struct plan_price {
    const sn_topo *topo;
    int card;  /* the slowest one in use */
    int world; /* cards in use */
    sn_dtype dtype;
    struct plan_price_group {
        int members;
        sn_algo_group group;
        sn_algo_model model;
    } group[3];  /* per axis the widest group; [2] is the world */
    sn_path hop; /* between neighbouring stages, the longest of them */
} plan_price;

typedef struct plan_param { /* one parameter in the flat buffers of its stage */
    int value;
    int64_t at, count;        /* elements */
    bool decay, trained;      /* trained: the loss depends on it */
    bool replicated, partial; /* over the tensor axis: the same on all; its gradient is a partial
                                 sum until the end of the step */
    int bucket;
    int ready; /* the last node that adds to the gradient, -1 none */
} plan_param;

typedef struct plan_region { /* a run of parameters that are treated alike */
    int64_t at, count;
    bool decay, replicated, partial;
} plan_region;

typedef struct plan_bucket {
    int64_t at, count; /* count divides by data · PLAN_ALIGN */
    bool trained;
    int regions;
    plan_region region[8];
    int64_t partial_at, partial_count; /* what the tensor group adds up first */
    int contributions;                 /* of one micro-batch */
} plan_bucket;

typedef struct plan_layout {
    int params, buckets;
    plan_param *param;
    plan_bucket *bucket;
    int64_t elements;
} plan_layout;

typedef struct plan_model {
    sn_arena *arena;
    sn_graph *g;
    int degree[PLAN_AXES], stages;
    int64_t micros;
    sn_dtype precision;
    bool forward_only;
    sn_shard_rule *rule; /* [nodes] */
    bool *live;          /* [nodes] somebody needs a result of it */
    int *use_at, *use;   /* consumers of value v, in node order: use[use_at[v] … use_at[v + 1]) */
    sn_dtype *dtype;     /* [values] as stored */
    const char **name;   /* [values] */
    int *adds_to;        /* [values] the parameter whose gradient it is a summand of, -1 none */
    int *summand_at, *summand; /* of parameter v: summand[summand_at[v] … summand_at[v + 1]) */
    int *becomes;              /* [values] the state whose next content it is, -1 none */
    int *home;  /* [values] stage of the producer, of a parameter or state: its stage; inputs -1 */
    int logits; /* value, -1 none */
    int8_t *label[PLAN_AXES]; /* [nodes] index into the rule's labels, -1 none */
    int8_t *form[PLAN_AXES];  /* [values] as produced; parameters as stored */
    int8_t *sent[PLAN_AXES];  /* [values] as they cross stages */
    plan_layout *layout;      /* [stages] */
} plan_model;

struct sn_plan_private {
    plan_model *model;
    plan_price price;
};

/* ---- mesh.c: coordinates and groups */
int plan_mesh_rank(const sn_plan *plan, int tensor, int stage, int data);
void plan_mesh_groups(sn_plan *plan);
/* The group of `rank` on an axis (SN_AXIS_…), -1 when the axis has one member. */
int plan_mesh_group(const sn_plan *plan, sn_group_axis axis, int rank);

/* ---- price.c */
sn_status plan_price_init(plan_price *price, const sn_plan *mesh, sn_arena *arena);
double plan_price_kernel(const plan_price *price, double flops, double bytes);
double plan_price_coll(const plan_price *price, int axis, sn_coll_op op, sn_dtype dtype,
                       int64_t count);
/* With the bytes between hosts encoded, and the encoding. */
double plan_price_wire(const plan_price *price, const sn_plan *plan, const sn_wire *w,
                       const sn_instr *in);
double plan_price_send(const plan_price *price, double bytes);

/* ---- wire.c: compression between hosts */
bool plan_compresses(const sn_plan_compression *c);
int plan_hosts_of(const sn_plan_group *g);
bool plan_encodes(const sn_plan *plan, int stage, sn_coll_op op); /* of data groups of a stage */
double plan_wire_share(const sn_wire *w); /* of the bytes between hosts, 1: all */
double plan_codec_ns(const sn_plan_compression *c, const sn_wire *w, int members);
uint64_t plan_wire_memory(const sn_plan *plan, const sn_program *p); /* about, beside the program */
/* Between hosts in a step for all cards of this one's data group. */
void plan_wire_bytes(const sn_plan *plan, const sn_program *p, double *ret_plain,
                     double *ret_coded);

/* ---- stages.c, model.c, data.c, shard.c, layout.c: the passes, in this order */
sn_status plan_stages_mark(sn_graph *g, int stages, double split, const plan_price *price,
                           sn_arena *arena);
sn_status plan_model_make(const sn_plan *plan, const plan_price *price, sn_arena *arena,
                          plan_model **ret);
void plan_model_uses(plan_model *m, bool backward);
sn_status plan_data_propagate(plan_model *m);
sn_status plan_shard_choose(plan_model *m, const plan_price *price, int cards);
void plan_layout_make(plan_model *m, uint64_t bucket_bytes);

/* ---- forms.c: the algebra of forms */
int8_t plan_need(const sn_shard_rule *rule, int label, int operand, int rank);
int8_t plan_leaves(const sn_shard_rule *rule, int label, int result, int rank);
bool plan_label_fits(const sn_shard_rule *rule, int label, const sn_graph *g, const sn_node *n);
int plan_label_find(const sn_shard_rule *rule, int id); /* index, -1 none */
sn_shape plan_local(const plan_model *m, int value, int8_t tensor, int8_t data);

/* How to get a value in form `want` on an axis when it is there in the forms of the set `have`. */
typedef enum plan_move {
    MOVE_NONE,
    MOVE_ALL_REDUCE,
    MOVE_REDUCE_SCATTER,
    MOVE_ALL_GATHER,
    MOVE_SLICE,
    MOVE_VIA_WHOLE /* make it whole first, then ask again */
} plan_move;

#define FORM_BIT(form) (1u << ((form) + 3))
plan_move plan_move_find(uint32_t have, int8_t want, int8_t *ret_from);

/* A shape seen as [outer, length, inner] around a dimension. */
typedef struct plan_fold {
    int64_t outer, length, inner;
} plan_fold;
plan_fold plan_fold_at(sn_shape shape, int dim);

/* ---- order.c: 1F1B */
typedef struct plan_unit {
    bool backward;
    int micro;
} plan_unit;
/* `warm` micro-batches run forward first: as many as there are stages after this one. */
int plan_order(int warm, int micros, bool forward_only, plan_unit *ret /* [2·micros] */);

/* ---- emit.c, optimizer.c, memory.c */
sn_status plan_emit(const sn_plan *plan, int rank, sn_program **ret);
/* The same for a step of `micros` micro-batches; ret_unit_at: [2·micros + 1] where its units begin
 * and the optimizer after them. */
sn_program *plan_emit_short(const sn_plan *plan, int rank, int micros, int warm, int *ret_unit_at);
void plan_memory_place(sn_program *p);

/* ---- cost.c: prices the programs of one pipeline, ret->memory_bytes … of the fullest card */
sn_status plan_cost(const sn_plan *plan, sn_plan_cost *ret);

typedef struct plan_clock { /* of one card */
    const sn_plan *plan;
    const sn_program *p;
    int at;
    double now, coll_free[PLAN_AXES + 1];
    double compute, optimizer, coll; /* work */
    double coll_wait;                /* not hidden */
    double *done;                    /* [tickets] when it completes, < 0: a receive not sent yet */
    uint32_t *tag;                   /* [tickets] of receives */
    bool *is_coll;
} plan_clock;

void plan_clock_start(plan_clock *c, const sn_plan *plan, const sn_program *p, sn_arena *arena);
void plan_clock_kernel(plan_clock *c, const sn_instr *in);
void plan_clock_coll(plan_clock *c, const sn_instr *in);
void plan_clock_coll_done(plan_clock *c, int ticket);
/* Step and parts from the clocks of all stages. */
void plan_cost_times(const sn_plan *plan, const plan_clock *stage, sn_plan_cost *c);
/* Memory by kind where a card of `bytes` with program p is fuller than what was seen. */
void plan_cost_memory(const sn_program *p, uint64_t bytes, uint64_t aside, sn_plan_cost *c);
double plan_cost_flops(const sn_plan *plan);

/* ---- closed.c: the same price from three micro-batches of every kind of stage; exact: memory is
 * that of whole programs, which are written for the cards that may be the fullest. */
sn_status plan_cost_closed(const sn_plan *plan, bool exact, sn_plan_cost *ret);

#endif
