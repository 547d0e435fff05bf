/* SPDX-License-Identifier: Apache-2.0 */
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static sn_status from_errno(int code)
{
    switch (code) {
    case ENOENT:
    case ENOTDIR:
        return SN_ENOTFOUND;
    case EACCES:
    case EPERM:
    case EROFS:
        return SN_EPERM;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return SN_ENOSPC;
    case ENOMEM:
        return SN_ENOMEM;
    case EEXIST:
        return SN_EEXIST;
    case ENAMETOOLONG:
    case ELOOP:
        return SN_EINVAL;
    default:
        return SN_EIO;
    }
}

sn_status sn_file_failed(const char *verb, const char *path)
{
    int code = errno;
    return sn_fail(from_errno(code), "cannot %s %s: %s", verb, path, strerror(code));
}

static sn_status open_regular(const char *path, int *ret_fd, size_t *ret_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a fifo must not make us wait */
    if (fd < 0)
        return sn_file_failed("read", path);
    struct stat st;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        close(fd);
        return sn_fail(SN_EINVAL, "%s is not a regular file", path);
    }
    *ret_fd = fd;
    *ret_bytes = (size_t) st.st_size;
    return SN_OK;
}

static sn_status read_whole(int fd, const char *path, char *data, size_t bytes)
{
    for (size_t got = 0; got < bytes;) {
        ssize_t n = read(fd, data + got, bytes - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return sn_file_failed("read", path);
        if (n == 0)
            return sn_fail(SN_EIO, "%s became shorter while it was read", path);
        got += (size_t) n;
    }
    return SN_OK;
}

sn_status sn_file_read(const char *path, size_t bytes_max, char **ret, size_t *ret_bytes)
{
    int fd;
    size_t bytes;
    SN_TRY(open_regular(path, &fd, &bytes));
    if (bytes > bytes_max) {
        close(fd);
        return sn_fail(SN_EFIT, "%s has %zu bytes, at most %zu are read", path, bytes, bytes_max);
    }
    char *data = malloc(bytes + 1);
    sn_status status = data ? read_whole(fd, path, data, bytes)
                            : sn_fail(SN_ENOMEM, "no memory for the %zu bytes of %s", bytes, path);
    close(fd);
    if (status < 0) {
        free(data);
        return status;
    }
    data[bytes] = 0;
    *ret = data;
    *ret_bytes = bytes;
    return SN_OK;
}

sn_status sn_write_all(int fd, const void *data, size_t bytes)
{
    for (size_t put = 0; put < bytes;) {
        ssize_t n = write(fd, (const char *) data + put, bytes - put);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return sn_fail(from_errno(n ? errno : ENOSPC), "cannot write: %s",
                           strerror(n ? errno : ENOSPC));
        put += (size_t) n;
    }
    return SN_OK;
}

static sn_status sync_parent(const char *path)
{
    char parent[4096];
    snprintf(parent, sizeof parent, "%s", path);
    char *slash = strrchr(parent, '/');
    if (slash)
        slash[slash == parent] = 0;
    int fd = open(slash ? parent : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return sn_file_failed("open", parent);
    int bad = fsync(fd);
    close(fd);
    return bad ? sn_file_failed("sync", parent) : SN_OK;
}

sn_status sn_file_write(const char *path, const void *data, size_t bytes)
{
    char temporary[4096];
    if (snprintf(temporary, sizeof temporary, "%s.tmp", path) >= (int) sizeof temporary)
        return sn_fail(SN_EINVAL, "the path %.80s… is too long", path);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return sn_file_failed("write", temporary);
    sn_status status = sn_write_all(fd, data, bytes);
    if (status < 0)
        sn_fail_in(status, "%s", temporary);
    else if (fsync(fd))
        status = sn_file_failed("sync", temporary);
    if (close(fd) && status >= 0)
        status = sn_file_failed("close", temporary);
    if (status >= 0 && rename(temporary, path))
        status = sn_file_failed("rename to", path);
    if (status < 0) {
        unlink(temporary);
        return status;
    }
    return sync_parent(path);
}

sn_status sn_dir_create(const char *path)
{
    char part[4096];
    if (snprintf(part, sizeof part, "%s", path) >= (int) sizeof part)
        return sn_fail(SN_EINVAL, "the path %.80s… is too long", path);
    for (char *p = part + 1; *p; p++)
        if (*p == '/') {
            *p = 0;
            if (mkdir(part, 0755) && errno != EEXIST)
                return sn_file_failed("create", part);
            *p = '/';
        }
    if (mkdir(part, 0755) && errno != EEXIST)
        return sn_file_failed("create", part);
    struct stat st;
    if (stat(part, &st) || !S_ISDIR(st.st_mode))
        return sn_fail(SN_EEXIST, "%s exists and is not a directory", path);
    return SN_OK;
}

sn_status sn_dir_writable(const char *path)
{
    char probe[4096];
    if (snprintf(probe, sizeof probe, "%s/.writable-XXXXXX", path) >= (int) sizeof probe)
        return sn_fail(SN_EINVAL, "the path %.80s… is too long", path);
    int fd = mkostemp(probe, O_CLOEXEC);
    if (fd < 0)
        return sn_file_failed("write into", path);
    sn_status status = sn_write_all(fd, probe, sizeof probe);
    close(fd);
    unlink(probe);
    return status < 0 ? sn_fail_in(status, "%s", path) : SN_OK;
}

sn_status sn_file_map(const char *path, sn_map *ret)
{
    int fd;
    size_t bytes;
    SN_TRY(open_regular(path, &fd, &bytes));
    if (!bytes) {
        close(fd);
        return sn_fail(SN_EINVAL, "%s is empty", path);
    }
    void *data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (data == MAP_FAILED)
        return sn_file_failed("map", path);
    *ret = (sn_map){data, bytes};
    return SN_OK;
}

void sn_file_unmap(sn_map *map)
{
    if (map->data)
        munmap((void *) map->data, map->bytes);
    *map = (sn_map){0};
}
