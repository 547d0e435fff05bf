/* SPDX-License-Identifier: Apache-2.0
 * One forward and backward pass of a model on one card, everything written down:
 *
 *   test_model_step MODEL BATCH CARD OUT
 *
 * OUT holds tensors one after the other: a line "KIND NAME TYPE DIM,DIM,…" and the bytes. KIND is
 * param, input, state (what it was before), next (what a state became), grad, logits or loss. */
#include "kern/kern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct step {
    sn_graph *g;
    sn_card *card;
    void **data; /* [values] */
    FILE *out;
} step;

static size_t bytes_of(const step *s, int v)
{
    return (size_t) sn_shape_count(s->g->value[v].shape) * sn_dtype_bytes(s->g->value[v].dtype);
}

static int32_t integer(const char *name, uint64_t random)
{
    if (!strcmp(name, "mask"))
        return random % 4 != 0;
    if (!strcmp(name, "segments"))
        return (int32_t) (random % 2);
    if (!strcmp(name, "targets"))
        return (int32_t) (random % 11) - 1; /* −1: nothing is asked here */
    return (int32_t) (random % 10);
}

static void fill(const step *s, int v)
{
    const sn_value *value = &s->g->value[v];
    uint64_t stream = value->name ? sn_hash_bytes(value->name, strlen(value->name)) : 0;
    for (int64_t i = 0; i < sn_shape_count(value->shape); i++) {
        double x = sn_hash_normal(5, stream, (uint64_t) i);
        if (value->dtype == SN_I32)
            ((int32_t *) s->data[v])[i] = integer(value->name, sn_hash64(5, stream, (uint64_t) i));
        else if (value->kind == SN_VALUE_INPUT || value->init == SN_INIT_NORMAL)
            ((float *) s->data[v])[i] = (float) ((value->init_std > 0 ? value->init_std : 1) * x);
        else
            ((float *) s->data[v])[i] = (float) ((value->init == SN_INIT_ONE) + 0.1 * x);
    }
}

static void write_value(const step *s, const char *kind, const char *name, int v)
{
    const sn_value *value = &s->g->value[v];
    fprintf(s->out, "%s %s %s ", kind, name, sn_dtype_name(value->dtype));
    for (int d = 0; d < value->shape.rank; d++)
        fprintf(s->out, "%s%lld", d ? "," : "", (long long) value->shape.dim[d]);
    fputc('\n', s->out);
    fwrite(s->data[v], 1, bytes_of(s, v), s->out);
}

static sn_status run_node(const step *s, const sn_node *n)
{
    sn_kernel_spec spec = {.op = n->op, .attr = n->attr, .ins = n->ins, .outs = n->outs};
    const void *in[SN_OP_IN_MAX] = {0};
    void *out[SN_OP_OUT_MAX];
    sn_kernel *k;
    for (int i = 0; i < n->ins; i++) {
        spec.in[i].absent = n->in[i] < 0;
        if (n->in[i] < 0)
            continue;
        spec.in[i].dtype = s->g->value[n->in[i]].dtype;
        spec.in[i].shape = s->g->value[n->in[i]].shape;
        in[i] = s->data[n->in[i]];
    }
    for (int o = 0; o < n->outs; o++) {
        spec.out[o].dtype = s->g->value[n->out[o]].dtype;
        spec.out[o].shape = s->g->value[n->out[o]].shape;
        out[o] = s->data[n->out[o]];
    }
    SN_TRY(sn_card_prepare(s->card, &spec, &k));
    return sn_kernel_run(k, in, out);
}

static sn_status run(const char *name, int64_t batch, const char *card, sn_arena *arena, step *s)
{
    sn_model model;
    SN_TRY(sn_model_find(name, &model));
    SN_TRY(sn_model_build(arena, &model, batch, (double) (batch * sn_model_units(&model)), &s->g));
    SN_TRY(sn_graph_fuse(s->g));
    SN_TRY(sn_graph_backward(s->g));
    SN_TRY(sn_card_open(card, NULL, &s->card));
    s->data = sn_alloc((size_t) s->g->values * sizeof(void *));
    for (int v = 0; v < s->g->values; v++) {
        s->data[v] = sn_alloc(bytes_of(s, v) + 1);
        if (s->g->value[v].kind != SN_VALUE_RESULT)
            fill(s, v);
    }
    for (int n = 0; n < s->g->nodes; n++)
        SN_TRY(run_node(s, &s->g->node[n]));
    return SN_OK;
}

static void write_all(const step *s)
{
    static const char *const kinds[] = {
        [SN_VALUE_INPUT] = "input", [SN_VALUE_PARAM] = "param", [SN_VALUE_STATE] = "state"};
    for (int v = 0; v < s->g->values; v++) {
        const sn_value *value = &s->g->value[v];
        if (value->kind != SN_VALUE_RESULT)
            write_value(s, kinds[value->kind], value->name, v);
        if (value->kind == SN_VALUE_PARAM && value->grad >= 0)
            write_value(s, "grad", value->name, value->grad);
        if (value->next >= 0)
            write_value(s, "next", value->name, value->next);
    }
    write_value(s, "logits", "logits", sn_graph_find(s->g, "logits"));
    write_value(s, "loss", "loss", s->g->loss);
}

static void done(step *s)
{
    for (int v = 0; s->data && v < s->g->values; v++)
        free(s->data[v]);
    free(s->data);
    sn_card_close(s->card);
}

int main(int argc, char **argv)
{
    step s = {0};
    sn_arena *arena = sn_arena_create();
    if (argc != 5) {
        fprintf(stderr, "usage: test_model_step MODEL BATCH CARD OUT\n");
        return 2;
    }
    sn_status status = run(argv[1], atoll(argv[2]), argv[3], arena, &s);
    if (status == SN_OK && !(s.out = fopen(argv[4], "wb")))
        status = sn_fail(SN_EINVAL, "cannot write %s", argv[4]);
    if (status == SN_OK) {
        write_all(&s);
        fclose(s.out);
    } else {
        fprintf(stderr, "%s\n", sn_errmsg());
    }
    done(&s);
    sn_arena_free(arena);
    return status == SN_OK ? 0 : 1;
}
