/* SPDX-License-Identifier: Apache-2.0
 *
 * coll_private — what the files of coll share.
 *
 * My part of the host's segment (the same layout in every part; peers write only where it says so):
 *
 *   head      coll_bell                  peers ring it
 *   reserve   coll_ring[local members]   my sends to each of them; peers: state, taken
 *             coll_block[COLL_BLOCKS]    one for each group I am in
 *             mail regions, stage pool   for buffers outside the arena
 *   arena     sn_coll_alloc              peers read and write while a call uses it
 *
 * An operation with number `seq` uses slot seq % COLL_WINDOW of its group's block. Its first signal
 * publishes what the call is (so everybody can compare) and where its buffers are. A slot is used
 * again when every member of my host has finished the operation that had it before.
 *
 * A long operation goes in chunks, each a run of the schedule by itself. Two are under way at once,
 * in two lanes: chunk k in lane k % COLL_LANES. A lane has signals of its own. */
#ifndef SN_COLL_PRIVATE_H
#define SN_COLL_PRIVATE_H

#include "coll/coll.h"
#include "os/os.h"

#include <pthread.h>

#define COLL_WINDOW 4      /* operations of one group under way at once */
#define COLL_LANES 2       /* chunks of one operation under way at once */
#define COLL_REQS 64       /* posted per group */
#define COLL_BLOCKS 128    /* groups at once */
#define COLL_P2P_REQS 256  /* posted sends and receives */
#define COLL_MAILS 32      /* sends under way to one peer on the host */
#define COLL_INLINE 128    /* bytes that a mail carries in itself */
#define COLL_PLANS 32      /* schedules kept per group */
#define COLL_REGION 131072 /* bytes of a mail region, half written while the other half is read */
#define COLL_REGIONS 8
#define COLL_REGIONS_KEPT 2  /* of them: for sends that the receiver has already taken */
#define COLL_STAGE_MIN 16384 /* bytes of a group's stage: there is room for one in every group */
#define COLL_STAGE_MAX (1 << 19)
#define COLL_IMAGES (2 * COLL_LANES) /* a stage has IN and OUT of a chunk for each lane */
#define COLL_EAGER                                                                                 \
    4096 /* bytes sent to another host before it is known that the calls agree: they               \
            leave even if nobody takes them; more could not be recalled */
#define COLL_NOWHERE UINT64_MAX
#define COLL_PIECE (1 << 20)   /* bytes moved before other requests have their turn */
#define COLL_SEGMENT (1 << 19) /* bytes of a message; what is urgent waits for so much at most */
#define COLL_AHEAD 4           /* messages of one transfer under way at once */
#define COLL_STREAM                                                                                \
    (48 << 20) /* bytes a step reads and writes from which stores go past the caches */
#define COLL_STAMP(seq, round) ((uint64_t) (seq) << 24 | (uint64_t) (round))
#define COLL_ROUNDS ((1 << 24) - 1) /* of one operation in one lane */
#define COLL_ORDERED 0x80 /* in a print's reduction: the sum is that of members 0, 1, 2 … */
#define COLL_VOTE_BYTES 64
#define COLL_EARLY 16
#define COLL_DIMS 8
#define COLL_LATE (300 * SN_MS) /* after a group's end nothing more comes for it */
#define COLL_USES 15            /* segments named by sn_coll_use */
#define COLL_TEXT 480           /* a sentence about a failure */

/* ---- shared memory ---- */

typedef struct coll_bell { /* an event count: the owner sleeps on `rung` */
    uint32_t rung, sleeping;
    uint32_t closed; /* its owner has closed its coll */
} coll_bell;

/* What a call is: equal on all members or the call is an error. */
typedef struct coll_print {
    uint64_t count;
    uint8_t op, red, dtype, algorithm;
    uint32_t root; /* of many calls in one: a hash of their counts */
} coll_print;

typedef struct coll_sign {
    uint64_t stamp;         /* COLL_STAMP of the last signal, written last */
    uint64_t in_at, out_at; /* coll_place of the owner's buffers */
} coll_sign;

typedef struct coll_slot {
    coll_sign first; /* of lane 0 */
    coll_print print;
    uint64_t done; /* its owner's done_seq at that signal: whoever reads one knows the other */
    unsigned char note[SN_ALGO_NOTE_BYTES + 16];
    unsigned char vote[COLL_VOTE_BYTES]; /* the note of the vote, which some read still when the
                                            operation's own is written */
    struct {
        coll_sign sign;
    } __attribute__((aligned(64))) more[COLL_LANES - 1];
} __attribute__((aligned(64))) coll_slot;

typedef struct coll_block {
    coll_slot slot[COLL_WINDOW];
    uint64_t done_seq __attribute__((aligned(64))); /* all operations up to it are complete */
    uint64_t failed_seq
        __attribute__((aligned(64))); /* 0, or the first that failed, written last */
    uint32_t failing;                 /* who has set it writes the two below; others leave them */
    int32_t status;
    char text[240];
    uint32_t port;   /* of the group whose block this is; another: its owner has left the group */
    uint32_t left;   /* its owner frees the group: it takes part in nothing more */
    uint32_t before; /* the port that had this block before; all else is zero at first */
} coll_block;

typedef enum coll_mail_state {
    COLL_MAIL_FREE, /* sender → POSTED → receiver → TAKEN → DONE or REFUSED → sender → FREE */
    COLL_MAIL_POSTED,
    COLL_MAIL_TAKEN,
    COLL_MAIL_DONE,
    COLL_MAIL_REFUSED
} coll_mail_state;

typedef struct coll_mail {
    uint32_t state, tag;
    uint64_t order, bytes;
    uint64_t at;            /* coll_place; of a staged one NOWHERE until it has a region */
    uint64_t avail, taken;  /* staged: bytes written into and read from the region so far */
    uint64_t wanted;        /* REFUSED: the receiver's size */
    uint8_t staged, making; /* making: of groups being made, apart from the callers' tags */
    unsigned char text[COLL_INLINE] __attribute__((aligned(64)));
} __attribute__((aligned(64))) coll_mail;

typedef struct coll_ring {
    uint64_t posted __attribute__((aligned(64))); /* sends so far */
    coll_mail mail[COLL_MAILS];
} coll_ring;

typedef struct coll_news { /* to another host: your group at this port has failed */
    uint64_t seq;          /* from this operation on */
    uint32_t port;
    int32_t status;
    char text[240];
} coll_news;

/* ---- private memory ---- */

typedef struct coll_span { /* elements [at, end) of a buffer */
    int64_t at, end;
} coll_span;

typedef struct coll_plan { /* a schedule kept for the next call of the same kind */
    sn_algo_call call;
    int algorithm; /* row; -1 never used */
    int asked;     /* the row that the caller forced, -1: chosen */
    int used;      /* requests that run it now */
    uint64_t tick;
    sn_sched sched;
    sn_arena *arena;
    bool mapped;          /* the rest is there: stage.c */
    coll_span *stage_in;  /* what peers touch of my IN and OUT, in order, not touching */
    coll_span *stage_out; /* in place: all in stage_in */
    int stage_ins, stage_outs;
} coll_plan;

typedef struct coll_header { /* the print across hosts */
    uint64_t seq;
    coll_print print, other; /* `other` differs on rank bad_rank when bad */
    int32_t rank, bad_rank;  /* bad_rank ≥ 0: the sender found `rank` and it disagree */
} coll_header;

typedef struct coll_partner { /* a member of another host with which prints are exchanged */
    int member;
    coll_header in, out;
    sn_net_req *recv, *send;
} coll_partner;

/* A SEND or RECV step: messages of at most COLL_SEGMENT, a few at a time, in order. */
typedef struct coll_transfer {
    int member;
    bool send;
    int flying;
    unsigned char *buf;
    uint64_t bytes, posted;
    sn_net_req *req[COLL_AHEAD];
} coll_transfer;

/* One run of a schedule: the vote, or the operation, or a chunk of it. */
typedef struct coll_run {
    coll_plan *plan; /* NULL: idle */
    int lane;
    bool voting;
    int step;
    uint32_t base;     /* rounds of the lane's runs before this one */
    int64_t moved;     /* elements of the step done */
    int64_t at, n;     /* the chunk: elements [at, at + n) of each block */
    unsigned char *in; /* where member `me` has its IN: the image in the stage, or the buffer */
    unsigned char *out;
    bool in_staged, out_staged;
    bool closing; /* all steps done; waits until all have read the notes */
    int transfers;
    coll_transfer *transfer;
    unsigned char *tmp, *wide;
    size_t tmp_bytes, wide_bytes;
} coll_run;

typedef struct coll_window { /* the private side of a slot */
    coll_run run[COLL_LANES];
    coll_partner *partner;
    bool prints_sent, prints_ok;
} coll_window;

typedef enum coll_kind {
    COLL_REQ_GROUP,
    COLL_REQ_SEND,
    COLL_REQ_RECV,
    COLL_REQ_NET_SEND,
    COLL_REQ_NET_RECV
} coll_kind;

typedef enum coll_stage {               /* where a group's operation is */
                          COLL_QUEUED,  /* its slot is not free yet */
                          COLL_VOTE,    /* long: does any member have to stage? */
                          COLL_MAIN,    /* the operation itself, whole or in chunks */
                          COLL_CLOSING, /* prints from other hosts are still coming */
} coll_stage;

struct sn_coll_req {
    coll_kind kind;
    sn_coll *coll;
    sn_coll_group *group;
    sn_coll_req *next;       /* active or free list */
    sn_status status;        /* PENDING, or how it ended */
    const char *text;        /* of its failure */
    sn_time deadline, since; /* since: the first time that nothing moved */
    int priority;
    bool listed;     /* among the active */
    bool told;       /* the control page says that we wait for this */
    bool brief;      /* short: see record.c */
    uint64_t record; /* its number with the flight recorder, 0 none (yet) */
    uint64_t posted; /* the recorder's clock then */

    /* group operations */
    uint64_t seq;
    sn_coll_call call;
    const sn_coll_call *many; /* the calls that this one stands for, NULL: just itself */
    int manys;
    int asked;
    coll_stage stage;
    coll_print print;
    bool shared, chunked, entered; /* shared: peers touch its buffers */
    bool notes; /* its chunks are so short that they go through notes: one at a time */
    int plan_rounds, lanes;
    int64_t chunk, chunks, begun, done; /* elements of a chunk; number of chunks */
    float vote_in, vote_out;

    /* point to point */
    int peer;
    uint32_t tag;
    const char *making; /* the group being made, NULL: a caller's message */
    unsigned char *buf;
    uint64_t bytes, seen;
    coll_mail *mail;
    int region;
    sn_net_req *net;
};

typedef struct coll_member {
    int rank, host;
    int local;           /* place on the host, -1 on another */
    uint32_t port;       /* its number for the group: in its block, in messages to it */
    uint32_t news_port;  /* where it takes news, 0 nowhere */
    coll_block *block;   /* NULL on another host */
    unsigned char *base; /* of its part; likewise */
    coll_bell *bell;
} coll_member;

struct sn_coll_group {
    sn_coll *coll;
    char *name;
    uint32_t id;
    int recorded; /* its place with the flight recorder */
    int size, me;
    coll_member *member;
    int *local; /* members on my host but me */
    int locals;
    int *partner_member; /* with my place on the other hosts */
    int partners;
    sn_algo_group algo;
    sn_algo_model model;
    int dim[COLL_DIMS]; /* for algo */
    coll_block *block;
    int block_index;
    uint64_t posted, started, finished; /* sequence numbers */
    uint64_t others_done;               /* every local member has finished up to here */
    uint32_t finished_mask;             /* bit k: finished + 1 + k is complete */
    unsigned char *stage;               /* of the oldest operation only */
    int stage_at, stage_units;          /* in the pool */
    size_t image;                       /* bytes; agreed on by all members */
    coll_window window[COLL_WINDOW];
    coll_plan plan[COLL_PLANS], *last;
    uint64_t tick;
    sn_coll_req *req, *free; /* the pool */
    sn_status broken;
    sn_time retired;
    uint32_t aborted; /* by another thread: see its block */
    coll_news news;   /* from another host */
    char text[COLL_TEXT];
    void **dst_ptr; /* [size] scratch of a step */
    const void **src_ptr;
    uint8_t *dst_wide, *src_wide;
    sn_coll_group *next; /* all groups, or retired ones, whose blocks peers may still read */
};

typedef struct coll_use { /* sn_coll_use */
    const sn_segment *seg;
    unsigned char **base; /* [locals], NULL: not a member */
} coll_use;

struct sn_coll {
    sn_net *net;
    sn_segment *seg;
    const sn_topo *topo;
    const sn_algo_model *model;
    sn_recorder *recorder; /* NULL: off */
    uint64_t looked;       /* the recorder's clock while we wait and spin, 0: not now */
    const sn_fold_table *kernels;
    int rank, world, locals, me_local;
    bool crowded;  /* more workers than cores: the one waited for may need mine */
    int *local_of; /* [world] place in the segment, -1 on another host */
    unsigned char *base;
    coll_bell *bell;
    coll_ring *ring; /* [locals] mine */
    coll_block *blocks;
    unsigned char *mail_regions, *pool;
    bool region_used[COLL_REGIONS];
    bool *unit_used; /* [units] of COLL_STAGE_MIN bytes in the pool */
    int units, units_free;
    coll_use use[COLL_USES];
    int uses;
    bool block_used[COLL_BLOCKS];
    int blocks_used;
    uint32_t next_port; /* grows with each group */
    sn_coll_group *groups, *retired;
    sn_coll_req *active; /* by priority, then as posted */
    sn_coll_req *req, *free;
    char *req_text;                    /* [COLL_P2P_REQS · COLL_TEXT] */
    int nets;                          /* requests on the net under way */
    int urgent;                        /* priority of the first active request that sends now */
    sn_net_req *orphan[COLL_P2P_REQS]; /* of failed requests, see coll_job_over */
    int orphans;
    uint32_t aborts, aborts_seen; /* groups that other threads aborted */
    uint32_t news_port;
    coll_news early[COLL_EARLY]; /* of groups that are not made yet */
    unsigned earlies;
    sn_time looked_around;
    int told;                       /* requests whose wait stands on the control page */
    char said_before[SN_PAGE_TEXT]; /* what stood there */
    sn_coll_stats stats;

    /* several threads: one that waits drives progress, the others sleep until it is their turn */
    bool threads, driven;
    int sleepers;
    pthread_mutex_t gate, lock; /* gate: who waits for the lock next; so nobody waits for long */
    pthread_cond_t turn;
};

/* thread.c: nothing but a test when there is one thread */
void coll_lock_slow(sn_coll *c);
void coll_unlock_slow(sn_coll *c);
sn_status coll_threads_open(sn_coll *c);
void coll_threads_close(sn_coll *c);
void coll_wake_sleepers(sn_coll *c);
void coll_threads_wait(
    sn_coll_req *r); /* until it is complete; the lock is held before and after */

static inline void coll_lock(sn_coll *c)
{
    if (c->threads)
        coll_lock_slow(c);
}

static inline void coll_unlock(sn_coll *c)
{
    if (c->threads)
        coll_unlock_slow(c);
}

/* wait.c */
void coll_ring_bell(coll_bell *bell);
void coll_ring_members(sn_coll_group *g);          /* after a store that they may wait for */
void coll_look_around(sn_coll *c);                 /* deadlines, dead peers, failures of peers */
void coll_idle(sn_coll *c, sn_coll_req *r, int n); /* the n-th turn in a row without a move */
sn_status coll_wait(sn_coll_req *r);               /* as sn_coll_wait; the lock is held */

/* plan.c */
sn_status coll_plan_get(sn_coll_group *g, const sn_algo_call *call, int asked, coll_plan **ret);
sn_status coll_algorithm_index(const char *name, int *ret); /* NULL: -1 */

/* stage.c */
void coll_stage_take(sn_coll_group *g); /* a part of the pool; the smallest is always there */
void coll_stage_give(sn_coll_group *g);
sn_status coll_stage_map(sn_coll_group *g, coll_plan *p);
bool coll_stage_has(const coll_span *span, int n, int64_t at);
void coll_stage_fill(sn_coll_req *r, coll_run *run);  /* what peers will read */
void coll_stage_empty(sn_coll_req *r, coll_run *run); /* what they wrote */

/* call.c: what a call means */
int coll_blocks_in(const sn_coll_req *r); /* of `count` elements; this member's */
int coll_blocks_out(const sn_coll_req *r);
int coll_blocks_most(const sn_coll_req *r); /* of all members' buffers */
bool coll_in_place(const sn_coll_req *r);
sn_status coll_call_check(const sn_coll_req *r);
sn_coll_call coll_call_normal(const sn_coll_call *call); /* without what has no meaning */
sn_algo_call coll_call_algo(const sn_coll_req *r, int64_t count);
/* Many calls as the one that stands for them; the same hash on all members or they differ. */
sn_status coll_many_sum(const sn_coll_group *g, const sn_coll_call *calls, int n,
                        sn_coll_call *ret);
uint32_t coll_many_hash(const sn_coll_call *calls, int n);

/* run.c: one run of a schedule; SN_OK when at its end, SN_PENDING when it has to wait */
sn_status coll_run_some(sn_coll_req *r, coll_run *run, bool *moved);
bool coll_run_closed(sn_coll_req *r, coll_run *run);
int coll_run_waits_for(const sn_coll_req *r, const coll_run *run); /* a rank, -1 nobody */
uint64_t coll_place_of(const sn_coll *c, const void *p, uint64_t bytes);
bool coll_place_known(const sn_coll *c, int local, uint64_t place); /* is it in that segment? */
unsigned char *coll_place_at(const sn_coll *c, int local, uint64_t place); /* NULL: not known */

/* transfer.c: messages to and from other hosts */
sn_status coll_transfer_start(sn_coll_req *r, coll_run *run, const sn_step *step,
                              unsigned char *buf, size_t bytes);
/* As far as they go; OK when all are complete. */
sn_status coll_transfers_some(sn_coll_req *r, coll_run *run, bool *moved);
bool coll_transfers_sending(const sn_coll_req *r);
void coll_window_cancel(sn_coll_group *g, coll_window *w);
/* Is nothing under way any more? `late`: what has not come is given up. */
bool coll_window_drain(sn_coll_group *g, coll_window *w, bool late);

/* print.c */
sn_status coll_prints_local(sn_coll_req *r); /* everybody on my host has entered */
sn_status coll_prints_start(sn_coll_req *r); /* across hosts */
sn_status coll_prints_done(sn_coll_req *r);
int coll_prints_wait_for(const sn_coll_req *r); /* a rank, -1 nobody */

/* op.c */
sn_status coll_op_advance(sn_coll_req *r, bool *moved);
int coll_op_waits_for(const sn_coll_req *r);
const char *coll_req_text(const sn_coll_req *r, char out[200]); /* "all_reduce #12 in group x" */

/* news.c */
sn_status coll_news_open(sn_coll *c);
void coll_news_close(sn_coll *c);
void coll_news_tell(sn_coll_group *g, uint64_t seq); /* that it broke */
void coll_news_of(sn_coll_group *g);                 /* what came before it was made */
void coll_news_listen(sn_coll *c);

/* fail.c */
/* In my block, for my host mates; any thread. False: something is there already. */
bool coll_publish(sn_coll_group *g, sn_status status, uint64_t seq, const char *text);
sn_status coll_op_fail(sn_coll_req *r, sn_status status); /* breaks the group; text: sn_errmsg() */
bool coll_peer_gave_up(sn_coll_req *r); /* a member of my host did, or left: r has failed then */
void coll_aborts(sn_coll *c);           /* break the groups that other threads aborted */

/* p2p.c */
sn_status coll_p2p_post(sn_coll *c, bool send, int peer, uint32_t tag, const char *making,
                        void *buf, uint64_t bytes, sn_time deadline, sn_coll_req **ret);
sn_status coll_p2p_advance(sn_coll_req *r, bool *moved);
void coll_p2p_withdraw(sn_coll_req *r, sn_status why);
bool coll_p2p_peer_left(sn_coll_req *r); /* a host mate that has closed, and left this undone */

/* record.c */
void coll_record_open(sn_coll *c);
void coll_record_launch(sn_coll_req *r);
void coll_record_signalled(sn_coll_req *r); /* brief ones, by their first signal */
void coll_record_end(sn_coll_req *r);

/* mesh.c */
int coll_mesh_find(const sn_coll_group *g, int ret_dim[COLL_DIMS]); /* dimensions, 0: no mesh */

/* meet.c: the exchange in which members agree on what a group is */
sn_status coll_meet(sn_coll_group *g, const int *members, sn_time deadline);

/* group.c */
void coll_groups_sweep(sn_coll *c, bool all); /* retired groups that nobody reads any more */

/* coll.c */
bool coll_progress(sn_coll *c); /* true when anything moved */
void coll_activate(sn_coll *c, sn_coll_req *r);
void coll_advance(sn_coll_req *r); /* as far as it goes now */
void coll_give_back(sn_coll_req *r);
void coll_end(sn_coll_req *r, sn_status status, const char *text);

static inline uint64_t coll_load(const uint64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static inline void coll_store(uint64_t *p, uint64_t v)
{
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}

/* Of net's 40 bits: what it is (0 point to point, 1 groups being made, 2 data, 3 prints), the port
 * of the receiver, the operation, the lane. Numbers may wrap: of each only a few that follow each
 * other are under way at once. */
static inline uint64_t coll_tag(const sn_coll_req *r, int receiver, unsigned what, int lane)
{
    return (uint64_t) what << 38 | (uint64_t) (r->group->member[receiver].port & 0x3fffff) << 16 |
           (r->seq & 0x3fff) << 2 | (unsigned) lane;
}

/* The job is over for everybody: messages under way are left alone until sn_coll_close. To recall
 * one breaks its connection, and the peer would take us for the one that failed. */
static inline bool coll_job_over(sn_status status)
{
    return status == SN_EPEER || status == SN_EEPOCH || status == SN_ECANCEL;
}

/* The first turn of a request. */
static inline void coll_launch(sn_coll_req *r)
{
    if (r->coll->recorder != NULL)
        coll_record_launch(r);
    else
        coll_advance(r);
}

static inline void coll_record_start(const sn_coll_req *r)
{
    if (r->record != 0)
        sn_recorder_start(r->coll->recorder, r->record);
}

static inline coll_slot *coll_slot_of(coll_block *b, uint64_t seq)
{
    return &b->slot[seq % COLL_WINDOW];
}

static inline coll_sign *coll_sign_of(coll_block *b, uint64_t seq, int lane)
{
    coll_slot *s = coll_slot_of(b, seq);
    return lane == 0 ? &s->first : &s->more[lane - 1].sign;
}

static inline coll_window *coll_window_of(sn_coll_group *g, uint64_t seq)
{
    return &g->window[seq % COLL_WINDOW];
}

#endif
