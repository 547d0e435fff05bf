/* SPDX-License-Identifier: Apache-2.0
 * supernode tokenize: learn a tokenizer from a text, or apply one. */
#include "cmd.h"

#include "os/os.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

enum { IDS_A_LINE = 20 };

typedef struct told { /* what was done, for the user */
    int64_t vocab, bytes, ids;
    sn_time train_ns, encode_ns;
    const char *out;
} told;

/* ---- learning ---- */

static sn_status learn(const char *data, int64_t vocab, sn_arena *arena, told *t, sn_token **ret)
{
    sn_text *text;
    SN_TRY(sn_read_corpus(data, arena, &data));
    SN_TRY(sn_text_open(data, 1e-9, -1, &text)); /* all of it: the parts are one after the other */
    t->bytes = sn_text_train_bytes(text) + sn_text_held_bytes(text);
    sn_time began = sn_now();
    sn_status status = sn_token_train(sn_text_train(text), t->bytes, vocab, ret);
    t->train_ns = sn_now() - began;
    sn_text_close(text);
    if (status >= 0 && sn_token_vocab(*ret) < vocab)
        sn_log(SN_LOG_WARN, "%s gives %lld tokens, %lld were asked for", data,
               (long long) sn_token_vocab(*ret), (long long) vocab);
    return status;
}

static sn_status write_text(const char *path, sn_str *text)
{
    sn_status status = sn_file_write(path, sn_str_get(text), text->len);
    sn_str_clear(text);
    return status;
}

static sn_status write_folder(const sn_token *token, const char *dir, sn_arena *arena)
{
    sn_str text = {0};
    SN_TRY(sn_dir_create(dir));
    sn_token_write(token, &text);
    sn_status status = write_text(sn_arena_printf(arena, "%s/tokenizer.json", dir), &text);
    sn_token_write_vocab(token, &text);
    if (status >= 0)
        status = write_text(sn_arena_printf(arena, "%s/vocab.json", dir), &text);
    sn_token_write_merges(token, &text);
    if (status >= 0)
        status = write_text(sn_arena_printf(arena, "%s/merges.txt", dir), &text);
    sn_str_done(&text);
    return status;
}

static sn_status write_tokenizer(const sn_token *token, const char *path, sn_arena *arena)
{
    struct stat st;
    size_t n = strlen(path);
    sn_str text = {0};
    if ((!stat(path, &st) && S_ISDIR(st.st_mode)) || (n && path[n - 1] == '/'))
        return write_folder(token, path, arena);
    sn_token_write(token, &text);
    sn_status status = write_text(path, &text);
    sn_str_done(&text);
    return status;
}

/* ---- applying ---- */

typedef struct printer {
    bool quiet;
    int64_t ids;
} printer;

static void print_ids(void *ctx, const int32_t *id, int64_t count)
{
    printer *p = ctx;
    for (int64_t i = 0; i < count && !p->quiet; i++)
        printf("%d%c", id[i], (p->ids + i + 1) % IDS_A_LINE ? ' ' : '\n');
    p->ids += count;
}

static sn_status encode(sn_token *token, const char *path, bool quiet, told *t)
{
    sn_text *text;
    printer p = {.quiet = quiet};
    SN_TRY(sn_text_open(path, 1e-9, -1, &text));
    t->bytes = sn_text_train_bytes(text) + sn_text_held_bytes(text);
    sn_time began = sn_now();
    sn_token_encode(token, sn_text_train(text), t->bytes, print_ids, &p);
    t->encode_ns = sn_now() - began;
    t->ids = p.ids;
    sn_text_close(text);
    if (!quiet && p.ids % IDS_A_LINE)
        putchar('\n');
    return fflush(stdout) ? sn_fail(SN_EIO, "cannot write the ids: %s", strerror(errno)) : SN_OK;
}

static sn_status decode(const sn_token *token, const char *path)
{
    char *text, *save = NULL;
    size_t bytes;
    SN_TRY(sn_file_read(path, (size_t) 1 << 32, &text, &bytes));
    sn_status status = SN_OK;
    for (char *word = strtok_r(text, " \t\r\n", &save); word && status >= 0;
         word = strtok_r(NULL, " \t\r\n", &save)) {
        int64_t id, n;
        if (!sn_str_to_int(word, &id) || id < 0 || id >= sn_token_vocab(token)) {
            status = sn_fail(SN_EINVAL, "%s: '%.40s' is no id from 0 to %lld", path, word,
                             (long long) sn_token_vocab(token) - 1);
            break;
        }
        const uint8_t *piece = sn_token_text(token, id, &n);
        fwrite(piece, 1, (size_t) n, stdout);
    }
    free(text);
    SN_TRY(status);
    return fflush(stdout) ? sn_fail(SN_EIO, "cannot write the text: %s", strerror(errno)) : SN_OK;
}

/* ---- the verb ---- */

static void say_json(const told *t)
{
    json_t *root =
        json_pack("{s:I, s:I}", "vocab", (json_int_t) t->vocab, "bytes", (json_int_t) t->bytes);
    if (t->out)
        json_object_set_new(root, "out", json_string(t->out));
    if (t->train_ns)
        json_object_set_new(root, "train_s", json_real((double) t->train_ns * 1e-9));
    if (t->encode_ns) {
        json_object_set_new(root, "tokens", json_integer((json_int_t) t->ids));
        json_object_set_new(root, "bytes_per_s",
                            json_real((double) t->bytes * 1e9 / (double) t->encode_ns));
    }
    json_dumpf(root, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(root);
}

static void say_trained(const told *t)
{
    char a[32], b[32];
    printf("%lld tokens learnt from %s in %s", (long long) t->vocab,
           sn_fmt_bytes(a, (double) t->bytes), sn_fmt_ns(b, (double) t->train_ns));
    printf(t->out ? ": %s\n" : "\n", t->out);
}

static sn_status check_flags(const sn_args *args)
{
    bool train = sn_args_get(args, "train"), use = sn_args_get(args, "tokenizer");
    bool encodes = sn_args_get(args, "encode"), decodes = sn_args_get(args, "decode");
    if (train == use)
        return sn_fail(SN_EINVAL, "give either --train FILE or --tokenizer FILE");
    if (use && sn_args_get(args, "vocab"))
        return sn_fail(SN_EINVAL, "--vocab is for --train: a tokenizer has its vocabulary");
    if (encodes && decodes)
        return sn_fail(SN_EINVAL, "give either --encode FILE or --decode FILE");
    if (!encodes && !decodes && !sn_args_get(args, "out"))
        return sn_fail(SN_EINVAL, "nothing is asked for: give --out PATH, --encode or --decode");
    return SN_OK;
}

static sn_status tokenize(const sn_args *args, sn_arena *arena)
{
    const char *data = sn_args_get(args, "train"), *in = sn_args_get(args, "encode");
    const char *ids = sn_args_get(args, "decode");
    bool json = sn_args_get(args, "json") != NULL;
    int64_t vocab = 1024;
    sn_token *token;
    told t = {.out = sn_args_get(args, "out")};
    SN_TRY(check_flags(args));
    if (!sn_args_int(args, "vocab", 257, SN_TOKEN_VOCAB_MAX, &vocab))
        return sn_fail(SN_EINVAL, "see supernode tokenize --help");
    SN_TRY(data ? learn(data, vocab, arena, &t, &token)
                : sn_tokenizer_open(sn_args_get(args, "tokenizer"), &token));
    t.vocab = sn_token_vocab(token);
    sn_status status = t.out ? write_tokenizer(token, t.out, arena) : SN_OK;
    if (status >= 0 && in)
        status = encode(token, in, json, &t);
    if (status >= 0 && ids)
        status = decode(token, ids);
    if (status >= 0 && json)
        say_json(&t);
    else if (status >= 0 && data && !in && !ids)
        say_trained(&t);
    sn_token_free(token);
    return status;
}

int sn_cmd_tokenize(const sn_args *args)
{
    sn_arena *arena = sn_arena_create();
    sn_status status = tokenize(args, arena);
    sn_arena_free(arena);
    return status < 0 ? sn_exit_with("tokenize", status) : SN_EXIT_OK;
}
