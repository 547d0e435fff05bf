/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* Reads of DIRECT bytes and more skip the window; the disk is asked AHEAD early. */
enum { WINDOW = 1 << 20, DIRECT = 1 << 18, AHEAD = 16 << 20 };

const char *ckpt_show(char out[80], const char *name)
{
    int n = 0;
    for (; name[n] && n < 72; n++)
        out[n] = (unsigned char) name[n] < 0x20 || name[n] == 0x7f ? '?' : name[n];
    while (name[n] && n && ((unsigned char) name[n] & 0xc0) == 0x80)
        n--; /* not in the middle of a character */
    strcpy(out + n, name[n] ? "…" : "");
    return out;
}

void ckpt_step_dir(char out[CKPT_STEP_DIR], int64_t step)
{
    snprintf(out, CKPT_STEP_DIR, "step-%08lld", (long long) step);
}

bool ckpt_file_name_ok(const char *name)
{
    size_t n = strlen(name);
    return n > 0 && n < 256 && *name != '.' && !strchr(name, '/') && !strchr(name, '\\') &&
           !strstr(name, "..");
}

sn_status ckpt_reader_open(const char *path, ckpt_reader *ret)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a fifo must not hang us */
    if (fd < 0)
        return sn_file_failed("read", path);
    struct stat st;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        close(fd);
        return sn_fail(SN_ECORRUPT, "%s is not a regular file", path);
    }
    unsigned char *window = malloc(WINDOW);
    if (!window) {
        close(fd);
        return sn_fail(SN_ENOMEM, "no memory to read %s", path);
    }
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    *ret = (ckpt_reader){.fd = fd, .path = path, .bytes = (uint64_t) st.st_size, .window = window};
    return SN_OK;
}

void ckpt_reader_close(ckpt_reader *r)
{
    if (!r->window)
        return;
    close(r->fd);
    free(r->window);
    r->window = NULL;
}

static sn_status read_at(ckpt_reader *r, uint64_t offset, uint64_t bytes, void *to)
{
    for (uint64_t got = 0; got < bytes;) {
        ssize_t n = pread(r->fd, (char *) to + got, bytes - got, (off_t) (offset + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return sn_file_failed("read", r->path);
        if (n == 0)
            return sn_fail(SN_ECORRUPT, "%s ends at byte %llu, more was expected", r->path,
                           (unsigned long long) (offset + got));
        got += (uint64_t) n;
    }
    return SN_OK;
}

sn_status ckpt_reader_get(ckpt_reader *r, uint64_t offset, uint64_t bytes, void *to)
{
    if (bytes >= DIRECT)
        return read_at(r, offset, bytes, to);
    if (offset < r->at || offset + bytes > r->at + r->got) {
        uint64_t left = offset < r->bytes ? r->bytes - offset : 0;
        r->got = 0;
        SN_TRY(read_at(r, offset, SN_MAX(bytes, SN_MIN(left, (uint64_t) WINDOW)), r->window));
        r->at = offset;
        r->got = SN_MAX(bytes, SN_MIN(left, (uint64_t) WINDOW));
    }
    memcpy(to, r->window + (offset - r->at), bytes);
    return SN_OK;
}

sn_status ckpt_reader_hash(ckpt_reader *r, uint64_t *ret)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state || XXH3_64bits_reset(state) == XXH_ERROR) {
        XXH3_freeState(state);
        return sn_fail(SN_ENOMEM, "no memory for a checksum");
    }
    sn_status status = SN_OK;
    r->got = 0;
    for (uint64_t at = 0; at < r->bytes && status >= 0; at += WINDOW) {
        uint64_t n = SN_MIN(r->bytes - at, (uint64_t) WINDOW);
        if (at % AHEAD == 0) /* the disk works on while these are hashed */
            posix_fadvise(r->fd, (off_t) (at + (at ? AHEAD : 0)), at ? AHEAD : 2 * AHEAD,
                          POSIX_FADV_WILLNEED);
        status = read_at(r, at, n, r->window);
        if (status >= 0)
            XXH3_64bits_update(state, r->window, n);
    }
    if (status >= 0)
        *ret = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return status;
}

sn_status ckpt_reader_header(ckpt_reader *r, sn_arena *arena, ckpt_entry **ret, int *ret_count,
                             uint64_t *ret_data_at)
{
    unsigned char first[8] = {0};
    uint64_t length;
    if (r->bytes >= sizeof first)
        SN_TRY(read_at(r, 0, sizeof first, first));
    SN_TRY(ckpt_header_length(first, r->bytes, &length));
    char *json = malloc(length + 1);
    if (!json)
        return sn_fail(SN_ENOMEM, "no memory for a header of %llu bytes",
                       (unsigned long long) length);
    sn_status status = read_at(r, sizeof first, length, json);
    if (status >= 0)
        status = ckpt_header_parse(json, length, r->bytes - 8 - length, arena, ret, ret_count);
    free(json);
    if (status >= 0)
        *ret_data_at = 8 + length;
    return status;
}
