/* SPDX-License-Identifier: Apache-2.0
 *
 * status — how every function says how it went.
 *
 * A function that can fail returns sn_status: 0 is success, a positive value means "not yet, call
 * again", a negative one "failed". The place that decides that something is an error writes the
 * sentence, once, with sn_fail(); callers may put a prefix before it with sn_fail_in(); whoever
 * reports it reads sn_errmsg().
 *
 * Invariants
 *  1. On failure no ret_ output is touched.
 *  2. The text belongs to the thread, holds 511 bytes at most, and lives until that thread's next
 *     sn_fail().
 *  3. Nothing that a user, a peer or a device does ends in SN_ASSERT; that is for bugs only. */
#ifndef SN_BASE_STATUS_H
#define SN_BASE_STATUS_H

#include <stdbool.h>

/* Each code answers "what should the caller do?": name, value, meaning. */
#define SN_STATUS_LIST(X)                                                                          \
    X(SN_OK, 0, "done")                                                                            \
    X(SN_AGAIN, 1, "no room now, call again after something completed")                            \
    X(SN_PENDING, 2, "started, not finished")                                                      \
    X(SN_EINVAL, -1, "the request itself is wrong: correct it")                                    \
    X(SN_ENOMEM, -2, "no memory for a size that a user or a peer chose")                           \
    X(SN_EIO, -3, "the system refused a read, write or call")                                      \
    X(SN_ENOTFOUND, -4, "no such thing")                                                           \
    X(SN_EEXIST, -5, "it is there already")                                                        \
    X(SN_ETIME, -6, "the deadline passed")                                                         \
    X(SN_EPEER, -7, "a peer died or cannot be reached; the text names it")                         \
    X(SN_EEPOCH, -8, "the job moved to a new epoch: leave and rejoin")                             \
    X(SN_ECANCEL, -9, "somebody asked to stop")                                                    \
    X(SN_ENOTSUP, -10, "not offered for this combination; the text says what is")                  \
    X(SN_ECORRUPT, -11, "stored data does not match its checksum or form")                         \
    X(SN_EMISMATCH, -12, "two ranks disagree; the text names both")                                \
    X(SN_EFIT, -13, "cannot be satisfied with what there is; the text says what would fit")        \
    X(SN_ENOSPC, -14, "the disk is full")                                                          \
    X(SN_EPERM, -15, "not permitted")                                                              \
    X(SN_EFAIL, -16, "the job ran and failed")

typedef enum sn_status {
#define SN_STATUS_ENUM(name, value, meaning) name = (value),
    SN_STATUS_LIST(SN_STATUS_ENUM)
#undef SN_STATUS_ENUM
} sn_status;

/* Record the sentence for this thread and return `status`. No full stop, no newline, lower case. */
sn_status sn_fail(sn_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Put "prefix: " before the current sentence; returns `status` unchanged. */
sn_status sn_fail_in(sn_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

const char *sn_errmsg(void);                  /* the thread's last sentence, "" if none */
const char *sn_status_name(sn_status status); /* "SN_EPEER"; "SN_?" for a value not in the list */
const char *sn_status_meaning(sn_status status);

/* Leave the function when `expr` failed; a positive status passes on. */
#define SN_TRY(expr)                                                                               \
    do {                                                                                           \
        sn_status sn_try_status_ = (expr);                                                         \
        if (sn_try_status_ < 0)                                                                    \
            return sn_try_status_;                                                                 \
    } while (0)

/* The same with cleanup: needs a local `sn_status status`. */
#define SN_TRY_OR(expr, label)                                                                     \
    do {                                                                                           \
        status = (expr);                                                                           \
        if (status < 0)                                                                            \
            goto label;                                                                            \
    } while (0)

/* Bugs only; stays on in release. */
#define SN_ASSERT(cond) ((cond) ? (void) 0 : sn_assert_failed(#cond, __FILE__, __LINE__, __func__))
_Noreturn void sn_assert_failed(const char *cond, const char *file, int line, const char *func);

#endif
