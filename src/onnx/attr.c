/* SPDX-License-Identifier: Apache-2.0
 * Attributes of a node, each read with what holds when it is absent. */
#include "onnx/private.h"

#include <string.h>

static const Onnx__AttributeProto *find(const Onnx__NodeProto *n, const char *name)
{
    for (size_t i = 0; i < n->n_attribute; i++)
        if (n->attribute[i]->name && !strcmp(n->attribute[i]->name, name))
            return n->attribute[i];
    return NULL;
}

/* In a function's body an attribute may stand for one of the call. */
const Onnx__AttributeProto *onnx_attr(const call *c, const importer *m, const char *name)
{
    const Onnx__AttributeProto *a = find(c->node, name);
    const scope *s = m->scope;
    while (a && a->ref_attr_name && *a->ref_attr_name) {
        while (s && !s->function)
            s = s->outer;
        if (!s)
            return NULL;
        a = find(s->function->node, a->ref_attr_name);
        s = s->outer;
    }
    return a;
}

int64_t attr_int(importer *m, const call *c, const char *name, int64_t otherwise)
{
    const Onnx__AttributeProto *a = onnx_attr(c, m, name);
    return a && a->has_i ? a->i : otherwise;
}

double attr_float(importer *m, const call *c, const char *name, double otherwise)
{
    const Onnx__AttributeProto *a = onnx_attr(c, m, name);
    return a && a->has_f ? (double) a->f : otherwise;
}

const char *attr_str(importer *m, const call *c, const char *name, const char *otherwise)
{
    const Onnx__AttributeProto *a = onnx_attr(c, m, name);
    if (!a || !a->has_s)
        return otherwise;
    char *s = SN_NEW_N(m->arena, char, a->s.len + 1);
    if (a->s.len)
        memcpy(s, a->s.data, a->s.len);
    return s;
}

int attr_ints(importer *m, const call *c, const char *name, int64_t *ret, int max)
{
    const Onnx__AttributeProto *a = onnx_attr(c, m, name);
    if (!a)
        return -1;
    if (a->n_ints > (size_t) max) {
        onnx_fail(m, SN_ENOTSUP, "%zu numbers in '%s', at most %d are offered", a->n_ints, name,
                  max);
        return -1;
    }
    for (size_t i = 0; i < a->n_ints; i++)
        ret[i] = a->ints[i];
    return (int) a->n_ints;
}

int attr_floats(importer *m, const call *c, const char *name, double *ret, int max)
{
    const Onnx__AttributeProto *a = onnx_attr(c, m, name);
    if (!a)
        return -1;
    if (a->n_floats > (size_t) max) {
        onnx_fail(m, SN_ENOTSUP, "%zu numbers in '%s', at most %d are offered", a->n_floats, name,
                  max);
        return -1;
    }
    for (size_t i = 0; i < a->n_floats; i++)
        ret[i] = (double) a->floats[i];
    return (int) a->n_floats;
}

item *attr_tensor(importer *m, const call *c, const char *name)
{
    const Onnx__AttributeProto *a = onnx_attr(c, m, name);
    sn_tensor t;
    if (!a || !a->t || !ok(m))
        return NULL;
    sn_status status = onnx_tensor_read(a->t, &m->opts, m->arena, &t);
    if (status < 0)
        return onnx_keep(m, status);
    item *x = item_new(m, t.dtype, t.shape);
    x->known = true;
    x->data = t.data;
    return x;
}
