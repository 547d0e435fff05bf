/* SPDX-License-Identifier: Apache-2.0
 * A model into a graph: inputs, initializers, nodes in order, outputs; names in scopes. */
#include "onnx/private.h"

#include <string.h>

enum { DEPTH_MAX = 16, SLOTS = 12 }; /* SLOTS: absent operands that a row may look at */

/* ---- names ---- */
static unsigned bucket_of(const char *name)
{
    return (unsigned) (sn_hash_bytes(name, strlen(name)) % SCOPE_BUCKETS);
}

static item *find_in(const scope *s, const char *name)
{
    for (const binding *b = s->bucket[bucket_of(name)]; b; b = b->next)
        if (!strcmp(b->name, name))
            return b->item;
    return NULL;
}

item *onnx_find(const importer *m, const char *name)
{
    item *x = NULL;
    for (const scope *s = m->scope; s && !x; s = s->function ? NULL : s->outer)
        x = find_in(s, name);
    return x;
}

void onnx_bind(importer *m, const char *name, item *x)
{
    if (!ok(m) || !x || !name || !*name)
        return;
    if (find_in(m->scope, name)) {
        onnx_fail(m, SN_EINVAL, "the name '%s' is given twice", name);
        return;
    }
    binding *b = SN_NEW(m->arena, binding), **head = &m->scope->bucket[bucket_of(name)];
    *b = (binding){name, x, *head};
    *head = b;
    if (!x->name)
        x->name = name;
}

static scope *push(importer *m, const call *function)
{
    scope *s = SN_NEW(m->arena, scope);
    s->outer = m->scope;
    s->function = function;
    m->scope = s;
    return s;
}

/* ---- tensors of the file ---- */
static void initializers(importer *m, const Onnx__GraphProto *g)
{
    for (size_t i = 0; i < g->n_initializer && ok(m); i++) {
        const Onnx__TensorProto *t = g->initializer[i];
        sn_tensor x;
        m->at = "initializer";
        sn_status status = onnx_tensor_read(t, &m->opts, m->arena, &x);
        if (status < 0) {
            onnx_keep(m, status);
            return;
        }
        item *it = item_new(m, x.dtype, x.shape);
        if (!it)
            return;
        it->data = x.data;
        it->trains = x.dtype == SN_F32 && !m->opts.frozen;
        it->known = !it->trains;
        onnx_bind(m, t->name, it);
    }
    if (g->n_sparse_initializer)
        onnx_fail(m, SN_ENOTSUP, "sparse initializers are not offered");
}

static const sn_onnx_bind *bound(const importer *m, const char *name)
{
    for (int i = 0; i < m->opts.binds; i++)
        if (!strcmp(m->opts.bind[i].name, name))
            return &m->opts.bind[i];
    return NULL;
}

static bool dim_size(importer *m, const char *input, const Onnx__TensorShapeProto__Dimension *d,
                     int64_t *ret)
{
    if (d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE) {
        *ret = d->dim_value;
        return true;
    }
    const char *name =
        d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM && d->dim_param
            ? d->dim_param
            : "?";
    for (int i = 0; i < m->opts.dims; i++)
        if (!strcmp(m->opts.dim[i].name, name)) {
            *ret = m->opts.dim[i].size;
            return true;
        }
    onnx_fail(m, SN_EFIT, "its dim '%s' has no size: give it one", name);
    return false;
}

/* Type and shape that the file declares. */
static bool declared(importer *m, const Onnx__ValueInfoProto *v, sn_tensor *ret)
{
    const Onnx__TypeProto *type = v->type;
    if (!type || type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
        return onnx_fail(m, SN_ENOTSUP,
                         "it is no tensor (sequences, maps and optionals are not "
                         "offered)");
    const Onnx__TypeProto__Tensor *t = type->tensor_type;
    if (!onnx_dtype(t->elem_type, &ret->dtype))
        return onnx_fail(m, SN_ENOTSUP, "its elements are of type %d, which is not offered",
                         t->elem_type);
    if (!t->shape)
        return onnx_fail(m, SN_EFIT, "its shape is not in the file: give it one");
    if (t->shape->n_dim > SN_RANK_MAX)
        return onnx_fail(m, SN_ENOTSUP, "it has %zu dims, at most %d are offered", t->shape->n_dim,
                         SN_RANK_MAX);
    ret->shape.rank = (int) t->shape->n_dim;
    for (size_t d = 0; d < t->shape->n_dim; d++)
        if (!dim_size(m, v->name, t->shape->dim[d], &ret->shape.dim[d]))
            return false;
    return true;
}

/* A bound tensor has the declared type; bits of BF16 may come as U16, as NumPy writes them. */
static bool fits(importer *m, const Onnx__ValueInfoProto *v, sn_dtype given, sn_dtype *ret)
{
    const Onnx__TypeProto *type = v->type;
    *ret = given;
    if (!type || type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
        return onnx_fail(m, SN_ENOTSUP, "it is no tensor");
    if (!onnx_dtype(type->tensor_type->elem_type, ret))
        return onnx_fail(m, SN_ENOTSUP, "its elements are of type %d, which is not offered",
                         type->tensor_type->elem_type);
    if (*ret != given && !(*ret == SN_BF16 && given == SN_U16))
        return onnx_fail(m, SN_EINVAL, "it is %s, and %s was given", sn_dtype_name(*ret),
                         sn_dtype_name(given));
    return true;
}

static void input(importer *m, const Onnx__ValueInfoProto *v)
{
    sn_tensor t = {0};
    if (!v->name || find_in(m->scope, v->name))
        return; /* an initializer is its default, and is taken */
    m->at = sn_arena_printf(m->arena, "input '%.80s'", v->name);
    const sn_onnx_bind *b = bound(m, v->name);
    if (b && fits(m, v, b->tensor.dtype, &t.dtype))
        t = (sn_tensor){b->tensor.data, t.dtype, b->tensor.shape};
    else if (b)
        return;
    else if (!declared(m, v, &t))
        return;
    item *x = item_new(m, t.dtype, t.shape);
    if (!x)
        return;
    x->name = v->name;
    x->data = t.data;
    x->known = t.data;
    if (!x->known)
        x->value = sn_graph_input(m->graph, v->name, t.dtype, t.shape, t.shape.rank ? 0 : -1);
    onnx_bind(m, v->name, x);
    sn_onnx *r = m->result;
    r->input = sn_arena_grow(m->arena, r->input, (size_t) r->inputs, (size_t) r->inputs + 1,
                             sizeof *r->input, &m->input_cap);
    r->input[r->inputs++] = (sn_onnx_value){v->name, x->value, t};
}

static void output(importer *m, const Onnx__ValueInfoProto *v)
{
    item *x = v->name ? onnx_find(m, v->name) : NULL;
    sn_onnx *r = m->result;
    if (!x) {
        m->at = "the graph";
        onnx_fail(m, SN_EINVAL, "nothing gives its output '%s'", v->name ? v->name : "");
        return;
    }
    int value = x->value;
    r->output = sn_arena_grow(m->arena, r->output, (size_t) r->outputs, (size_t) r->outputs + 1,
                              sizeof *r->output, &m->output_cap);
    r->output[r->outputs++] =
        (sn_onnx_value){v->name, value, {value < 0 ? (void *) x->data : NULL, x->dtype, x->shape}};
}

/* ---- nodes ---- */
static const Onnx__FunctionProto *function_of(const importer *m, const Onnx__NodeProto *n)
{
    const Onnx__ModelProto *p = m->model->proto;
    for (size_t i = 0; i < p->n_functions; i++) {
        const Onnx__FunctionProto *f = p->functions[i];
        if (f->name && n->op_type && !strcmp(f->name, n->op_type) &&
            !strcmp(f->domain ? f->domain : "", n->domain ? n->domain : ""))
            return f;
    }
    return NULL;
}

static void call_function(importer *m, const Onnx__FunctionProto *f, call *c)
{
    scope *before = m->scope;
    int64_t opset = c->opset;
    if (++m->depth > DEPTH_MAX) {
        onnx_fail(m, SN_ENOTSUP, "functions and subgraphs are nested more than %d deep", DEPTH_MAX);
        return;
    }
    push(m, c);
    for (size_t i = 0; i < f->n_opset_import; i++)
        if (!f->opset_import[i]->domain || !*f->opset_import[i]->domain)
            opset = f->opset_import[i]->version;
    for (size_t i = 0; i < f->n_input && (int) i < c->ins; i++)
        onnx_bind(m, f->input[i], c->in[i]);
    onnx_nodes(m, f->node, f->n_node, opset);
    for (size_t o = 0; o < f->n_output && (int) o < c->outs && ok(m); o++)
        c->out[o] = onnx_find(m, f->output[o]);
    m->scope = before;
    m->depth--;
}

bool onnx_body(importer *m, const Onnx__GraphProto *g, item *const *in, int ins, item **out,
               int outs, int64_t opset)
{
    scope *before = m->scope;
    const char *at = m->at;
    if (!ok(m))
        return false;
    if (!g || g->n_input != (size_t) ins || g->n_output != (size_t) outs)
        return onnx_fail(m, SN_EINVAL,
                         "its body is missing, or does not take and give %d and %d "
                         "values",
                         ins, outs);
    if (++m->depth > DEPTH_MAX)
        return onnx_fail(m, SN_ENOTSUP, "functions and subgraphs are nested more than %d deep",
                         DEPTH_MAX);
    push(m, NULL);
    for (int i = 0; i < ins; i++)
        onnx_bind(m, g->input[i]->name, in[i]);
    initializers(m, g);
    onnx_nodes(m, g->node, g->n_node, opset);
    for (int o = 0; o < outs && ok(m); o++) {
        out[o] = g->output[o]->name ? onnx_find(m, g->output[o]->name) : NULL;
        m->at = at;
        if (!out[o])
            onnx_fail(m, SN_EINVAL, "nothing gives its body's output %d", o);
    }
    m->scope = before;
    m->depth--;
    m->at = at;
    return ok(m);
}

static bool operands(importer *m, call *c)
{
    for (size_t i = 0; i < c->node->n_input; i++) {
        const char *name = c->node->input[i];
        if (!name || !*name)
            continue;
        c->in[i] = onnx_find(m, name);
        if (!c->in[i])
            return onnx_fail(m, SN_EINVAL,
                             "its operand '%.80s' is given by nothing before it (a circle, or an "
                             "input that is missing)",
                             name);
    }
    return true;
}

/* Operands that are there before the first absent one. */
static int given(const call *c)
{
    int n = 0;
    while (n < c->ins && c->in[n])
        n++;
    return n;
}

static void node(importer *m, const Onnx__NodeProto *n, int64_t opset)
{
    const char *op = n->op_type ? n->op_type : "";
    m->at = sn_arena_printf(m->arena, "%.60s '%.80s'", op,
                            n->name && *n->name           ? n->name
                            : n->n_output && n->output[0] ? n->output[0]
                                                          : "");
    if (n->n_input > CALL_MAX || n->n_output > CALL_MAX) {
        onnx_fail(m, SN_ENOTSUP, "it has more than %d operands or results", CALL_MAX);
        return;
    }
    call c = {.node = n,
              .opset = opset,
              .ins = (int) n->n_input,
              .outs = (int) n->n_output,
              .in = SN_NEW_N(m->arena, item *, n->n_input + SLOTS),
              .out = SN_NEW_N(m->arena, item *, n->n_output + SLOTS)};
    if (!operands(m, &c))
        return;
    const Onnx__FunctionProto *f = function_of(m, n);
    bool standard = !n->domain || !*n->domain || !strcmp(n->domain, "ai.onnx");
    const row *r = standard ? onnx_row_of(op) : NULL;
    if (f) {
        call_function(m, f, &c);
    } else if (!r || opset < r->since) {
        onnx_fail(m, SN_ENOTSUP, "the op is not offered%s", r ? " in this opset" : "");
    } else if (given(&c) < r->needs) {
        onnx_fail(m, SN_EINVAL, "it needs %d operands, %d are given", r->needs, given(&c));
    } else {
        r->build(m, &c);
    }
    for (int o = 0; o < c.outs && ok(m); o++) {
        if (!n->output[o] || !*n->output[o])
            continue;
        if (c.out[o])
            onnx_bind(m, n->output[o], c.out[o]);
        else
            onnx_fail(m, SN_ENOTSUP, "its output %d is not offered", o);
    }
}

void onnx_nodes(importer *m, Onnx__NodeProto *const *n, size_t count, int64_t opset)
{
    for (size_t i = 0; i < count && ok(m); i++)
        node(m, n[i], opset);
}

sn_status sn_onnx_import(const sn_onnx_model *model, const sn_onnx_opts *opts, sn_arena *arena,
                         sn_onnx **ret)
{
    const Onnx__GraphProto *g = model->proto->graph;
    importer m = {.model = model, .arena = arena, .at = "the graph"};
    if (opts)
        m.opts = *opts;
    m.graph = sn_graph_create(arena, g->name ? g->name : "onnx");
    m.result = SN_NEW(arena, sn_onnx);
    m.result->graph = m.graph;
    push(&m, NULL);
    initializers(&m, g);
    for (size_t i = 0; i < g->n_input && ok(&m); i++)
        input(&m, g->input[i]);
    onnx_nodes(&m, g->node, g->n_node, model->opset);
    for (size_t o = 0; o < g->n_output && ok(&m); o++)
        output(&m, g->output[o]);
    if (!ok(&m))
        return sn_fail_in(m.status, "%s", model->name);
    *ret = m.result;
    return SN_OK;
}
