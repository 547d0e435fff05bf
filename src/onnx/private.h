/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of onnx share: names in scopes, the call that a row sees, and words to build with.
 *
 * Building is written without error checks: the first failure is kept in importer.status, after
 * which every word returns NULL and does nothing. An item may be NULL for that reason only. */
#ifndef SN_ONNX_PRIVATE_H
#define SN_ONNX_PRIVATE_H

#include "onnx/onnx.h"
#include "onnx/onnx.pb-c.h"

struct sn_onnx_model {
    Onnx__ModelProto *proto;
    char *name;
    int64_t opset;
};

/* What a name stands for: a value of the graph, a constant, or a parameter (both in time). */
typedef struct item {
    sn_dtype dtype;
    sn_shape shape;
    int value;        /* in the graph, -1: not yet */
    bool known;       /* data is what it is, for good */
    bool trains;      /* data is what it begins as */
    const void *data; /* dense */
    const char *name;
} item;

typedef struct binding {
    const char *name;
    item *item;
    struct binding *next;
} binding;

enum { SCOPE_BUCKETS = 256 };
typedef struct scope {
    struct scope *outer;
    const struct call *function; /* whose attributes a function's body refers to */
    binding *bucket[SCOPE_BUCKETS];
} scope;

typedef struct importer {
    const sn_onnx_model *model;
    sn_onnx_opts opts;
    sn_arena *arena;
    sn_graph *graph;
    sn_onnx *result;
    scope *scope;
    sn_status status;
    const char *at; /* "Conv 'conv1'": the node being imported */
    int64_t constant_bytes;
    int depth; /* of subgraphs */
    size_t input_cap, output_cap, param_cap, constant_cap;
} importer;

/* One node as its row sees it. */
enum { CALL_MAX = 512 };
typedef struct call {
    const Onnx__NodeProto *node;
    int64_t opset;
    int ins, outs;
    item **in; /* NULL: absent */
    item **out;
} call;

typedef void (*build_fn)(importer *m, call *c);
typedef struct row {
    const char *name;
    int since; /* the oldest opset that is read */
    int needs; /* operands that are not optional */
    build_fn build;
} row;

extern const row onnx_rows_math[], onnx_rows_shape[], onnx_rows_index[], onnx_rows_reduce[],
    onnx_rows_window[], onnx_rows_make[], onnx_rows_quant[], onnx_rows_rnn[], onnx_rows_static[],
    onnx_rows_control[], onnx_rows_loss[], onnx_rows_resize[], onnx_rows_einsum[];
extern const int onnx_rows_math_count, onnx_rows_shape_count, onnx_rows_index_count,
    onnx_rows_reduce_count, onnx_rows_window_count, onnx_rows_make_count, onnx_rows_quant_count,
    onnx_rows_rnn_count, onnx_rows_static_count, onnx_rows_control_count, onnx_rows_loss_count,
    onnx_rows_resize_count, onnx_rows_einsum_count;
const row *onnx_row_of(const char *op);

/* ---- failing ---- */
/* Keeps the first failure; the node's name comes before the text. Returns NULL. */
void *onnx_fail(importer *m, sn_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same for a sentence that is there already. */
void *onnx_keep(importer *m, sn_status status);
static inline bool ok(const importer *m)
{
    return m->status >= 0;
}

/* ---- names ---- */
item *onnx_find(const importer *m, const char *name);
void onnx_bind(importer *m, const char *name, item *x); /* SN_EINVAL when it is there already */
/* Import the nodes of a body into the present scope. */
void onnx_nodes(importer *m, Onnx__NodeProto *const *node, size_t n, int64_t opset);
/* A graph as an attribute, with its inputs bound to `in`; its outputs. Names within are its own. */
bool onnx_body(importer *m, const Onnx__GraphProto *g, item *const *in, int ins, item **out,
               int outs, int64_t opset);

/* ---- tensors ---- */
/* Type and shape of a proto, and its data in the model, in the arena, or outside. */
sn_status onnx_tensor_read(const Onnx__TensorProto *t, const sn_onnx_opts *opts, sn_arena *arena,
                           sn_tensor *ret);
bool onnx_dtype(int32_t type, sn_dtype *ret);

/* ---- attributes ---- */
const Onnx__AttributeProto *onnx_attr(const call *c, const importer *m, const char *name);
int64_t attr_int(importer *m, const call *c, const char *name, int64_t otherwise);
double attr_float(importer *m, const call *c, const char *name, double otherwise);
const char *attr_str(importer *m, const call *c, const char *name, const char *otherwise);
/* -1 when absent */
int attr_ints(importer *m, const call *c, const char *name, int64_t *ret, int max);
int attr_floats(importer *m, const call *c, const char *name, double *ret, int max);
item *attr_tensor(importer *m, const call *c, const char *name);

/* ---- items ---- */
item *item_new(importer *m, sn_dtype dtype, sn_shape shape);
/* Zeroed memory to fill: a constant. NULL when it is too large. */
item *constant(importer *m, sn_dtype dtype, sn_shape shape, void **ret_data);
item *scalar(importer *m, sn_dtype dtype, double v);  /* of rank 0 */
item *integers(importer *m, const int64_t *v, int n); /* I64[n] */
double number_at(const item *x, int64_t i);           /* of a known one */
int64_t integer_at(const item *x, int64_t i);
void number_put(sn_dtype t, void *data, int64_t i, double v);
/* Must be known here: SN_EFIT names it otherwise. */
bool need(importer *m, item *x, const char *what);
/* The integers of a known item; -1 when absent or failed. */
int need_ints(importer *m, item *x, const char *what, int64_t *ret, int max);
static inline bool has(const call *c, int i)
{
    return i < c->ins && c->in[i];
}
/* In range [0, rank), from the end when below 0. */
int axis_of(importer *m, int64_t axis, int rank);
static inline bool is_real(sn_dtype t)
{
    return t == SN_F32 || t == SN_F64 || t == SN_F16 || t == SN_BF16;
}

/* ---- words: one op of graph each, folded when its operands are known ---- */
bool emit(importer *m, sn_op op, const sn_attr *attr, item *const *in, int ins, item **out);
item *unary(importer *m, sn_unary f, item *x);
item *unary2(importer *m, sn_unary f, double a, double b, item *x);
item *binary(importer *m, sn_binary f, item *x, item *y);
item *where(importer *m, item *c, item *x, item *y);
item *cast(importer *m, item *x, sn_dtype t);
item *reduce(importer *m, sn_reduce f, item *x, int64_t mask); /* dims stay, as 1 */
item *arg(importer *m, item *x, int axis, bool smallest, bool last);
item *reshape(importer *m, item *x, sn_shape shape);
item *transpose(importer *m, item *x, const int *perm);
item *strided(importer *m, item *x, const int64_t *start, const int64_t *step, sn_shape shape);
item *part(importer *m, item *x, int axis, int64_t from, int64_t count);
item *concat(importer *m, item *const *x, int n, int axis);
item *pad(importer *m, item *x, const int64_t *before, const int64_t *after, double v);
item *tile(importer *m, item *x, sn_shape shape);
item *expand(importer *m, item *x, sn_shape shape); /* as in NumPy */
item *gather(importer *m, item *x, item *index, int axis);
item *elements(importer *m, item *x, item *index, int axis);
item *scatter(importer *m, item *x, item *index, item *u, int axis, sn_scatter f);
item *cumulate(importer *m, item *x, int axis, bool exclusive, bool reverse);
item *matmul(importer *m, item *x, item *y); /* as in NumPy */
item *linear(importer *m, item *x, item *w, item *b);

typedef struct window {
    int64_t size[3], stride[3], dilation[3], before[3], after[3];
} window;
item *unfold(importer *m, item *x, const window *w, double v);
item *fold(importer *m, item *y, const window *w, sn_shape shape);

/* Longer words. */
item *axes_mask_squeeze(importer *m, item *x, int64_t mask); /* drop the dims in mask */
item *unsqueeze(importer *m, item *x, int axis);
item *scaled(importer *m, item *x, double a, double b); /* a·x + b */
item *softmax_of(importer *m, item *x, int64_t mask, bool log);
item *one_hot(importer *m, item *index, int64_t n); /* BOOL, a last dim of n */
item *iota(importer *m, int64_t n);                 /* I64 0 … n-1 */

#endif
