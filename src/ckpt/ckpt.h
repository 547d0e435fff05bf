/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt — named tensors on disk: any layout in, any layout out.
 *
 *   DIR/step-00000200/manifest.json      what is where, sizes, checksums; its rename publishes
 *                     r0000.safetensors  rank 0's pieces, a plain safetensors file
 *                     r0001.safetensors  (r0001-1 … when the step is saved again)
 *
 * A tensor has a global name and shape. A rank owns *pieces* of it: a rectangular block (begin,
 * extent per dimension: what tensor parallelism leaves on a card) and of that block, flattened
 * row-major, the range [flat_begin, flat_begin + flat_count) (what the sharded optimizer leaves on
 * a data-parallel rank). Pieces of all ranks cover each tensor exactly once. A piece that is the
 * whole tensor is stored under its plain name and shape, so that a single-card checkpoint is an
 * ordinary safetensors file; otherwise as a flat tensor "name@FILE-UNIQUE-NUMBER", described by the
 * manifest.
 *
 * Invariants
 *  1. A reader sees a complete checkpoint or none: files are written and fsynced first, the
 *     manifest is renamed last; a published file is never written to again.
 *  2. Every file's size and XXH3-64 stand in the manifest, and the manifest's own at its end; they
 *     are verified before a byte is used. Torn, corrupt, missing or foreign files are named, and
 *     sn_ckpt_find falls back to the next older checkpoint.
 *  3. Loading gives bit-equal values under any split. Peak memory of a load: the wanted pieces plus
 *     1 MiB and the table of tensors. Files are read, not mapped: one that shrinks is an error.
 *  4. Names are data, never paths: file names in a manifest with '/' or ".." are refused.
 *
 * An open sn_ckpt belongs to one thread at a time. Source: safetensors format,
 * https://github.com/huggingface/safetensors (header length u64 LE, JSON header, raw data). */
#ifndef SN_CKPT_CKPT_H
#define SN_CKPT_CKPT_H

#include "base/base.h"
#include "os/os.h"

typedef struct sn_piece {
    const char *name; /* "h.0.attn.wqkv", "adam.m/h.0.attn.wqkv" */
    sn_dtype dtype;
    sn_shape shape;             /* global */
    int64_t begin[SN_RANK_MAX]; /* of the block */
    int64_t extent[SN_RANK_MAX];
    int64_t flat_begin, flat_count; /* of the flattened block */
    void *data;                     /* flat_count elements; read by save, written by load */
} sn_piece;

/* ---- saving: each rank writes its file, one publishes ---- */

/* Write my pieces to DIR/step-N/rRANK.safetensors (creating the directory), fsync. *ret_part: a
 * text (≤ part_max bytes with its NUL) describing file, size, checksum and pieces, to be gathered
 * at the publishing rank. SN_ENOSPC, SN_EPERM name the file; the half-written file is removed. */
sn_status sn_ckpt_write_part(const char *dir, int64_t step, int rank, const sn_piece *piece,
                             int pieces, sn_str *ret_part);

/* Called by one rank when every part is durable: checks that the pieces cover each tensor exactly
 * once (the ranges of one block tile it, the blocks tile the tensor), writes the manifest
 * atomically, then deletes checkpoints older than the newest `keep` (0: keep all). `meta` is a JSON
 * object text with whatever the caller needs to go on (model, optimizer, data position); returned
 * verbatim by open. */
sn_status sn_ckpt_publish(const char *dir, int64_t step, const char *const *part, int parts,
                          const char *meta, int keep);

/* ---- loading ---- */
typedef struct sn_ckpt sn_ckpt;

/* The newest checkpoint that is whole (manifest parses, every file has its size and checksum). Each
 * bad one passed over is described in *ret_skipped (may be NULL): "step-00000200:
 * r0001.safetensors: checksum differs; using step-00000100". SN_ENOTFOUND when there is none. */
sn_status sn_ckpt_find(const char *dir, sn_str *ret_skipped, sn_ckpt **ret);
/* The newest step that was published, without looking into its files; SN_ENOTFOUND: none. */
sn_status sn_ckpt_newest(const char *dir, int64_t *ret_step);
/* One step, files checked for their size; each is checked for its checksum when first used, so that
 * many ranks may open one checkpoint and each reads only what it needs. */
sn_status sn_ckpt_open(const char *dir, int64_t step, sn_ckpt **ret);
/* One safetensors file without a manifest (a user's), or a list of shards
 * (model.safetensors.index.json): its tensors are whole pieces. */
sn_status sn_ckpt_open_file(const char *path, sn_ckpt **ret);
void sn_ckpt_close(sn_ckpt *c);

int64_t sn_ckpt_step(const sn_ckpt *c);
const char *sn_ckpt_meta(const sn_ckpt *c);
int sn_ckpt_tensors(const sn_ckpt *c);
const char *sn_ckpt_tensor(const sn_ckpt *c, int i, sn_dtype *ret_dtype, sn_shape *ret_shape);

/* Fill the wanted pieces. SN_ENOTFOUND names a tensor that is not there (with the nearest name),
 * SN_EMISMATCH one whose dtype or shape differs (both printed): the checkpoint of another model. */
sn_status sn_ckpt_load(const sn_ckpt *c, sn_piece *piece, int pieces);

/* SN_EINVAL naming the first tensor that holds NaN or infinity: for weights from elsewhere. */
sn_status sn_ckpt_check_finite(const sn_piece *piece, int pieces);

/* ---- GPT-2 as others keep it: a folder with config.json and model.safetensors ---- */
typedef struct sn_hf_gpt2 {
    int64_t layers, hidden, heads, sequence, vocab, inner; /* sequence: positions */
    double epsilon;
    bool tied;      /* the head is the embedding's table */
    bool tanh_gelu; /* else GELU is exact */
} sn_hf_gpt2;

/* SN_ENOTSUP: another model, or a variant of it; SN_EINVAL names the key. */
sn_status sn_hf_gpt2_config(const char *dir, sn_hf_gpt2 *ret);
/* Fill F32 pieces of sn_graph_gpt's parameters, whatever block of them. m: sizes of the model that
 * takes them; its sequence may be shorter than the file's. */
sn_status sn_hf_gpt2_load(const char *dir, const sn_hf_gpt2 *m, sn_piece *piece, int pieces);
/* The model of an open checkpoint, in F32. */
sn_status sn_hf_gpt2_save(const char *dir, const sn_hf_gpt2 *m, const sn_ckpt *c);

/* ---- safetensors, for other uses ---- */
/* Strict parser of a header in memory: duplicate keys, overlapping or out-of-range offsets, holes,
 * wrong sizes, a header over 100 MB are SN_ECORRUPT naming the tensor; zero-size tensors, scalars,
 * unaligned data, any order, escapes are fine. */
typedef struct sn_safetensor {
    const char *name;
    sn_dtype dtype;
    sn_shape shape;
    const void *data; /* inside the given bytes; may be unaligned */
    uint64_t bytes;
} sn_safetensor;
sn_status sn_safetensors_parse(const void *file, uint64_t bytes, sn_arena *arena,
                               sn_safetensor **ret, int *ret_count);

#endif
