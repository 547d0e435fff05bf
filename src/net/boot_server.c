/* SPDX-License-Identifier: Apache-2.0
 *
 * The launcher's side of the boot exchange: bytes in, bytes out, no waiting, no sockets.
 *
 * Invariants
 *  1. At most one all-gather is being collected and one answer being sent: nobody can be further,
 *     since a rank's next blob needs the last answer. A rank that is further breaks the protocol.
 *  2. The answer is one buffer that all ranks' cursors walk; short notes wait in a queue per rank
 *     and go out only between whole messages. */
#include "net/boot.h"

#include <stdlib.h>
#include <string.h>

typedef struct served {
    sn_str in;        /* bytes of a message not whole yet */
    char *blob;       /* for all-gather `seq`, NULL while it has not come */
    size_t bytes;     /* of it */
    size_t all_sent;  /* of the answer; all.len when done */
    sn_str note;      /* MISSING and LEFT messages */
    size_t note_sent; /* of the note queue */
    size_t note_end;  /* end of the message that note_sent is within */
    sn_status broken;
    bool left;
} served;

struct sn_boot_server {
    int world;
    uint32_t seq; /* being collected */
    int here;     /* blobs that have come */
    sn_str all;   /* the last answer, head included */
    served *rank; /* [world] */
};

sn_boot_server *sn_boot_server_create(int world)
{
    SN_ASSERT(world > 0);
    sn_boot_server *s = sn_alloc(sizeof *s);
    s->world = world;
    s->rank = sn_alloc((size_t) world * sizeof *s->rank);
    return s;
}

void sn_boot_server_free(sn_boot_server *s)
{
    if (!s)
        return;
    for (int r = 0; r < s->world; r++) {
        sn_str_done(&s->rank[r].in);
        sn_str_done(&s->rank[r].note);
        free(s->rank[r].blob);
    }
    sn_str_done(&s->all);
    free(s->rank);
    free(s);
}

static void add_note(served *w, uint32_t kind, uint32_t seq, const void *data, size_t bytes)
{
    boot_head head = {BOOT_MAGIC, kind, seq, (uint32_t) bytes};
    sn_str_add_n(&w->note, (const char *) &head, sizeof head);
    if (bytes)
        sn_str_add_n(&w->note, data, bytes);
}

/* Everyone's blob is here: write the answer, start the next round. */
static void finish_round(sn_boot_server *s)
{
    boot_head head = {BOOT_MAGIC, BOOT_ALL, s->seq, 0};
    sn_str_clear(&s->all);
    sn_str_add_n(&s->all, (const char *) &head, sizeof head);
    for (int r = 0; r < s->world; r++) {
        served *w = &s->rank[r];
        uint32_t n = (uint32_t) w->bytes;
        sn_str_add_n(&s->all, (const char *) &n, sizeof n);
        sn_str_add_n(&s->all, w->blob, w->bytes);
        free(w->blob);
        w->blob = NULL;
        w->all_sent = 0;
    }
    head.bytes = (uint32_t) (s->all.len - sizeof head);
    memcpy(s->all.data, &head, sizeof head);
    s->here = 0;
    s->seq++;
}

static sn_status take_blob(sn_boot_server *s, int rank, const boot_head *head, const char *data)
{
    served *w = &s->rank[rank];
    if (head->seq != s->seq || w->blob || w->all_sent < s->all.len)
        return sn_fail(SN_ECORRUPT, "rank %d sent a blob for all-gather #%u while #%u is open",
                       rank, head->seq, s->seq);
    w->blob = sn_alloc((size_t) head->bytes + 1);
    memcpy(w->blob, data, head->bytes);
    w->bytes = head->bytes;
    if (++s->here == s->world)
        finish_round(s);
    return SN_OK;
}

static void answer_who(sn_boot_server *s, int rank, uint32_t seq)
{
    if (seq != s->seq || s->rank[rank].note.len > BOOT_BLOB_MAX)
        return; /* asked before the answer arrived, or too often */
    sn_str ranks = {0};
    for (uint32_t r = 0; r < (uint32_t) s->world; r++)
        if (!s->rank[r].blob)
            sn_str_add_n(&ranks, (const char *) &r, sizeof r);
    add_note(&s->rank[rank], BOOT_MISSING, seq, ranks.data, ranks.len);
    sn_str_done(&ranks);
}

static sn_status take_message(sn_boot_server *s, int rank, const boot_head *head, const char *data)
{
    if (head->kind == BOOT_BLOB)
        return take_blob(s, rank, head, data);
    answer_who(s, rank, head->seq);
    return SN_OK;
}

static sn_status check_head(int rank, const boot_head *head)
{
    if (head->magic != BOOT_MAGIC)
        return sn_fail(SN_ECORRUPT, "rank %d sent what is no boot message (magic %08x)", rank,
                       head->magic);
    if (head->kind != BOOT_BLOB && head->kind != BOOT_WHO)
        return sn_fail(SN_ECORRUPT, "rank %d sent a boot message of unknown kind %u", rank,
                       head->kind);
    if (head->bytes > (head->kind == BOOT_BLOB ? BOOT_BLOB_MAX : 0))
        return sn_fail(SN_ECORRUPT, "rank %d announced a boot message of %u bytes", rank,
                       head->bytes);
    return SN_OK;
}

sn_status sn_boot_server_feed(sn_boot_server *s, int rank, const void *data, size_t bytes)
{
    if (rank < 0 || rank >= s->world)
        return sn_fail(SN_EINVAL, "boot server: rank %d of a world of %d", rank, s->world);
    served *w = &s->rank[rank];
    if (w->broken < 0)
        return sn_fail(w->broken, "rank %d sent a malformed boot message before", rank);
    sn_str_add_n(&w->in, data, bytes);
    size_t at = 0;
    boot_head head;
    while (w->broken >= 0 && w->in.len - at >= sizeof head) {
        memcpy(&head, w->in.data + at, sizeof head);
        w->broken = check_head(rank, &head);
        if (w->broken < 0 || w->in.len - at - sizeof head < head.bytes)
            break;
        w->broken = take_message(s, rank, &head, w->in.data + at + sizeof head);
        at += sizeof head + head.bytes;
    }
    if (at) {
        memmove(w->in.data, w->in.data + at, w->in.len - at + 1);
        w->in.len -= at;
    }
    return w->broken;
}

void sn_boot_server_left(sn_boot_server *s, int rank)
{
    if (rank < 0 || rank >= s->world || s->rank[rank].left)
        return;
    s->rank[rank].left = true;
    uint32_t who = (uint32_t) rank;
    for (int r = 0; r < s->world; r++)
        if (!s->rank[r].left)
            add_note(&s->rank[r], BOOT_LEFT, 0, &who, sizeof who);
}

size_t sn_boot_server_pending(const sn_boot_server *s, int rank, const void **ret_data)
{
    const served *w = &s->rank[rank];
    if (w->note_sent == w->note_end && w->all_sent < s->all.len) { /* not within a note */
        *ret_data = s->all.data + w->all_sent;
        return s->all.len - w->all_sent;
    }
    if (w->note_sent == w->note.len)
        return 0;
    boot_head head;
    size_t end = w->note_end;
    if (w->note_sent == end) {
        memcpy(&head, w->note.data + end, sizeof head);
        end += sizeof head + head.bytes;
    }
    *ret_data = w->note.data + w->note_sent;
    return end - w->note_sent;
}

void sn_boot_server_sent(sn_boot_server *s, int rank, size_t n)
{
    const void *data;
    SN_ASSERT(n <= sn_boot_server_pending(s, rank, &data));
    served *w = &s->rank[rank];
    if (!n)
        return;
    if (w->note_sent == w->note_end && w->all_sent < s->all.len) {
        w->all_sent += n;
        return;
    }
    if (w->note_sent == w->note_end) {
        boot_head head;
        memcpy(&head, w->note.data + w->note_end, sizeof head);
        w->note_end += sizeof head + head.bytes;
    }
    w->note_sent += n;
    if (w->note_sent == w->note.len) {
        sn_str_clear(&w->note);
        w->note_sent = w->note_end = 0;
    }
}

void sn_boot_server_missing(const sn_boot_server *s, sn_str *out)
{
    bool *here = sn_alloc((size_t) s->world);
    for (int r = 0; r < s->world; r++)
        here[r] = s->rank[r].blob != NULL;
    sn_str_add(out, "waiting for ");
    boot_name_missing(here, s->world, out);
    free(here);
}
