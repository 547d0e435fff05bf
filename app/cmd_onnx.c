/* SPDX-License-Identifier: Apache-2.0
 * supernode onnx — what becomes of a model of the ONNX format, and whether it computes right. */
#include "cmd.h"

#include "onnx_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIMS_MAX = 16 };

static sn_status read_dims(const sn_args *args, sn_arena *arena, sn_onnx_opts *opts)
{
    sn_onnx_dim *dim = SN_NEW_N(arena, sn_onnx_dim, DIMS_MAX);
    for (int i = 0; i < args->given; i++) {
        if (strcmp(args->flag[i]->name, "dim") || opts->dims == DIMS_MAX)
            continue;
        char *name = sn_arena_str(arena, args->value[i]), *at = strchr(name, '=');
        if (!at || !sn_str_to_int(at + 1, &dim[opts->dims].size) || dim[opts->dims].size < 0)
            return sn_fail(SN_EINVAL, "--dim is '%s'; it takes NAME=SIZE, as in batch=4", name);
        *at = 0;
        dim[opts->dims++].name = name;
    }
    opts->dim = dim;
    return SN_OK;
}

static void describe(const sn_onnx_model *model, const sn_onnx *o)
{
    sn_str ops = {0};
    char shape[96], count[32];
    sn_onnx_ops_used(model, &ops);
    printf("opset %lld: %s\n", (long long) sn_onnx_opset(model), sn_str_get(&ops));
    printf("%d nodes, %s parameters in %d tensors, %d constants\n", o->graph->nodes,
           sn_fmt_count(count, (double) sn_graph_parameters(o->graph)), o->params, o->constants);
    for (int i = 0; i < o->inputs; i++)
        printf("input  %s %s%s\n", o->input[i].name, sn_dtype_name(o->input[i].tensor.dtype),
               sn_shape_text(shape, o->input[i].tensor.shape));
    for (int i = 0; i < o->outputs; i++)
        printf("output %s %s%s%s\n", o->output[i].name, sn_dtype_name(o->output[i].tensor.dtype),
               sn_shape_text(shape, o->output[i].tensor.shape),
               o->output[i].value < 0 ? " (a constant)" : "");
    sn_str_done(&ops);
}

static const char *folder_of(sn_arena *arena, const char *path)
{
    char *dir = sn_arena_str(arena, path), *slash = strrchr(dir, '/');
    if (!slash)
        return ".";
    slash[slash == dir] = 0;
    return dir;
}

static sn_status train(const sn_args *args, const sn_onnx_model *model, const char *dir,
                       sn_card *card)
{
    const char *data = sn_args_get(args, "run-test"), *loss = sn_args_get(args, "loss");
    const char *steps = sn_args_get(args, "steps"), *lr = sn_args_get(args, "lr");
    int64_t n = 20;
    double rate = 0.01;
    if (!data)
        return sn_fail(SN_EINVAL, "--run-test DIR is missing: a folder with input_0.pb, … and the "
                                  "targets as output_0.pb");
    if (steps && (!sn_str_to_int(steps, &n) || n < 0))
        return sn_fail(SN_EINVAL, "--steps is '%s'; it takes a number", steps);
    if (lr && !sn_str_to_float(lr, &rate))
        return sn_fail(SN_EINVAL, "--lr is '%s'; it takes a number", lr);
    return sn_onnx_train(model, dir, data, loss ? loss : "cross-entropy", n, rate, card);
}

static sn_status check(const sn_args *args, sn_card *card, sn_arena *arena)
{
    sn_onnx_model *model;
    sn_onnx_opts opts = {0};
    sn_str missing = {0};
    sn_onnx *o;
    const char *path = args->word[1], *dir = folder_of(arena, path);
    const char *data = sn_args_get(args, "run-test");
    SN_TRY(read_dims(args, arena, &opts));
    SN_TRY(sn_onnx_file(path, &model));
    sn_status status = SN_OK;
    if (sn_onnx_missing(model, &missing) > 0)
        status =
            sn_fail(SN_ENOTSUP, "%s uses ops that are not offered: %s", path, sn_str_get(&missing));
    else if (!strcmp(args->word[0], "train"))
        status = train(args, model, dir, card);
    else if (data)
        status = sn_onnx_case(model, dir, data, card);
    else if ((status = sn_onnx_file_import(model, dir, card, opts, arena, &o)) >= 0)
        describe(model, o);
    if (status >= 0 && data && !strcmp(args->word[0], "check"))
        printf("%s gives the outputs of %s\n", path, data);
    sn_str_done(&missing);
    sn_onnx_free(model);
    return status;
}

int sn_cmd_onnx(const sn_args *args)
{
    const char *what = args->words == 2 ? args->word[0] : "", *kind = sn_args_get(args, "card");
    bool conformance = !strcmp(what, "conformance");
    sn_card *card;
    if (!conformance && strcmp(what, "check") && strcmp(what, "train"))
        return sn_exit_with("onnx", sn_fail(SN_EINVAL, "say what: supernode onnx check MODEL.onnx, "
                                                       "or supernode onnx conformance DIR"));
    sn_status status = sn_card_open(kind ? kind : "cpu", NULL, &card);
    if (status < 0)
        return sn_exit_with("onnx", status);
    sn_arena *arena = sn_arena_create();
    int code = SN_EXIT_OK;
    if (conformance)
        code = sn_onnx_conformance(args->word[1], card, sn_args_get(args, "failures"));
    else if ((status = check(args, card, arena)) < 0)
        code = sn_exit_with("onnx", status);
    sn_arena_free(arena);
    sn_card_close(card);
    return code;
}
