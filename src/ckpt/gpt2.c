/* SPDX-License-Identifier: Apache-2.0
 *
 * gpt2 — folders as Hugging Face's transformers write them for GPT-2.
 *
 *   config.json          sizes
 *   model.safetensors    the weights under their names, or a list of shards
 *
 * A tensor has its dimensions in another order there. Both orders are words of letters, one a
 * dimension, outermost first; a space ends a dimension of the file:
 *
 *   attn.wqkv  HCED   ↔   attn.c_attn.weight  D CHE     (D in, the outputs are q | k | v by head)
 *
 * D hidden, H heads, E = D / H, C = 3, F inner, V vocabulary, T positions. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/parts.h"

typedef struct row {
    const char *ours, *theirs, *our_dims, *their_dims;
} row;

static const row of_layer[] = {
    {"ln1.g", "ln_1.weight", "D", "D"},
    {"ln1.b", "ln_1.bias", "D", "D"},
    {"attn.wqkv", "attn.c_attn.weight", "HCED", "D CHE"},
    {"attn.bqkv", "attn.c_attn.bias", "HCE", "CHE"},
    {"attn.wo", "attn.c_proj.weight", "DHE", "HE D"},
    {"attn.bo", "attn.c_proj.bias", "D", "D"},
    {"ln2.g", "ln_2.weight", "D", "D"},
    {"ln2.b", "ln_2.bias", "D", "D"},
    {"mlp.w1", "mlp.c_fc.weight", "FD", "D F"},
    {"mlp.b1", "mlp.c_fc.bias", "F", "F"},
    {"mlp.w2", "mlp.c_proj.weight", "DF", "F D"},
    {"mlp.b2", "mlp.c_proj.bias", "D", "D"},
};

static const row of_model[] = {
    {"wte", "wte.weight", "VD", "V D"},      {"wpe", "wpe.weight", "T1D", "T D"},
    {"ln.g", "ln_f.weight", "D", "D"},       {"ln.b", "ln_f.bias", "D", "D"},
    {"head", "lm_head.weight", "VD", "V D"},
};

/* ---- sizes ---- */

static int64_t size_of(const sn_hf_gpt2 *m, char letter)
{
    switch (letter) {
    case 'D':
        return m->hidden;
    case 'H':
        return m->heads;
    case 'E':
        return m->hidden / m->heads;
    case 'C':
        return 3;
    case 'F':
        return m->inner;
    case 'V':
        return m->vocab;
    case 'T':
        return m->sequence;
    default:
        return 1;
    }
}

static sn_shape our_shape(const sn_hf_gpt2 *m, const row *r)
{
    sn_shape s = {0};
    for (const char *c = r->our_dims; *c; c++)
        s.dim[s.rank++] = size_of(m, *c);
    return s;
}

static sn_shape their_shape(const sn_hf_gpt2 *m, const row *r)
{
    sn_shape s = {.rank = 1, .dim = {1}};
    for (const char *c = r->their_dims; *c; c++)
        if (*c == ' ')
            s.dim[s.rank++] = 1;
        else
            s.dim[s.rank - 1] *= size_of(m, *c);
    return s;
}

/* How far apart in their file neighbours along each of our dimensions are. */
static void strides(const sn_hf_gpt2 *m, const row *r, int64_t stride[SN_RANK_MAX])
{
    for (int d = 0; r->our_dims[d]; d++) {
        const char *at = strchr(r->their_dims, r->our_dims[d]);
        stride[d] = at ? 1 : 0;
        for (const char *c = at ? at + 1 : ""; *c; c++)
            if (*c != ' ')
                stride[d] *= size_of(m, *c);
    }
}

/* ---- walking a piece of ours ---- */

typedef struct walk {
    int rank;
    int64_t index[SN_RANK_MAX], begin[SN_RANK_MAX], extent[SN_RANK_MAX], stride[SN_RANK_MAX];
    int64_t at; /* in their tensor */
} walk;

static walk walk_begin(const sn_hf_gpt2 *m, const row *r, const sn_piece *p)
{
    walk w = {.rank = p->shape.rank};
    int64_t flat = p->flat_begin;
    strides(m, r, w.stride);
    for (int d = w.rank - 1; d >= 0; d--) {
        w.begin[d] = p->begin[d];
        w.extent[d] = p->extent[d];
        w.index[d] = flat % p->extent[d];
        flat /= p->extent[d];
        w.at += (w.begin[d] + w.index[d]) * w.stride[d];
    }
    return w;
}

static void walk_next(walk *w)
{
    for (int d = w->rank - 1; d >= 0; d--) {
        w->at += w->stride[d];
        if (++w->index[d] < w->extent[d])
            return;
        w->at -= w->extent[d] * w->stride[d];
        w->index[d] = 0;
    }
}

static float from_half(uint16_t h)
{
    uint32_t sign = (uint32_t) (h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff;
    union {
        uint32_t u;
        float f;
    } v = {.u = sign | (e + 112) << 23 | m << 13};
    if (e == 31)
        v.u = sign | 0x7f800000u | m << 13;
    if (e == 0) { /* a multiple of 2^-24 */
        v.f = (float) m * 0x1p-24f;
        v.u |= sign;
    }
    return v.f;
}

static float element(const void *data, sn_dtype dtype, int64_t i)
{
    if (dtype == SN_F16)
        return from_half(((const uint16_t *) data)[i]);
    if (dtype == SN_BF16)
        return sn_bf16_to_f32(((const uint16_t *) data)[i]);
    return ((const float *) data)[i];
}

/* ---- config.json ---- */

static sn_status whole(const json_t *root, const char *path, const char *key, int64_t least,
                       int64_t most, int64_t *ret)
{
    const json_t *v = json_object_get(root, key);
    int64_t n = json_is_integer(v) ? json_integer_value(v) : -1;
    if (n < least || n > most)
        return sn_fail(SN_EINVAL, "%s: %s must be a whole number from %lld to %lld", path, key,
                       (long long) least, (long long) most);
    *ret = n;
    return SN_OK;
}

static sn_status read_activation(const json_t *root, const char *path, sn_hf_gpt2 *m)
{
    const char *act = json_string_value(json_object_get(root, "activation_function"));
    m->tanh_gelu = !act || !strcmp(act, "gelu_new") || !strcmp(act, "gelu_pytorch_tanh");
    if (m->tanh_gelu || !strcmp(act, "gelu"))
        return SN_OK;
    return sn_fail(SN_ENOTSUP, "%s: activation_function %.40s; gelu_new and gelu are read", path,
                   act);
}

static sn_status read_config(const json_t *root, const char *path, sn_hf_gpt2 *m)
{
    const char *type = json_string_value(json_object_get(root, "model_type"));
    const json_t *inner = json_object_get(root, "n_inner");
    const json_t *eps = json_object_get(root, "layer_norm_epsilon");
    if (!type || strcmp(type, "gpt2") != 0)
        return sn_fail(SN_ENOTSUP, "%s: model_type is %.40s; gpt2 is read", path,
                       type ? type : "not given");
    SN_TRY(whole(root, path, "n_layer", 1, 4096, &m->layers));
    SN_TRY(whole(root, path, "n_embd", 1, 1 << 20, &m->hidden));
    SN_TRY(whole(root, path, "n_head", 1, 1 << 16, &m->heads));
    SN_TRY(whole(root, path, "n_positions", 1, 1 << 24, &m->sequence));
    SN_TRY(whole(root, path, "vocab_size", 2, 1 << 24, &m->vocab));
    m->inner = 4 * m->hidden;
    if (inner && !json_is_null(inner))
        SN_TRY(whole(root, path, "n_inner", 1, 1 << 22, &m->inner));
    m->epsilon = json_is_number(eps) ? json_number_value(eps) : 1e-5;
    m->tied = !json_is_false(json_object_get(root, "tie_word_embeddings"));
    if (m->hidden % m->heads || !(m->epsilon > 0 && m->epsilon < 1))
        return sn_fail(SN_EINVAL,
                       "%s: n_head does not divide n_embd, or layer_norm_epsilon is no "
                       "small number",
                       path);
    if (json_is_true(json_object_get(root, "scale_attn_by_inverse_layer_idx")) ||
        json_is_false(json_object_get(root, "scale_attn_weights")) ||
        json_is_true(json_object_get(root, "add_cross_attention")))
        return sn_fail(SN_ENOTSUP, "%s: attention is scaled otherwise than in GPT-2, or crosses",
                       path);
    return read_activation(root, path, m);
}

sn_status sn_hf_gpt2_config(const char *dir, sn_hf_gpt2 *ret)
{
    sn_str path = {0};
    char *text;
    size_t bytes;
    json_error_t error;
    sn_hf_gpt2 m = {0};
    sn_str_printf(&path, "%s/config.json", dir);
    sn_status status = sn_file_read(sn_str_get(&path), 1 << 20, &text, &bytes);
    if (status >= 0) {
        json_t *root = json_loadb(text, bytes, 0, &error);
        status = root ? read_config(root, sn_str_get(&path), &m)
                      : sn_fail(SN_ECORRUPT, "%s:%d: not JSON: %s", sn_str_get(&path), error.line,
                                error.text);
        json_decref(root);
        free(text);
    }
    sn_str_done(&path);
    if (status >= 0)
        *ret = m;
    return status;
}

/* ---- loading ---- */

static const row *row_of(const char *name, int64_t *ret_layer)
{
    int used = 0;
    long long layer = -1;
    const row *rows = of_model;
    size_t n = SN_COUNT(of_model);
    if (sscanf(name, "h.%lld.%n", &layer, &used) == 1 && used > 0) {
        rows = of_layer;
        n = SN_COUNT(of_layer);
    }
    *ret_layer = used > 0 ? layer : -1;
    for (size_t i = 0; i < n; i++)
        if (!strcmp(rows[i].ours, name + used))
            return &rows[i];
    return NULL;
}

/* The tensor's number, under its name with or without the model's prefix. */
static int find_theirs(const sn_ckpt *c, const row *r, int64_t layer, char name[128])
{
    static const char *const prefix[] = {"", "transformer."};
    for (size_t k = 0; k < SN_COUNT(prefix); k++) {
        if (layer >= 0)
            snprintf(name, 128, "%sh.%lld.%s", prefix[k], (long long) layer, r->theirs);
        else
            snprintf(name, 128, "%s%s", !strcmp(r->ours, "head") ? "" : prefix[k], r->theirs);
        for (int i = 0; i < sn_ckpt_tensors(c); i++)
            if (!strcmp(sn_ckpt_tensor(c, i, &(sn_dtype){0}, &(sn_shape){0}), name))
                return i;
    }
    return -1;
}

static sn_status fits(const sn_hf_gpt2 *m, const row *r, const char *name, sn_dtype dtype,
                      sn_shape shape)
{
    char there[96], here[96];
    sn_shape want = their_shape(m, r);
    bool longer = !strcmp(r->ours, "wpe") && shape.rank == 2 && shape.dim[0] > want.dim[0];
    if (longer) /* the first positions of more */
        want.dim[0] = shape.dim[0];
    if (!sn_shape_equal(shape, want))
        return sn_fail(SN_EMISMATCH, "%s has the shape %s, this model needs %s", name,
                       sn_shape_text(there, shape), sn_shape_text(here, want));
    if (dtype != SN_F32 && dtype != SN_F16 && dtype != SN_BF16)
        return sn_fail(SN_ENOTSUP, "%s is of type %s; F32, F16 and BF16 are read", name,
                       sn_dtype_name(dtype));
    return SN_OK;
}

static sn_status load_piece(const sn_ckpt *c, const sn_hf_gpt2 *m, sn_piece *p)
{
    int64_t layer;
    char name[128];
    const row *r = row_of(p->name, &layer);
    if (!r || !sn_shape_equal(p->shape, our_shape(m, r)) || p->dtype != SN_F32)
        return sn_fail(SN_ENOTSUP, "GPT-2 has no %s of this form", p->name);
    int i = find_theirs(c, r, layer, name);
    sn_dtype dtype;
    sn_shape shape;
    if (i < 0)
        return sn_fail(SN_ENOTFOUND, "there is no %s", name);
    sn_ckpt_tensor(c, i, &dtype, &shape);
    SN_TRY(fits(m, r, name, dtype, shape));
    sn_piece all = {.name = name, .dtype = dtype, .shape = shape};
    memcpy(all.extent, shape.dim, sizeof all.extent);
    all.flat_count = sn_shape_count(shape);
    all.data = malloc((size_t) all.flat_count * sn_dtype_bytes(dtype));
    if (!all.data)
        return sn_fail(SN_ENOMEM, "no memory for %s", name);
    sn_status status = sn_ckpt_load(c, &all, 1);
    walk w = walk_begin(m, r, p);
    for (int64_t k = 0; k < p->flat_count && status >= 0; k++, walk_next(&w))
        ((float *) p->data)[k] = element(all.data, dtype, w.at);
    free(all.data);
    return status;
}

sn_status sn_hf_gpt2_load(const char *dir, const sn_hf_gpt2 *m, sn_piece *piece, int pieces)
{
    sn_str path = {0};
    sn_ckpt *c;
    sn_str_printf(&path, "%s/model.safetensors", dir);
    if (access(sn_str_get(&path), F_OK))
        sn_str_add(&path, ".index.json");
    sn_status status = sn_ckpt_open_file(sn_str_get(&path), &c);
    if (status >= 0) {
        for (int i = 0; i < pieces && status >= 0; i++)
            status = load_piece(c, m, &piece[i]);
        if (status >= 0)
            status = sn_ckpt_check_finite(piece, pieces);
        sn_ckpt_close(c);
    }
    sn_str_done(&path);
    return status < 0 ? sn_fail_in(status, "%s", dir) : SN_OK;
}

/* ---- saving ---- */

/* Call `each` for all tensors, in their order. */
typedef sn_status (*tensor_fn)(void *ctx, const row *r, const char *ours, const char *theirs);

static sn_status each_tensor(const sn_hf_gpt2 *m, tensor_fn each, void *ctx)
{
    char ours[128], theirs[128];
    for (int64_t layer = 0; layer < m->layers; layer++)
        for (size_t i = 0; i < SN_COUNT(of_layer); i++) {
            snprintf(ours, sizeof ours, "h.%lld.%s", (long long) layer, of_layer[i].ours);
            snprintf(theirs, sizeof theirs, "transformer.h.%lld.%s", (long long) layer,
                     of_layer[i].theirs);
            SN_TRY(each(ctx, &of_layer[i], ours, theirs));
        }
    for (size_t i = 0; i < SN_COUNT(of_model); i++) {
        bool head = !strcmp(of_model[i].ours, "head");
        if (head && m->tied)
            continue;
        snprintf(theirs, sizeof theirs, "%s%s", head ? "" : "transformer.", of_model[i].theirs);
        SN_TRY(each(ctx, &of_model[i], of_model[i].ours, theirs));
    }
    return SN_OK;
}

typedef struct saver {
    const sn_hf_gpt2 *m;
    const sn_ckpt *from;
    FILE *out;
    sn_str head;
    int64_t at; /* bytes of data so far */
    float *ours, *theirs;
} saver;

static sn_status describe(void *ctx, const row *r, const char *ours, const char *theirs)
{
    saver *s = ctx;
    sn_shape shape = their_shape(s->m, r);
    int64_t bytes = 4 * sn_shape_count(shape);
    sn_str_printf(&s->head, ",\"%s\":{\"dtype\":\"F32\",\"shape\":[%lld", theirs,
                  (long long) shape.dim[0]);
    for (int d = 1; d < shape.rank; d++)
        sn_str_printf(&s->head, ",%lld", (long long) shape.dim[d]);
    sn_str_printf(&s->head, "],\"data_offsets\":[%lld,%lld]}", (long long) s->at,
                  (long long) (s->at + bytes));
    s->at += bytes;
    return SN_OK;
}

static sn_status save_tensor(void *ctx, const row *r, const char *ours, const char *theirs)
{
    saver *s = ctx;
    sn_piece p = {.name = ours, .dtype = SN_F32, .shape = our_shape(s->m, r)};
    memcpy(p.extent, p.shape.dim, sizeof p.extent);
    p.flat_count = sn_shape_count(p.shape);
    p.data = malloc((size_t) p.flat_count * sizeof(float));
    float *there = malloc((size_t) p.flat_count * sizeof(float));
    sn_status status = p.data && there ? sn_ckpt_load(s->from, &p, 1)
                                       : sn_fail(SN_ENOMEM, "no memory for %s", ours);
    if (status >= 0) {
        walk w = walk_begin(s->m, r, &p);
        for (int64_t k = 0; k < p.flat_count; k++, walk_next(&w))
            there[w.at] = ((const float *) p.data)[k];
        size_t n = (size_t) p.flat_count;
        if (fwrite(there, sizeof(float), n, s->out) != n)
            status = sn_file_failed("write", theirs);
    }
    free(p.data);
    free(there);
    return status;
}

static sn_status save_weights(const char *path, const sn_hf_gpt2 *m, const sn_ckpt *c)
{
    saver s = {.m = m, .from = c};
    sn_str part = {0};
    sn_str_add(&s.head, "{\"__metadata__\":{\"format\":\"pt\"}");
    sn_status status = each_tensor(m, describe, &s);
    sn_str_add(&s.head, "}");
    while (s.head.len % 8)
        sn_str_add(&s.head, " ");
    sn_str_printf(&part, "%s.%d", path, (int) getpid());
    s.out = fopen(sn_str_get(&part), "we");
    uint64_t bytes = s.head.len;
    if (!s.out)
        status = sn_file_failed("write", sn_str_get(&part));
    else if (fwrite(&bytes, 8, 1, s.out) != 1 || fwrite(s.head.data, bytes, 1, s.out) != 1)
        status = sn_file_failed("write", sn_str_get(&part));
    if (status >= 0)
        status = each_tensor(m, save_tensor, &s);
    if (s.out && (fflush(s.out) || fsync(fileno(s.out))) && status >= 0)
        status = sn_file_failed("write", sn_str_get(&part));
    if (s.out && fclose(s.out) && status >= 0)
        status = sn_file_failed("write", sn_str_get(&part));
    if (status >= 0 && rename(sn_str_get(&part), path))
        status = sn_file_failed("write", path);
    if (status < 0)
        unlink(sn_str_get(&part));
    sn_str_done(&part);
    sn_str_done(&s.head);
    return status;
}

static sn_status save_config(const char *path, const sn_hf_gpt2 *m)
{
    sn_str out = {0};
    sn_str_printf(&out,
                  "{\n  \"architectures\": [\"GPT2LMHeadModel\"],\n  \"model_type\": \"gpt2\",\n"
                  "  \"n_layer\": %lld,\n  \"n_embd\": %lld,\n  \"n_head\": %lld,\n"
                  "  \"n_positions\": %lld,\n  \"n_ctx\": %lld,\n  \"n_inner\": %lld,\n"
                  "  \"vocab_size\": %lld,\n  \"activation_function\": \"%s\",\n"
                  "  \"layer_norm_epsilon\": %.10g,\n  \"tie_word_embeddings\": %s,\n",
                  (long long) m->layers, (long long) m->hidden, (long long) m->heads,
                  (long long) m->sequence, (long long) m->sequence, (long long) m->inner,
                  (long long) m->vocab, m->tanh_gelu ? "gelu_new" : "gelu", m->epsilon,
                  m->tied ? "true" : "false");
    sn_str_printf(&out,
                  "  \"attn_pdrop\": 0.0,\n  \"embd_pdrop\": 0.0,\n  \"resid_pdrop\": 0.0,\n"
                  "  \"bos_token_id\": %lld,\n  \"eos_token_id\": %lld,\n"
                  "  \"torch_dtype\": \"float32\"\n}\n",
                  (long long) m->vocab - 1, (long long) m->vocab - 1);
    sn_status status = sn_file_write(path, sn_str_get(&out), out.len);
    sn_str_done(&out);
    return status;
}

sn_status sn_hf_gpt2_save(const char *dir, const sn_hf_gpt2 *m, const sn_ckpt *c)
{
    sn_str path = {0};
    SN_TRY(sn_dir_create(dir));
    sn_str_printf(&path, "%s/model.safetensors", dir);
    sn_status status = save_weights(sn_str_get(&path), m, c);
    sn_str_clear(&path);
    sn_str_printf(&path, "%s/config.json", dir);
    if (status >= 0)
        status = save_config(sn_str_get(&path), m);
    sn_str_done(&path);
    return status;
}
