/* SPDX-License-Identifier: Apache-2.0
 *
 * coll_private — what the files of coll share.
 *
 * My part of the host's segment (the same layout in every part; peers write only where it says so):
 *
 *   head      coll_bell                                  peers ring it
 *   reserve   coll_ring[local members]                   my sends to each of them; peers: state,
 * taken coll_block[COLL_BLOCKS]                    one for each group I am in stage regions[…] for
 * buffers outside the arena arena     sn_coll_alloc                              peers read and
 * write while a call uses it
 *
 * An operation with number `seq` uses slot seq % COLL_WINDOW of its group's block. Its first signal
 * publishes what the call is (so everybody can compare) and where its buffers are. A slot is used
 * again when every member of my host has finished the operation that had it before. */
#ifndef SN_COLL_PRIVATE_H
#define SN_COLL_PRIVATE_H

#include "coll/coll.h"
#include "os/os.h"

#define COLL_WINDOW 4      /* operations of one group under way at once */
#define COLL_REQS 64       /* posted per group */
#define COLL_BLOCKS 128    /* groups at once */
#define COLL_P2P_REQS 256  /* posted sends and receives */
#define COLL_MAILS 32      /* sends under way to one peer on the host */
#define COLL_PLANS 32      /* schedules kept per group */
#define COLL_REGION 131072 /* bytes of a stage region: half for IN, half for OUT */
#define COLL_STAGE (COLL_REGION / 2)
#define COLL_P2P_REGIONS 8
#define COLL_EAGER                                                                                 \
    4096 /* bytes sent to another host before it is known that the calls agree: they               \
            leave even if nobody takes them; more could not be recalled */
#define COLL_NOWHERE UINT64_MAX
#define COLL_PIECE (1 << 20) /* bytes moved before other requests have their turn */
#define COLL_STREAM                                                                                \
    (48 << 20) /* bytes a step reads and writes from which stores go past the caches */
#define COLL_STAMP(seq, round) ((uint64_t) (seq) << 24 | (uint64_t) (round))

/* ---- shared memory ---- */

typedef struct coll_bell { /* an event count: the owner sleeps on `rung` */
    uint32_t rung, sleeping;
} coll_bell;

/* What a call is: equal on all members or the call is an error. */
typedef struct coll_print {
    uint64_t count;
    uint8_t op, red, dtype, algorithm;
    uint32_t root;
} coll_print;

typedef struct coll_slot {
    uint64_t stamp; /* COLL_STAMP of the last signal, written last */
    coll_print print;
    uint64_t in_at, out_at; /* from the base of the owner's part */
    unsigned char note[SN_ALGO_NOTE_BYTES + 24];
} __attribute__((aligned(64))) coll_slot;

typedef struct coll_block {
    coll_slot slot[COLL_WINDOW];
    uint64_t done_seq __attribute__((aligned(64))); /* all operations up to it are complete */
    uint64_t failed_seq
        __attribute__((aligned(64))); /* 0, or the first that failed, written last */
    int32_t status;
    uint32_t group; /* whose block this is; another number: its owner has left the group */
    char text[240];
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
    uint64_t order, bytes, at;
    uint64_t avail, taken; /* staged: bytes written into and read from the region so far */
    uint64_t wanted;       /* REFUSED: the receiver's size */
    uint32_t staged;
} __attribute__((aligned(64))) coll_mail;

typedef struct coll_ring {
    uint64_t posted __attribute__((aligned(64))); /* sends so far */
    coll_mail mail[COLL_MAILS];
} coll_ring;

/* ---- private memory ---- */

typedef struct coll_plan { /* a schedule kept for the next call of the same kind */
    sn_algo_call call;
    int algorithm; /* row; -1 never used */
    int asked;     /* the row that the caller forced, -1: chosen */
    int used;      /* requests that run it now */
    uint64_t tick;
    sn_sched sched;
    sn_arena *arena;
} coll_plan;

typedef struct coll_header { /* the print across hosts */
    uint64_t seq;
    coll_print print, other; /* `other` differs on rank bad_rank when bad */
    int32_t rank, bad_rank;  /* bad_rank ≥ 0: the sender found `rank` and it disagree */
} coll_header;

typedef struct coll_lane { /* a member of another host with which prints are exchanged */
    int member;
    coll_header in, out;
    sn_net_req *recv, *send;
} coll_lane;

typedef struct coll_window { /* the private side of a slot */
    sn_net_req **net;        /* sends and receives under way */
    int *net_member;         /* with whom */
    int nets;
    coll_lane *lane;
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
                          COLL_MAIN,    /* the operation itself, whole or a chunk at a time */
                          COLL_CLOSING, /* prints from other hosts are still coming */
} coll_stage;

/* One run of a schedule: the vote, or the operation, or a chunk of it. */
typedef struct coll_run {
    coll_plan *plan;
    int step, base; /* next step; rounds before this run */
    int64_t moved;  /* elements of the step done */
    unsigned char *in, *out;
} coll_run;

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
    uint64_t record; /* its number with the flight recorder, 0 none (yet) */
    bool brief;      /* short: see record.c */

    /* group operations */
    uint64_t seq;
    sn_coll_call call;
    int asked;
    coll_stage stage;
    coll_print print;
    coll_run run;
    bool shared, staged, entered; /* shared: peers touch its buffers */
    int64_t chunk, at;            /* elements of a chunk, done so far */
    float vote_in, vote_out;

    /* point to point */
    int peer;
    uint32_t tag;
    unsigned char *buf;
    uint64_t bytes, seen;
    coll_mail *mail;
    int region;
    sn_net_req *net;
};

typedef struct coll_member {
    int rank, host;
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
    int *lane_member; /* lane partners on the other hosts */
    int lanes;
    sn_algo_group algo;
    sn_algo_model model;
    coll_block *block;
    int block_index;
    uint64_t posted, started, finished; /* sequence numbers */
    uint64_t others_done;               /* every local member has finished up to here */
    uint32_t finished_mask;             /* bit k: finished + 1 + k is complete */
    unsigned char *stage;               /* NULL until first needed; of the oldest operation only */
    int stage_index;
    coll_window window[COLL_WINDOW];
    unsigned char *tmp[COLL_WINDOW];
    size_t tmp_bytes[COLL_WINDOW];
    coll_plan plan[COLL_PLANS];
    uint64_t tick;
    sn_coll_req *req, *free; /* the pool */
    sn_status broken;
    char text[480];
    void **dst_ptr; /* [size] scratch of a step */
    const void **src_ptr;
    sn_coll_group *next; /* retired groups, whose blocks peers may still read */
};

struct sn_coll {
    sn_net *net;
    sn_segment *seg;
    const sn_topo *topo;
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
    unsigned char *stage;
    int regions;
    bool *region_used;
    bool block_used[COLL_BLOCKS];
    uint32_t next_group;
    sn_coll_group *retired;
    sn_coll_req *active; /* by priority, then as posted */
    sn_coll_req *req, *free;
    char *req_text;                    /* [COLL_P2P_REQS · 480] */
    int nets;                          /* requests on the net under way */
    sn_net_req *orphan[COLL_P2P_REQS]; /* of failed requests, see coll_job_over */
    int orphans;
    uint32_t polls;
    int told;                       /* requests whose wait stands on the control page */
    char said_before[SN_PAGE_TEXT]; /* what stood there */
    sn_coll_stats stats;
};

/* wait.c */
void coll_ring_bell(coll_bell *bell);
void coll_ring_members(sn_coll_group *g); /* after a store that they may wait for */
void coll_look_around(sn_coll *c);        /* deadlines, dead peers, failures of peers */

/* plan.c */
sn_status coll_plan_get(sn_coll_group *g, const sn_algo_call *call, int asked, coll_plan **ret);
sn_status coll_algorithm_index(const char *name, int *ret); /* NULL: -1 */

/* run.c: one run of a schedule; SN_OK when at its end, SN_PENDING when it has to wait */
sn_status coll_run_some(sn_coll_req *r, bool *moved);
int coll_run_waits_for(const sn_coll_req *r); /* a rank, -1 nobody */
void coll_window_cancel(sn_coll_group *g, coll_window *w);

/* print.c */
sn_status coll_prints_local(sn_coll_req *r); /* everybody on my host has entered */
sn_status coll_prints_start(sn_coll_req *r); /* across hosts */
sn_status coll_prints_done(sn_coll_req *r);
int coll_prints_wait_for(const sn_coll_req *r); /* a rank, -1 nobody */

/* op.c */
sn_status coll_op_advance(sn_coll_req *r, bool *moved);
sn_status coll_op_fail(sn_coll_req *r, sn_status status); /* breaks the group; text: sn_errmsg() */
int coll_op_waits_for(const sn_coll_req *r);
const char *coll_req_text(const sn_coll_req *r, char out[200]); /* "all_reduce #12 in group x" */

/* p2p.c */
sn_status coll_p2p_advance(sn_coll_req *r, bool *moved);
void coll_p2p_withdraw(sn_coll_req *r, sn_status why);

/* record.c */
void coll_record_open(sn_coll *c);
void coll_record_launch(sn_coll_req *r);
void coll_record_end(sn_coll_req *r);

/* group.c */
void coll_groups_sweep(sn_coll *c, bool all); /* retired groups that nobody reads any more */

/* coll.c */
bool coll_progress(sn_coll *c); /* true when anything moved */
void coll_activate(sn_coll *c, sn_coll_req *r);
void coll_advance(sn_coll_req *r); /* as far as it goes now */
void coll_give_back(sn_coll_req *r);
void coll_end(sn_coll_req *r, sn_status status, const char *text);
unsigned char *coll_region_take(sn_coll *c, bool p2p, int *ret_index); /* NULL: none left */
void coll_region_give(sn_coll *c, int index);

static inline uint64_t coll_load(const uint64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static inline void coll_store(uint64_t *p, uint64_t v)
{
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}

/* Of net's 40 bits: what it is (0 point to point, 2 data, 3 prints), the group, the operation. Both
 * numbers may wrap: of each only a few that follow each other are under way at once. */
static inline uint64_t coll_tag(const sn_coll_req *r, unsigned what)
{
    return (uint64_t) what << 38 | (uint64_t) (r->group->id & 0x3fff) << 24 | (r->seq & 0xffffff);
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

static inline coll_window *coll_window_of(sn_coll_group *g, uint64_t seq)
{
    return &g->window[seq % COLL_WINDOW];
}

#endif
