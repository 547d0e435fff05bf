/* SPDX-License-Identifier: Apache-2.0
 *
 * tokens — the text as ids.
 *
 *   no tokenizer   a byte is its id: the text itself
 *   a tokenizer    [ header | train ids … | held-out ids … ]  in a file: 2 bytes each up to a
 *                  vocabulary of 65,536, else 4; written once, beside the text, then mapped
 *
 * The parts are cut in bytes before they are encoded, so that every tokenizer is judged on the same
 * held-out bytes. The file's name follows from text and tokenizer: it is right or not there. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "os/os.h"
#include "train/parts.h"

#define FILE_BYTES_MAX ((size_t) 256 << 20) /* of a tokenizer's file */

typedef struct head {
    char magic[8];
    uint64_t fingerprint, vocab, width, train, held, text_bytes;
    uint64_t sum; /* XXH3 of the ids */
} head;

_Static_assert(sizeof(head) == 64, "one line of the file");

struct sn_tokens {
    sn_text *text;
    sn_token *token; /* NULL: bytes */
    sn_map map;
    head head;
    const uint8_t *ids; /* in map */
};

/* ---- the tokenizer's files ---- */

static bool is_file(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISREG(st.st_mode);
}

static sn_status read_json(const char *path, sn_token **ret)
{
    char *text;
    size_t bytes;
    SN_TRY(sn_file_read(path, FILE_BYTES_MAX, &text, &bytes));
    sn_status status = sn_token_read(text, bytes, path, ret);
    free(text);
    return status;
}

static sn_status read_pair(const char *vocab, const char *merges, sn_token **ret)
{
    char *v, *m;
    size_t v_bytes, m_bytes;
    SN_TRY(sn_file_read(vocab, FILE_BYTES_MAX, &v, &v_bytes));
    sn_status status = sn_file_read(merges, FILE_BYTES_MAX, &m, &m_bytes);
    if (status >= 0) {
        status = sn_token_read_pair(v, v_bytes, m, m_bytes, vocab, ret);
        free(m);
    }
    free(v);
    return status;
}

sn_status sn_tokenizer_open(const char *path, sn_token **ret)
{
    sn_arena *arena = sn_arena_create();
    const char *json = sn_arena_printf(arena, "%s/tokenizer.json", path);
    const char *vocab = sn_arena_printf(arena, "%s/vocab.json", path);
    const char *merges = sn_arena_printf(arena, "%s/merges.txt", path);
    struct stat st;
    sn_status status;
    if (stat(path, &st))
        status = sn_fail(SN_ENOTFOUND,
                         "tokenizer %s cannot be read: %s; name a tokenizer.json, or a folder with "
                         "that or with vocab.json and merges.txt",
                         path, strerror(errno));
    else if (!S_ISDIR(st.st_mode))
        status = read_json(path, ret);
    else if (is_file(json))
        status = read_json(json, ret);
    else if (is_file(vocab) && is_file(merges))
        status = read_pair(vocab, merges, ret);
    else
        status =
            sn_fail(SN_ENOTFOUND,
                    "tokenizer %s has neither tokenizer.json nor vocab.json and merges.txt", path);
    sn_arena_free(arena);
    return status;
}

/* ---- writing the file of ids ---- */

typedef struct writer {
    FILE *out;
    uint64_t width, count;
    XXH3_state_t *sum;
    bool failed;
} writer;

static void put_ids(void *ctx, const int32_t *id, int64_t count)
{
    writer *w = ctx;
    uint16_t narrow[256];
    w->count += (uint64_t) count;
    while (count > 0 && !w->failed) {
        int64_t n = SN_MIN(count, (int64_t) SN_COUNT(narrow));
        const void *from = id;
        for (int64_t i = 0; w->width == 2 && i < n; i++)
            narrow[i] = (uint16_t) id[i];
        if (w->width == 2)
            from = narrow;
        XXH3_64bits_update(w->sum, from, (size_t) n * w->width);
        w->failed = fwrite(from, w->width, (size_t) n, w->out) != (size_t) n;
        id += n;
        count -= n;
    }
}

static sn_status write_ids(sn_tokens *t, const char *path, int fd)
{
    writer w = {.out = fdopen(fd, "w"), .width = t->head.width, .sum = XXH3_createState()};
    if (!w.out || !w.sum) {
        XXH3_freeState(w.sum);
        if (w.out)
            fclose(w.out);
        else
            close(fd);
        return sn_fail(SN_ENOMEM, "no memory to write %s", path);
    }
    XXH3_64bits_reset(w.sum);
    w.failed = fwrite(&t->head, sizeof t->head, 1, w.out) != 1;
    sn_token_encode(t->token, sn_text_train(t->text), sn_text_train_bytes(t->text), put_ids, &w);
    t->head.train = w.count;
    sn_token_encode(t->token, sn_text_held(t->text), sn_text_held_bytes(t->text), put_ids, &w);
    t->head.held = w.count - t->head.train;
    t->head.sum = XXH3_64bits_digest(w.sum);
    XXH3_freeState(w.sum);
    w.failed = w.failed || fseek(w.out, 0, SEEK_SET) ||
               fwrite(&t->head, sizeof t->head, 1, w.out) != 1 || fflush(w.out) || fsync(fd);
    sn_status status = w.failed ? sn_file_failed("write", path) : SN_OK;
    fclose(w.out);
    return status;
}

static sn_status make_file(sn_tokens *t, const char *path)
{
    sn_str part = {0};
    sn_str_printf(&part, "%s.%d", path, (int) getpid());
    int fd = open(sn_str_get(&part), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    sn_status status;
    if (fd < 0) {
        status = sn_file_failed("write", sn_str_get(&part));
        sn_fail_in(status, "the ids of a text are kept in a file (data_cache: DIR says where)");
    } else {
        status = write_ids(t, sn_str_get(&part), fd);
        if (status >= 0 && rename(sn_str_get(&part), path))
            status = sn_file_failed("write", path);
        if (status < 0)
            unlink(sn_str_get(&part));
    }
    sn_str_done(&part);
    return status;
}

/* ---- reading it ---- */

/* SN_ECORRUPT: it is not what it has to be, so make it anew. */
static sn_status map_file(sn_tokens *t, const char *path)
{
    sn_map map;
    head h;
    SN_TRY(sn_file_map(path, &map));
    bool right = map.bytes >= sizeof h;
    if (right) {
        memcpy(&h, map.data, sizeof h);
        uint64_t ids = (map.bytes - sizeof h) / t->head.width;
        right = !memcmp(h.magic, t->head.magic, 8) && h.fingerprint == t->head.fingerprint &&
                h.vocab == t->head.vocab && h.width == t->head.width && h.train <= ids &&
                h.held == ids - h.train && map.bytes == sizeof h + ids * h.width;
    }
    const uint8_t *at = (const uint8_t *) map.data + sizeof h;
    if (right && map.bytes <= (size_t) TRAIN_COPY_BYTES_MAX)
        right = XXH3_64bits(at, map.bytes - sizeof h) == h.sum;
    if (!right) {
        sn_file_unmap(&map);
        return sn_fail(SN_ECORRUPT, "%s is not what was written", path);
    }
    t->map = map;
    t->head = h;
    t->ids = at;
    return SN_OK;
}

static void name_file(const sn_tokens *t, const sn_job *job, sn_str *out)
{
    const char *slash = strrchr(job->data, '/'), *base = slash ? slash + 1 : job->data;
    struct stat st;
    bool dir = !stat(job->data, &st) && S_ISDIR(st.st_mode);
    if (job->data_cache)
        sn_str_add(out, job->data_cache);
    else if (dir)
        sn_str_add(out, job->data);
    else
        sn_str_printf(out, "%.*s", slash ? (int) (slash - job->data) : 1, slash ? job->data : ".");
    sn_str_printf(out, "/.%s.%016llx.tokens", dir || !*base ? "text" : base,
                  (unsigned long long) t->head.fingerprint);
}

/* One of the processes of a host writes, the others wait for it. */
static sn_status use_file(sn_tokens *t, const char *path)
{
    if (is_file(path) && map_file(t, path) >= 0)
        return SN_OK;
    sn_str dir = {0};
    sn_str_add_n(&dir, path, (size_t) (strrchr(path, '/') - path));
    int lock = open(dir.len ? sn_str_get(&dir) : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    sn_str_done(&dir);
    if (lock < 0)
        return sn_file_failed("use the directory of", path);
    while (flock(lock, LOCK_EX) && errno == EINTR)
        continue;
    sn_status status = is_file(path) ? map_file(t, path) : SN_ENOTFOUND;
    if (status < 0) {
        status = make_file(t, path);
        if (status >= 0)
            status = map_file(t, path);
    }
    close(lock);
    return status;
}

static sn_status encode(sn_tokens *t, const sn_job *job)
{
    uint64_t text = sn_text_fingerprint(t->text), token = sn_token_fingerprint(t->token);
    t->head = (head){.magic = "SNTOKEN",
                     .vocab = (uint64_t) sn_token_vocab(t->token),
                     .text_bytes =
                         (uint64_t) (sn_text_train_bytes(t->text) + sn_text_held_bytes(t->text))};
    t->head.width = t->head.vocab <= 65536 ? 2 : 4;
    t->head.fingerprint = sn_hash64(text, token, (uint64_t) sn_text_held_bytes(t->text));
    sn_str path = {0};
    name_file(t, job, &path);
    sn_status status = use_file(t, sn_str_get(&path));
    sn_str_done(&path);
    return status;
}

static sn_status check(const sn_tokens *t, const sn_job *job)
{
    int64_t vocab = t->token ? sn_token_vocab(t->token) : 256, sequence = job->gpt.sequence;
    int64_t least = SN_MIN(sn_tokens_train(t), sn_tokens_held(t));
    if (job->gpt.vocab < vocab)
        return sn_fail(SN_EFIT, "model.vocab is %lld, the tokenizer has %lld tokens",
                       (long long) job->gpt.vocab, (long long) vocab);
    if (least < sequence + 1)
        return sn_fail(
            SN_EINVAL,
            "data %s is too short: one of its parts has %lld tokens, one sample of model "
            "sequence %lld needs %lld: use a longer text or a shorter sequence",
            job->data, (long long) least, (long long) sequence, (long long) sequence + 1);
    return SN_OK;
}

sn_status sn_tokens_open(const sn_job *job, sn_tokens **ret)
{
    sn_tokens *t = sn_alloc(sizeof *t);
    int64_t least = job->tokenizer ? 1 : job->gpt.sequence; /* bytes that are surely needed */
    sn_status status = train_text_open(job->data, job->data_cache, job->held_out, least, &t->text);
    if (status >= 0 && job->tokenizer) {
        status = sn_tokenizer_open(job->tokenizer, &t->token);
        if (status >= 0)
            status = encode(t, job);
    }
    if (status >= 0)
        status = check(t, job);
    if (status < 0) {
        sn_tokens_close(t);
        return status;
    }
    *ret = t;
    return SN_OK;
}

void sn_tokens_close(sn_tokens *t)
{
    if (!t)
        return;
    if (t->map.data)
        sn_file_unmap(&t->map);
    sn_token_free(t->token);
    sn_text_close(t->text);
    free(t);
}

/* ---- looking ---- */

const sn_text *sn_tokens_text(const sn_tokens *t)
{
    return t->text;
}

sn_token *sn_tokens_tokenizer(const sn_tokens *t)
{
    return t->token;
}

int64_t sn_tokens_train(const sn_tokens *t)
{
    return t->token ? (int64_t) t->head.train : sn_text_train_bytes(t->text);
}

int64_t sn_tokens_held(const sn_tokens *t)
{
    return t->token ? (int64_t) t->head.held : sn_text_held_bytes(t->text);
}

bool sn_tokens_mapped(const sn_tokens *t)
{
    return t->token ? t->map.bytes > (size_t) TRAIN_COPY_BYTES_MAX : sn_text_mapped(t->text);
}

void sn_tokens_read(const sn_tokens *t, bool held, int64_t from, int64_t count, int32_t *to,
                    int64_t stride)
{
    if (!t->token) {
        const uint8_t *p = (held ? sn_text_held(t->text) : sn_text_train(t->text)) + from;
        for (int64_t i = 0; i < count; i++)
            to[i * stride] = p[i];
        return;
    }
    const uint8_t *p = t->ids + (uint64_t) (from + (held ? sn_tokens_train(t) : 0)) * t->head.width;
    if (t->head.width == 2)
        for (int64_t i = 0; i < count; i++)
            to[i * stride] = ((const uint16_t *) (const void *) p)[i];
    else
        for (int64_t i = 0; i < count; i++)
            to[i * stride] = ((const int32_t *) (const void *) p)[i];
}

int64_t sn_tokens_bytes(const sn_tokens *t, bool held, int64_t from, int64_t count)
{
    int64_t sum = 0, n;
    if (!t->token)
        return count;
    for (int64_t i = 0; i < count; i++) {
        int32_t id;
        sn_tokens_read(t, held, from + i, 1, &id, 1);
        sn_token_text(t->token, id, &n);
        sum += n;
    }
    return sum;
}

double sn_tokens_mean_bytes(const sn_tokens *t)
{
    return (double) sn_text_train_bytes(t->text) / (double) SN_MAX(1, sn_tokens_train(t));
}

uint64_t sn_tokens_fingerprint(const sn_tokens *t)
{
    return t->token ? t->head.fingerprint : sn_text_fingerprint(t->text);
}
