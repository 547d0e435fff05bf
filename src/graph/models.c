/* SPDX-License-Identifier: Apache-2.0
 * All presets under their names, and any of them built. GPT's are its own list, put first. */
#include "graph/private.h"

#include <string.h>

static const sn_model_preset others[] = {
    {"bert-tiny", "for tests", {SN_MODEL_BERT, .bert = {2, 32, 4, 32, 256}}},
    {"bert-base",
     "110 M, masked words (Devlin et al. 2019)",
     {SN_MODEL_BERT, .bert = {12, 768, 12, 512, 30522}}},
    {"bert-large", "335 M", {SN_MODEL_BERT, .bert = {24, 1024, 16, 512, 30522}}},
    {"resnet-tiny",
     "for tests: 32×32, narrow",
     {SN_MODEL_RESNET, .resnet = {{1, 1, 1, 1}, false, 10, 32, 3, 8}}},
    {"resnet18", "11.7 M (He et al. 2015)", {SN_MODEL_RESNET, .resnet = {{2, 2, 2, 2}}}},
    {"resnet50", "25.6 M", {SN_MODEL_RESNET, .resnet = {{3, 4, 6, 3}, true}}},
    {"resnet152", "60.2 M", {SN_MODEL_RESNET, .resnet = {{3, 8, 36, 3}, true}}},
    {"mlp-tiny", "for tests", {SN_MODEL_MLP, .mlp = {16, 32, 2, 10}}},
    {"mlp-mnist", "784-256-256-10", {SN_MODEL_MLP, .mlp = {784, 256, 2, 10}}},
    {"cnn-tiny", "for tests: 8×8", {SN_MODEL_CNN, .cnn = {8, 1, 10, {8, 16}, 32}}},
    {"cnn-mnist", "28×28 grey images, 0.4 M", {SN_MODEL_CNN, .cnn = {28, 1, 10, {32, 64}, 128}}},
};

bool sn_model_preset_at(int i, sn_model_preset *ret)
{
    const sn_gpt_preset *gpt;
    int gpts = sn_gpt_presets(&gpt);
    if (i < 0 || i >= gpts + (int) SN_COUNT(others))
        return false;
    *ret = i >= gpts
               ? others[i - gpts]
               : (sn_model_preset){gpt[i].name, gpt[i].what, {SN_MODEL_GPT, .gpt = gpt[i].gpt}};
    return true;
}

sn_status sn_model_find(const char *name, sn_model *ret)
{
    sn_model_preset p;
    sn_str names = {0};
    for (int i = 0; sn_model_preset_at(i, &p); i++) {
        if (!strcmp(p.name, name)) {
            *ret = p.model;
            sn_str_done(&names);
            return SN_OK;
        }
        sn_str_printf(&names, "%s%s", i ? ", " : "", p.name);
    }
    sn_fail(SN_ENOTFOUND, "there is no model %s; there are %s", name, sn_str_get(&names));
    sn_str_done(&names);
    return SN_ENOTFOUND;
}

sn_status sn_model_build(sn_arena *arena, const sn_model *m, int64_t batch, double units_per_step,
                         sn_graph **ret)
{
    switch (m->kind) {
    case SN_MODEL_GPT:
        return sn_graph_gpt(arena, &m->gpt, batch, units_per_step, ret);
    case SN_MODEL_BERT:
        return sn_graph_bert(arena, &m->bert, batch, units_per_step, ret);
    case SN_MODEL_RESNET:
        return sn_graph_resnet(arena, &m->resnet, batch, units_per_step, ret);
    case SN_MODEL_MLP:
        return sn_graph_mlp(arena, &m->mlp, batch, units_per_step, ret);
    case SN_MODEL_CNN:
        return sn_graph_cnn(arena, &m->cnn, batch, units_per_step, ret);
    }
    return sn_fail(SN_EINVAL, "there is no model of kind %d", (int) m->kind);
}

int64_t sn_model_units(const sn_model *m)
{
    switch (m->kind) {
    case SN_MODEL_GPT:
        return m->gpt.sequence;
    case SN_MODEL_BERT:
        return m->bert.classes ? 1 : m->bert.sequence;
    default:
        return 1;
    }
}
