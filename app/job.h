/* SPDX-License-Identifier: Apache-2.0
 *
 * job — the job file and its flags: one table of keys says name, type, range and where the value
 * goes.
 *
 *   defaults ← preset (with `model: NAME`) ← file ← flags         a flag wins, and that is said
 *
 * Paths in `data`, `tokenizer`, `data_cache` and `checkpoint.dir` are relative to the directory the
 * command runs in. */
#ifndef SN_APP_JOB_H
#define SN_APP_JOB_H

#include "cli.h"
#include "train/train.h"

typedef struct sn_job_spec {
    sn_job job;
    sn_arena *arena;  /* owns the texts */
    const char *file; /* name for messages, NULL: flags only */
    bool cards_given; /* hosts or cards_per_host was given */
    bool vocab_given; /* model.vocab was: then it is not the tokenizer's */
    bool sequence_given;
} sn_job_spec;

void sn_job_defaults(sn_job_spec *spec, sn_arena *arena);

/* Read a job file into the spec. SN_EINVAL: the sentence begins with FILE:LINE. */
sn_status sn_job_read(sn_job_spec *spec, const char *path);

/* The same from text in memory; `name` stands for the file in sentences. */
sn_status sn_job_parse(sn_job_spec *spec, const char *text, size_t bytes, const char *name);

/* Apply the flags that name keys; `notes` gets a line for each that overrides the file (may be
 * NULL). */
sn_status sn_job_flags(sn_job_spec *spec, const sn_args *args, sn_str *notes);

/* What can be judged without a topology: everything given, ranges between keys. */
sn_status sn_job_check(const sn_job_spec *spec);

/* The job as resolved, as a job file that reads back to the same. */
void sn_job_yaml(const sn_job *job, sn_str *out);

extern const sn_flag sn_job_flag_table[];

/* A named corpus ("bible-kjv", "dict-gcide") is made into a file under `cache_dir` from what
 * Debian's package of that name ships, once; any other text is taken as a path and returned
 * unchanged. */
sn_status sn_job_corpus(const char *data, const char *cache_dir, sn_arena *arena,
                        const char **ret_path);

#endif
