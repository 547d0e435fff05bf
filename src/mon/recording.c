/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of a recorder's file → a recording. Nothing in them is believed: places, lengths, times
 * and texts are checked or bounded, and a record counts only if nobody wrote it meanwhile. */
#include "mon/mon.h"
#include "mon/recorder_file.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define MONO_MOST 1e18 /* ns; what is beyond is no time */
#define WALL_MOST 4e18
#define WORLD_MOST 65536

typedef struct clocks { /* ticks → ns */
    uint64_t ticks;
    double mono, rate;
} clocks;

typedef struct reading {
    const unsigned char *before, *data, *after;
    size_t bytes;
    sn_arena *arena;
    file_head head;
    file_say say;
    clocks clocks;
    const char *word[SN_RECORDER_WORDS];
    uint16_t turn[SN_RECORDER_GROUPS];
    sn_recording *out;
} reading;

/* A text field as a line of UTF-8. */
static const char *clean(sn_arena *arena, const char *field, size_t bytes)
{
    sn_str s = {0};
    sn_str_add_utf8(&s, field, strnlen(field, bytes));
    for (size_t i = 0; i < s.len; i++)
        if (s.data[i] == '\n' || s.data[i] == '\t')
            s.data[i] = ' ';
    const char *text = sn_arena_str(arena, sn_str_get(&s));
    sn_str_done(&s);
    return text;
}

/* ---- clocks ---- */

static sn_time bounded(double ns, double most)
{
    return (sn_time) (ns > most ? most : ns > 0 ? ns : 0); /* NaN too is 0 */
}

static sn_time time_of(const reading *r, uint64_t ticks)
{
    if (ticks == 0)
        return 0;
    double since = (double) (int64_t) (ticks - r->clocks.ticks) * r->clocks.rate;
    return bounded(r->clocks.mono + since, MONO_MOST);
}

/* The two points give the rate; the first alone a rough one. */
static void set_clocks(reading *r)
{
    const file_head *h = &r->head;
    const file_say *s = &r->say;
    double rough = h->ns_per_tick > 1e-3 && h->ns_per_tick < 1e6 ? h->ns_per_tick : 1;
    r->clocks = (clocks){h->ticks, (double) h->mono_ns, rough};
    if (s->ticks <= h->ticks || s->mono_ns <= h->mono_ns)
        return;
    double rate = ((double) s->mono_ns - (double) h->mono_ns) / (double) (s->ticks - h->ticks);
    if (fabs(rate / rough - 1) < 0.02)
        r->clocks = (clocks){s->ticks, (double) s->mono_ns, rate};
}

/* ---- head ---- */

static sn_status read_head(reading *r)
{
    file_head *h = &r->head;
    if (r->bytes < offsetof(file_all, record))
        return sn_fail(SN_ECORRUPT, "no flight recorder: %zu bytes, %zu at least", r->bytes,
                       offsetof(file_all, record));
    memcpy(h, r->data, sizeof(*h));
    memcpy(&r->say, r->data + offsetof(file_all, say), sizeof(r->say));
    if (h->magic != FILE_MAGIC)
        return sn_fail(SN_ECORRUPT, "no flight recorder: magic %08x", h->magic);
    if (h->version != FILE_VERSION || h->file_bytes != sizeof(file_all) ||
        h->record_bytes != sizeof(file_record))
        return sn_fail(SN_EMISMATCH, "flight recorder version %u, this program reads version %d",
                       h->version, FILE_VERSION);
    if (h->world < 1 || h->world > WORLD_MOST || h->rank < 0 || h->rank >= h->world)
        return sn_fail(SN_ECORRUPT, "flight recorder of rank %d of %d", h->rank, h->world);
    set_clocks(r);
    return SN_OK;
}

static void fill_head(reading *r)
{
    sn_recording *o = r->out;
    const file_head *h = &r->head;
    const file_say *s = &r->say;
    o->rank = h->rank;
    o->world = h->world;
    o->host = clean(r->arena, h->host, sizeof(h->host));
    o->boot = h->boot;
    o->attempt = h->attempt;
    o->created = bounded((double) h->mono_ns, MONO_MOST);
    o->to_wall = bounded((double) h->wall_ns, WALL_MOST) - o->created;
    o->alive = s->left ? SN_ALIVE_LEFT : SN_ALIVE_UNKNOWN;
    o->step = s->step;
    o->doing = clean(r->arena, s->doing, sizeof(s->doing));
    o->doing_since = time_of(r, s->doing_ticks);
    o->left_status = (sn_status) s->left_status;
    o->left_why = clean(r->arena, s->why, sizeof(s->why));
    o->wait_for = s->wait_for >= 0 && s->wait_for < h->world ? s->wait_for : -1;
    o->wait_since = time_of(r, s->wait_ticks);
    o->last = SN_MAX(SN_MAX(o->created, time_of(r, s->ticks)), SN_MAX(o->doing_since, 0));
    o->last = SN_MAX(o->last, o->wait_since);
}

/* ---- names ---- */

static void read_words(reading *r)
{
    const unsigned char *from = r->data + offsetof(file_all, word);
    for (int i = 0; i < SN_RECORDER_WORDS; i++) {
        file_word w;
        memcpy(&w, from + (size_t) i * sizeof(w), sizeof(w));
        r->word[i] = clean(r->arena, w.text, sizeof(w.text));
    }
}

static void read_group(reading *r, int at)
{
    file_group g;
    memcpy(&g, r->data + offsetof(file_all, group) + (size_t) at * sizeof(g), sizeof(g));
    sn_recorded_group *o = &r->out->group[at];
    o->name = clean(r->arena, g.name, sizeof(g.name));
    o->key = g.key;
    o->size = SN_MAX(1, SN_MIN(g.size, WORLD_MOST));
    o->me = g.me;
    o->posted = g.posted;
    o->done = g.done;
    r->turn[at] = (uint16_t) g.turn;
    if (g.key == 0)
        return;
    int *member = SN_NEW_N(r->arena, int, SN_RECORDER_MEMBERS);
    for (int i = 0; i < o->size && i < SN_RECORDER_MEMBERS; i++)
        if (g.member[i] >= 0 && g.member[i] < r->head.world)
            member[o->listed++] = g.member[i];
    o->member = member;
}

/* ---- records ---- */

static size_t record_at(size_t i)
{
    return offsetof(file_all, record) + i * sizeof(file_record);
}

typedef struct found {
    uint64_t number;
    size_t at; /* offset in the image */
} found;

/* The number of the record at place i, 0 when there is none or it is being written. */
static uint64_t number_in(const reading *r, const unsigned char *image, size_t i)
{
    size_t at = record_at(i);
    uint32_t lap = 0;
    if (at + sizeof(file_record) <= r->bytes)
        memcpy(&lap, image + at + offsetof(file_record, lap), sizeof(lap));
    return file_number(lap, i);
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = ((const found *) a)->number, y = ((const found *) b)->number;
    return x < y ? -1 : x > y;
}

/* The newest number in the ring, whole or not: a writer may have lapped the copy. */
static int64_t newest(const reading *r)
{
    uint64_t most = 0;
    for (size_t i = 0; i < SN_RECORDER_RECORDS; i++)
        most = SN_MAX(most, number_in(r, r->after, i));
    return (int64_t) most;
}

/* All whole records, oldest first. */
static int64_t find_records(const reading *r, found *out)
{
    int64_t n = 0;
    for (size_t i = 0; i < SN_RECORDER_RECORDS; i++) {
        uint64_t number = number_in(r, r->before, i);
        if (number != 0 && number == number_in(r, r->after, i))
            out[n++] = (found){number, record_at(i)};
    }
    qsort(out, (size_t) n, sizeof(*out), by_number);
    return n;
}

static const char *word(const reading *r, uint8_t index)
{
    return index < SN_RECORDER_WORDS ? r->word[index] : "";
}

static size_t bytes_of(uint8_t dtype)
{
    return dtype < SN_DTYPE_COUNT ? sn_dtype_bytes(dtype) : 0;
}

static void read_record(const reading *r, found f, sn_recorded *o)
{
    file_record d;
    memcpy(&d, r->data + f.at, sizeof(d));
    *o = (sn_recorded){.number = f.number,
                       .seq = d.seq,
                       .count = d.count,
                       .bytes = d.count * (d.blocks + UINT64_C(1)) * bytes_of(d.dtype),
                       .state = SN_RECORD_POSTED,
                       .status = (sn_status) d.status,
                       .op = word(r, d.op),
                       .red = word(r, d.red),
                       .algorithm = word(r, d.algorithm),
                       .dtype = d.dtype,
                       .group = SN_RECORDER_OTHER,
                       .peer = d.peer,
                       .posted = time_of(r, d.posted),
                       .started = time_of(r, d.started),
                       .ended = time_of(r, d.ended),
                       .step = d.step};
    if (d.state >= SN_RECORD_POSTED && d.state <= SN_RECORD_FAILED)
        o->state = (sn_record_state) d.state;
    if (d.group == SN_RECORDER_PAIR)
        o->group = SN_RECORDER_PAIR;
    else if (d.group >= 0 && r->turn[d.group] == d.turn)
        o->group = d.group;
    if (o->state < SN_RECORD_DONE)
        o->ended = 0;
}

static void read_records(reading *r, int64_t keep)
{
    sn_recording *o = r->out;
    found *f = sn_alloc(SN_RECORDER_RECORDS * sizeof(*f));
    int64_t n = find_records(r, f);
    o->op = SN_NEW_N(r->arena, sn_recorded, SN_MAX(1, n));
    o->total = newest(r);
    for (int64_t i = 0; i < n; i++) {
        sn_recorded *op = &o->op[o->ops];
        read_record(r, f[i], op);
        o->last = SN_MAX(o->last, SN_MAX(op->posted, SN_MAX(op->started, op->ended)));
        if (i >= n - keep || op->state < SN_RECORD_DONE)
            o->ops++;
        if (op->number == r->say.wait_number && op->state < SN_RECORD_DONE)
            o->wait = op;
    }
    free(f);
}

sn_status sn_recording_parse(const void *before, const void *data, const void *after, size_t bytes,
                             int64_t keep, sn_arena *arena, sn_recording *ret)
{
    reading *r = sn_alloc(sizeof(*r));
    *r = (reading){.before = before, .data = data, .after = after, .bytes = bytes, .arena = arena};
    sn_status status = read_head(r);
    if (status >= 0) {
        *ret = (sn_recording){.groups = SN_RECORDER_GROUPS,
                              .group = SN_NEW_N(arena, sn_recorded_group, SN_RECORDER_GROUPS)};
        r->out = ret;
        fill_head(r);
        read_words(r);
        for (int i = 0; i < SN_RECORDER_GROUPS; i++)
            read_group(r, i);
        read_records(r, keep);
    }
    free(r);
    return status;
}
