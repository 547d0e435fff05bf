/* SPDX-License-Identifier: Apache-2.0
 *
 * parts — what the files of ckpt share. Private to the layer.
 *
 *   header.c    the JSON header of a safetensors file, strictly
 *   file.c      buffered reading by pread: a file that shrinks is an error, not a SIGBUS
 *   piece.c     rectangles and ranges: validity, "covered exactly once", runs common to two pieces
 *   manifest.c  part and manifest texts to tables
 *   index.c     the shard list of other tools
 *   write.c publish.c open.c load.c   the calls of ckpt.h */
#ifndef SN_CKPT_PARTS_H
#define SN_CKPT_PARTS_H

#include "ckpt/ckpt.h"

#define CKPT_HEADER_MAX 100000000   /* bytes; the limit of the format's reference reader */
#define CKPT_MANIFEST_MAX (1 << 30) /* bytes */
#define CKPT_MANIFEST_NAME "manifest.json"
#define CKPT_STEP_DIR 32 /* characters of "step-00000200" with its NUL, for any step */

/* ---- words ---- */
const char *ckpt_show(char out[80], const char *name); /* a hostile name, fit for a sentence */
void ckpt_step_dir(char out[CKPT_STEP_DIR], int64_t step);
bool ckpt_file_name_ok(const char *name); /* a name, not a path */

/* ---- header.c ---- */
typedef struct ckpt_entry {
    const char *name;
    sn_dtype dtype;
    sn_shape shape;
    uint64_t begin, end; /* bytes after the header */
} ckpt_entry;

/* Length of the JSON header from the first 8 bytes of a file of `file_bytes`. */
sn_status ckpt_header_length(const void *first, uint64_t file_bytes, uint64_t *ret);
/* Entries in the order of the header, names unique, data without holes or overlap. */
sn_status ckpt_header_parse(const char *json, uint64_t bytes, uint64_t data_bytes, sn_arena *arena,
                            ckpt_entry **ret, int *ret_count);
/* Elements and bytes of a shape that came from outside; false on a negative or wrapping one. */
bool ckpt_shape_bytes(sn_shape shape, sn_dtype dtype, int64_t *ret_count, int64_t *ret_bytes);

/* ---- file.c ---- */
typedef struct ckpt_reader {
    int fd;
    const char *path; /* borrowed */
    uint64_t bytes;
    unsigned char *window; /* the bytes [at, at + got) of the file */
    uint64_t at, got;
} ckpt_reader;

sn_status ckpt_reader_open(const char *path, ckpt_reader *ret);
void ckpt_reader_close(ckpt_reader *r);
/* Small reads in rising order are served from the window, large ones go straight to `to`. */
sn_status ckpt_reader_get(ckpt_reader *r, uint64_t offset, uint64_t bytes, void *to);
sn_status ckpt_reader_hash(ckpt_reader *r, uint64_t *ret); /* XXH3-64 of the whole file */
sn_status ckpt_reader_header(ckpt_reader *r, sn_arena *arena, ckpt_entry **ret, int *ret_count,
                             uint64_t *ret_data_at);

/* ---- piece.c ---- */
typedef struct ckpt_block { /* where a piece lies in its tensor */
    int64_t begin[SN_RANK_MAX], extent[SN_RANK_MAX];
    int64_t flat_begin, flat_count;
} ckpt_block;

ckpt_block ckpt_block_whole(sn_shape shape, int64_t count);
bool ckpt_block_is_whole(sn_shape shape, const ckpt_block *b);
bool ckpt_block_valid(sn_shape shape, const ckpt_block *b);
/* The blocks (n of them, sorted in place) tile the tensor. The sentence says what is missing. */
sn_status ckpt_cover(sn_shape shape, ckpt_block *const *block, int n);

/* Elements that two pieces of one tensor share: `count` from element `from` of the one piece and
 * element `to` of the other on; in rising order of `from`. */
typedef sn_status ckpt_run_fn(void *ctx, int64_t from, int64_t to, int64_t count);
sn_status ckpt_runs(sn_shape shape, const ckpt_block *from, const ckpt_block *to, ckpt_run_fn *fn,
                    void *ctx);

/* ---- manifest.c ---- */
typedef struct ckpt_stored { /* one piece in one file */
    ckpt_block block;
    const char *key; /* its name in the file */
    int file;
} ckpt_stored;

typedef struct ckpt_tensor {
    const char *name;
    sn_dtype dtype;
    sn_shape shape;
    ckpt_stored *piece; /* without the empty ones */
    int pieces;
} ckpt_tensor;

typedef struct ckpt_file {
    const char *name; /* inside the directory */
    uint64_t bytes, hash;
    bool hashed; /* the manifest has bytes and hash; a user's file has none */
    bool verified;
    ckpt_entry *entry; /* of its header, sorted by name; NULL until it was read */
    int entries;
    uint64_t data_at;
} ckpt_file;

typedef struct ckpt_table {
    sn_arena *arena;
    int64_t step;
    const char *meta;
    ckpt_file *file;
    size_t files, files_cap;
    ckpt_tensor *tensor; /* sorted by name */
    size_t tensors;
    struct ckpt_row *row; /* while it is being built: a piece and its tensor */
    size_t rows, rows_cap;
} ckpt_table;

/* The text of one rank's part → rows of the table. `what` names it in sentences. */
sn_status ckpt_table_add_part(ckpt_table *t, const char *text, const char *what);
void ckpt_table_add_whole(ckpt_table *t, const ckpt_entry *entry, int file);
int ckpt_table_add_file(ckpt_table *t, const ckpt_file *file);
/* Rows → tensors; pieces must agree on dtype and shape and cover each tensor exactly once. */
sn_status ckpt_table_finish(ckpt_table *t);

/* A manifest's text; `sealed`: also check the checksum at its end (a fuzzer goes without). */
sn_status ckpt_manifest_parse(const char *text, size_t bytes, bool sealed, ckpt_table *t);
void ckpt_manifest_text(sn_str *out, int64_t step, const char *meta, const char *const *part,
                        int parts);
void ckpt_json_text(sn_str *out, const char *text); /* quoted and escaped */
bool ckpt_text_ok(const char *text);                /* valid UTF-8, so that JSON can hold it */

/* ---- open.c ---- */
struct sn_ckpt {
    ckpt_table table;
    char *dir; /* the files are in it */
};
sn_status ckpt_file_open(const sn_ckpt *c, const ckpt_file *file, char path[4096],
                         ckpt_reader *ret);
/* Size and checksum, once per file. */
sn_status ckpt_file_verify(ckpt_file *file, ckpt_reader *r);
/* Its header into file->entry, once. */
sn_status ckpt_file_header(const sn_ckpt *c, ckpt_file *file, ckpt_reader *r);
const ckpt_entry *ckpt_file_entry(const ckpt_file *file, const char *key); /* NULL none */

/* The steps that have a directory, newest first, in malloc'd *ret_step. */
sn_status ckpt_steps(const char *dir, int64_t **ret_step, int *ret_count);

/* ---- index.c ---- */
/* A list of shards as other tools write it ("weight_map") → the table's files and tensors. */
sn_status ckpt_index_open(sn_ckpt *c, const char *path);

#endif
