/* SPDX-License-Identifier: Apache-2.0
 *
 * Transformers as their sizes, those of published runs first. */
#include "sim/sim.h"

#include <string.h>

/* name, layers, hidden, heads, kv_heads, mlp, vocab, sequence, gated, fused, drops */
static const sn_sim_model models[] = {
    {"gpt3-175b", 96, 12288, 96, 96, 49152, 51200, 2048, false, true, true},
    {"gpt-1.7b", 24, 2304, 24, 24, 9216, 51200, 2048, false, false, true},
    {"gpt-3.6b", 30, 3072, 32, 32, 12288, 51200, 2048, false, false, true},
    {"gpt-7.5b", 36, 4096, 32, 32, 16384, 51200, 2048, false, false, true},
    {"gpt-18b", 40, 6144, 48, 48, 24576, 51200, 2048, false, false, true},
    {"gpt-22b", 48, 6144, 64, 64, 24576, 51200, 2048, false, false, true},
    {"gpt-39b", 48, 8192, 64, 64, 32768, 51200, 2048, false, false, true},
    {"gpt-76b", 60, 10240, 80, 80, 40960, 51200, 2048, false, false, true},
    {"gpt-145b", 80, 12288, 96, 96, 49152, 51200, 2048, false, false, true},
    {"gpt-310b", 96, 16384, 128, 128, 65536, 51200, 2048, false, false, true},
    {"gpt-530b", 105, 20480, 128, 128, 81920, 51200, 2048, false, false, true},
    {"gpt-1t", 128, 25600, 160, 160, 102400, 51200, 2048, false, true, true},
    {"llama2-7b", 32, 4096, 32, 32, 11008, 32000, 4096, true, true, false},
    {"llama2-70b", 80, 8192, 64, 8, 28672, 32000, 4096, true, true, false},
    {"llama3-8b", 32, 4096, 32, 8, 14336, 128256, 8192, true, true, false},
    {"llama3-70b", 80, 8192, 64, 8, 28672, 128256, 8192, true, true, false},
    {"llama3-405b", 126, 16384, 128, 8, 53248, 128256, 8192, true, true, false},
};

int sn_sim_models(const sn_sim_model **ret)
{
    *ret = models;
    return (int) SN_COUNT(models);
}

const sn_sim_model *sn_sim_model_find(const char *name)
{
    for (size_t i = 0; i < SN_COUNT(models); i++)
        if (name && !strcmp(name, models[i].name))
            return &models[i];
    return NULL;
}

static double layer_parameters(const sn_sim_model *m)
{
    double h = (double) m->hidden, kv = (double) m->kv_heads * (h / (double) m->heads);
    return 2 * h * h + 2 * h * kv + (m->gated ? 3 : 2) * h * (double) m->mlp;
}

double sn_sim_parameters(const sn_sim_model *m)
{
    double tables = m->gated ? 2 : 1; /* the older models tie the head to the embedding */
    return (double) m->layers * layer_parameters(m) +
           tables * (double) m->vocab * (double) m->hidden;
}

double sn_sim_flops(const sn_sim_model *m)
{
    double s = (double) m->sequence, h = (double) m->hidden;
    double layer = 2 * layer_parameters(m) * s + 4 * s * s * h;
    return 3 * ((double) m->layers * layer + 2 * s * h * (double) m->vocab);
}
