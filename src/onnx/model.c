/* SPDX-License-Identifier: Apache-2.0
 * Bytes to a model: a walk over the wire format that bounds nesting and memory, then the unpacking
 * that protobuf-c does (which recurses, and allocates as the bytes say). */
#include "onnx/private.h"

#include <stdlib.h>
#include <string.h>

enum { NESTING_MAX = 64 };
#define MESSAGES_BYTES_MAX (INT64_C(2) << 30)

typedef struct cursor {
    const uint8_t *at, *end;
} cursor;

static bool varint(cursor *c, uint64_t *ret)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 70 && c->at < c->end; shift += 7) {
        uint8_t b = *c->at++;
        v |= shift < 64 ? (uint64_t) (b & 127) << shift : 0;
        if (!(b & 128)) {
            *ret = v;
            return true;
        }
    }
    return false;
}

static bool skip(cursor *c, uint64_t n)
{
    if (n > (uint64_t) (c->end - c->at))
        return false;
    c->at += n;
    return true;
}

/* Step over a field's content; a length-delimited one is returned as a cursor. */
static bool content(cursor *c, int wire, cursor *ret)
{
    uint64_t n;
    switch (wire) {
    case 0:
        return varint(c, &n);
    case 1:
        return skip(c, 8);
    case 2:
        if (!varint(c, &n) || n > (uint64_t) (c->end - c->at))
            return false;
        *ret = (cursor){c->at, c->at + n};
        return skip(c, n);
    case 5:
        return skip(c, 4);
    default: /* groups, which the format gave up before ONNX existed */
        return false;
    }
}

/* Would the message unpack within bounds? *room is what may still be allocated. */
static const char *scan(cursor c, const ProtobufCMessageDescriptor *message, int depth,
                        int64_t *room)
{
    if (depth > NESTING_MAX)
        return "its parts are nested too deep";
    while (c.at < c.end) {
        uint64_t tag;
        cursor part = {0};
        if (!varint(&c, &tag) || tag >> 3 == 0 || tag >> 3 > UINT32_MAX >> 3 ||
            !content(&c, (int) (tag & 7), &part))
            return "it is cut off, or not in the format at all";
        const ProtobufCFieldDescriptor *f =
            protobuf_c_message_descriptor_get_field(message, (unsigned) (tag >> 3));
        *room -= 64; /* what a scalar, a pointer or an unknown field costs, generously */
        if (f && f->type == PROTOBUF_C_TYPE_MESSAGE) {
            const ProtobufCMessageDescriptor *inner = f->descriptor;
            if ((tag & 7) != 2)
                return "a part of it has the wrong form";
            *room -= (int64_t) inner->sizeof_message;
            const char *wrong = scan(part, inner, depth + 1, room);
            if (wrong)
                return wrong;
        } else if ((tag & 7) == 2) {
            *room -= 8 * (part.end - part.at); /* packed one-byte numbers become eight bytes */
        }
        if (*room < 0)
            return "it would take more memory than such a file can need";
    }
    return NULL;
}

static sn_status unpack(const ProtobufCMessageDescriptor *d, const void *data, size_t bytes,
                        const char *name, ProtobufCMessage **ret)
{
    int64_t room = MESSAGES_BYTES_MAX + 16 * (int64_t) bytes;
    const uint8_t *at = data;
    const char *wrong = scan((cursor){at, at + bytes}, d, 0, &room);
    if (wrong)
        return sn_fail(SN_ECORRUPT, "%s is no ONNX file: %s", name, wrong);
    *ret = protobuf_c_message_unpack(d, NULL, bytes, data);
    if (!*ret)
        return sn_fail(SN_ECORRUPT, "%s is no ONNX file: its parts do not fit the format", name);
    return SN_OK;
}

static bool default_domain(const char *domain)
{
    return !domain || !*domain || !strcmp(domain, "ai.onnx");
}

static sn_status check_model(sn_onnx_model *m)
{
    const Onnx__ModelProto *p = m->proto;
    m->opset = 1;
    for (size_t i = 0; i < p->n_opset_import; i++)
        if (default_domain(p->opset_import[i]->domain))
            m->opset = p->opset_import[i]->version;
    if (!p->graph || p->graph->n_node == 0)
        return sn_fail(SN_ECORRUPT, "%s holds no graph with nodes", m->name);
    if (m->opset < 1 || m->opset > 1000)
        return sn_fail(SN_ECORRUPT, "%s: opset %lld is none", m->name, (long long) m->opset);
    return SN_OK;
}

sn_status sn_onnx_parse(const void *data, size_t bytes, const char *name, sn_onnx_model **ret)
{
    ProtobufCMessage *proto;
    SN_TRY(unpack(&onnx__model_proto__descriptor, data, bytes, name, &proto));
    sn_onnx_model *m = sn_alloc(sizeof *m);
    m->proto = (Onnx__ModelProto *) proto;
    m->name = sn_strdup(name);
    sn_status status = check_model(m);
    if (status < 0) {
        sn_onnx_free(m);
        return status;
    }
    *ret = m;
    return SN_OK;
}

void sn_onnx_free(sn_onnx_model *m)
{
    if (!m)
        return;
    onnx__model_proto__free_unpacked(m->proto, NULL);
    free(m->name);
    free(m);
}

int64_t sn_onnx_opset(const sn_onnx_model *m)
{
    return m->opset;
}

static bool is_initializer(const Onnx__GraphProto *g, const char *name)
{
    for (size_t i = 0; i < g->n_initializer; i++)
        if (g->initializer[i]->name && !strcmp(g->initializer[i]->name, name))
            return true;
    return false;
}

const char *sn_onnx_input_name(const sn_onnx_model *m, int i)
{
    const Onnx__GraphProto *g = m->proto->graph;
    for (size_t k = 0; k < g->n_input; k++) {
        const char *name = g->input[k]->name ? g->input[k]->name : "";
        if (!is_initializer(g, name) && i-- == 0)
            return name;
    }
    return NULL;
}

sn_status sn_onnx_tensor(const void *data, size_t bytes, sn_arena *arena, sn_tensor *ret)
{
    ProtobufCMessage *proto;
    sn_tensor t;
    SN_TRY(unpack(&onnx__tensor_proto__descriptor, data, bytes, "the tensor", &proto));
    sn_status status = onnx_tensor_read((Onnx__TensorProto *) proto, NULL, arena, &t);
    if (status >= 0) {
        size_t n = (size_t) sn_shape_count(t.shape) * sn_dtype_bytes(t.dtype);
        t.data = sn_arena_copy(arena, t.data, n + !n);
        *ret = t;
    }
    protobuf_c_message_free_unpacked(proto, NULL);
    return status;
}

/* ---- which ops there are ---- */
static bool is_function(const sn_onnx_model *m, const Onnx__NodeProto *n)
{
    for (size_t i = 0; i < m->proto->n_functions; i++) {
        const Onnx__FunctionProto *f = m->proto->functions[i];
        const char *a = f->domain ? f->domain : "", *b = n->domain ? n->domain : "";
        if (f->name && n->op_type && !strcmp(f->name, n->op_type) && !strcmp(a, b))
            return true;
    }
    return false;
}

typedef struct names {
    const sn_onnx_model *model;
    sn_str *out;
    const char *between;
    bool only_missing;
    int count;
} names;

static void name_once(names *n, const char *name)
{
    const char *p = sn_str_get(n->out);
    size_t len = strlen(name);
    for (; (p = strstr(p, name)); p += len)
        if ((p == n->out->data || p[-1] == ' ') && (!p[len] || p[len] == ' ' || p[len] == ','))
            return;
    sn_str_printf(n->out, "%s%s", n->count++ ? n->between : "", name);
}

static void visit(names *n, Onnx__NodeProto *const *node, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *op = node[i]->op_type && *node[i]->op_type ? node[i]->op_type : "?";
        bool known =
            (default_domain(node[i]->domain) && onnx_row_of(op)) || is_function(n->model, node[i]);
        if (!(known && n->only_missing))
            name_once(n, op);
        for (size_t a = 0; a < node[i]->n_attribute; a++) {
            const Onnx__AttributeProto *at = node[i]->attribute[a];
            if (at->g)
                visit(n, at->g->node, at->g->n_node);
            for (size_t g = 0; g < at->n_graphs; g++)
                visit(n, at->graphs[g]->node, at->graphs[g]->n_node);
        }
    }
}

static int list(const sn_onnx_model *m, sn_str *out, const char *between, bool only_missing)
{
    sn_str own = {0};
    names n = {m, &own, between, only_missing};
    visit(&n, m->proto->graph->node, m->proto->graph->n_node);
    for (size_t i = 0; i < m->proto->n_functions; i++)
        visit(&n, m->proto->functions[i]->node, m->proto->functions[i]->n_node);
    if (out)
        sn_str_add(out, sn_str_get(&own));
    sn_str_done(&own);
    return n.count;
}

int sn_onnx_missing(const sn_onnx_model *m, sn_str *out)
{
    return list(m, out, ", ", true);
}

void sn_onnx_ops_used(const sn_onnx_model *m, sn_str *out)
{
    list(m, out, " ", false);
}
