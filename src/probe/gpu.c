/* SPDX-License-Identifier: Apache-2.0
 * Known accelerators: a model's peaks cannot be asked of a driver, so they stand in a table. */
#include "probe/parts.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

typedef struct model {
    const char *word; /* in what the driver or the PCI data base calls it */
    const char *kind;
    double flops_f32, flops_bf16, memory_bytes_per_s;
    uint64_t memory_bytes;
} model;

/* Dense peaks of the SXM or OAM form, from the vendors' data sheets; a row is found by the first
 * word that occurs. Adding a card is adding a row. */
static const model models[] = {
    {"H100", "h100", 67e12, 989e12, 3.35e12, UINT64_C(80000000000)},
    {"H200", "h200", 67e12, 989e12, 4.8e12, UINT64_C(141000000000)},
    {"B200", "b200", 75e12, 2250e12, 7.7e12, UINT64_C(180000000000)},
    {"A100", "a100", 19.5e12, 312e12, 2.039e12, UINT64_C(80000000000)},
    {"MI300X", "mi300x", 163.4e12, 1300e12, 5.3e12, UINT64_C(192000000000)},
    {"910C", "ascend910c", 0, 752e12, 3.2e12, UINT64_C(128000000000)},
    {"910B", "ascend910b", 0, 320e12, 1.6e12, UINT64_C(64000000000)},
};

/* "NVIDIA GeForce RTX 4090" → "nvidia-geforce-rtx-4090". */
static void kind_from(const char *text, char kind[48])
{
    size_t n = 0;
    for (; *text && n < 47; text++)
        if (isalnum((unsigned char) *text))
            kind[n++] = (char) tolower((unsigned char) *text);
        else if (n && kind[n - 1] != '-')
            kind[n++] = '-';
    while (n && kind[n - 1] == '-')
        n--;
    kind[n] = 0;
    if (!n)
        strcpy(kind, "gpu");
}

sn_topo_card probe_gpu_card(const probe_gpu *gpu, char kind[48])
{
    sn_topo_card card = {.core = -1, .numa_node = -1, .share = 1};
    kind_from(gpu->model, kind);
    for (size_t i = 0; i < SN_COUNT(models); i++) {
        const model *m = &models[i];
        if (!strstr(gpu->model, m->word))
            continue;
        strcpy(kind, m->kind);
        card.flops_f32 = m->flops_f32;
        card.flops_bf16 = m->flops_bf16;
        card.memory_bytes_per_s = m->memory_bytes_per_s;
        card.memory_bytes = m->memory_bytes;
        break;
    }
    card.kind = kind;
    if (gpu->memory_bytes)
        card.memory_bytes = gpu->memory_bytes;
    if (gpu->memory_bytes_per_s > 0)
        card.memory_bytes_per_s = gpu->memory_bytes_per_s;
    if (card.flops_f32 <= 0)
        card.flops_f32 = gpu->flops_f32;
    return card;
}
