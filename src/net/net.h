/* SPDX-License-Identifier: Apache-2.0
 *
 * net — how the workers of a job find each other, exchange messages across hosts, and notice a
 * peer's failure.
 *
 *   boot   "put my blob, get everyone's": the launcher's socket, PMIx, or alone
 *   net    one per worker: who is on my host (sockets and shared life pages to those), UCX
 *          endpoints to all others
 *   beat   one heartbeat thread per worker: says that this worker lives, in the control page, to
 *          its host mates in shared memory, to other hosts in UDP packets; notices who is silent
 *
 * Invariants
 *  1. Every wait takes an absolute deadline (CLOCK_MONOTONIC, sn_now of os) and fails with a
 *     sentence that names rank, host, operation and sequence number or tag.
 *  2. Two ranks are on one host when boot id, IPC and network namespace and the host's name are
 *     equal. Ranks on different hosts never share memory; bytes between them go over UCX.
 *  3. A dead peer completes every pending request to or from it with SN_EPEER; later requests fail
 *     at once.
 *  4. One thread (the worker's) uses a net; only the heartbeat thread runs beside it. The thread
 *     that opens a net is the one whose end is its host mates' notice of death.
 *  5. Messages between a pair with one tag arrive in the order sent.
 *  6. Who leaves says goodbye and whose failure made it leave: survivors name the first victim. */
#ifndef SN_NET_NET_H
#define SN_NET_NET_H

#include "base/base.h"
#include "mon/mon.h"

/* For the body of a spinning loop. */
#if defined(__x86_64__)
#define SN_PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define SN_PAUSE() __asm__ volatile("yield")
#else
#define SN_PAUSE() __asm__ volatile("")
#endif

/* ---- bootstrap: an all-gather of small blobs ---- */

typedef struct sn_boot sn_boot;

/* `fd`: this worker's connected stream socket to its agent or launcher (takes it). Wire format:
 * net/README.md; the serving side is sn_boot_server below. */
sn_status sn_boot_socket(int fd, int rank, int world, sn_boot **ret);
/* Under mpirun.openmpi or srun --mpi=pmix. SN_ENOTFOUND when there is no PMIx server; SN_ENOTSUP
 * when built without. */
sn_status sn_boot_pmix(sn_boot **ret);
sn_status sn_boot_single(sn_boot **ret); /* a world of one */
void sn_boot_free(sn_boot *boot);        /* NULL is fine */
int sn_boot_rank(const sn_boot *boot);
int sn_boot_world(const sn_boot *boot);

/* Collective over all ranks. ret_blobs[r], ret_bytes[r] live until the next call or free (at any
 * address: copy out structs). Blobs ≤ 64 KiB. The k-th call of one rank meets the k-th call of the
 * others. SN_ETIME names the ranks that are missing; SN_EPEER the one that left. After a failure
 * every later call fails. */
sn_status sn_boot_allgather(sn_boot *boot, const void *blob, size_t bytes, sn_time deadline,
                            const void *const **ret_blobs, const size_t **ret_bytes);

/* The serving side, driven by whoever owns the other ends (pool, tests): feed it bytes as they
 * arrive, send what is pending. It never blocks and never reads sockets itself. */
typedef struct sn_boot_server sn_boot_server;
sn_boot_server *sn_boot_server_create(int world);
void sn_boot_server_free(sn_boot_server *s);
/* Bytes received from `rank`; SN_ECORRUPT on a malformed message, for good. */
sn_status sn_boot_server_feed(sn_boot_server *s, int rank, const void *data, size_t bytes);
/* What to send to `rank` next: pointer and count (0: nothing); call _sent after writing n of them.
 * A feed from one rank may make bytes pending for all. */
size_t sn_boot_server_pending(const sn_boot_server *s, int rank, const void **ret_data);
void sn_boot_server_sent(sn_boot_server *s, int rank, size_t n);
/* The connection of `rank` closed: the others' open and later all-gathers fail with SN_EPEER. */
void sn_boot_server_left(sn_boot_server *s, int rank);
void sn_boot_server_missing(const sn_boot_server *s, sn_str *out); /* "waiting for ranks 3, 5" */

/* ---- the network of a worker ---- */

typedef struct sn_net sn_net;

typedef struct sn_net_opts {
    const char *host_name;    /* "h1"; emulated hosts without namespaces differ only by it */
    sn_page *page;            /* control page, or NULL; epoch changes in it abort waits */
    const char *bind_address; /* IP address UCX should use; NULL: lo when all are on one machine,
                                 else the default route's interface, else the first that is up */
    sn_time deadline;         /* for finding everybody */
    sn_time detect_ns;        /* a peer that is silent so long has failed; 0: 100 ms; negative: only
                                 deaths are noticed, not silence. The same on all ranks */
    const char *transports;   /* across hosts: "rc", "ud" (RDMA), "tcp" or several, comma between;
                                 NULL: RDMA where UCX can use an active device, and tcp */
} sn_net_opts;

/* Collective; borrows boot until it returns, host_name and bind_address too, page until close. */
sn_status sn_net_open(sn_boot *boot, const sn_net_opts *opts, sn_net **ret);
/* Says goodbye first, so that peers do not call it a failure; waits up to 0.2 s for the others to
 * close too. Requests must be completed or cancelled before. NULL is fine. */
void sn_net_close(sn_net *net);

int sn_net_rank(const sn_net *net);
int sn_net_world(const sn_net *net);
bool sn_net_same_host(const sn_net *net, int rank);
int sn_net_host_index(const sn_net *net, int rank); /* hosts numbered by their lowest rank */
int sn_net_hosts(const sn_net *net);
const char *sn_net_host_name(const sn_net *net, int rank); /* "h1" */
const char *sn_net_transport(const sn_net *net);           /* "tcp on eth0"; "memory" on one host */
sn_page *sn_net_page(const sn_net *net);

/* ---- point to point across hosts ----
 *
 * Same-host pairs use gmem and are refused here with SN_ENOTSUP. Zero-copy: the buffer is borrowed
 * until the request completes. Receives match (peer, tag); tags have 40 bits. Requests come from a
 * pool of 1,024, SN_AGAIN if out. A receive of what a peer sent before it left still succeeds. */
typedef struct sn_net_req sn_net_req;
sn_status sn_net_send(sn_net *net, int peer, uint64_t tag, const void *buf, size_t bytes,
                      sn_net_req **ret);
sn_status sn_net_recv(sn_net *net, int peer, uint64_t tag, void *buf, size_t bytes,
                      sn_net_req **ret);
/* SN_OK completed (request freed); SN_PENDING; else its failure (request freed). A size that
 * differs from the message's is SN_EMISMATCH naming both. Never blocks; drives progress once. */
sn_status sn_net_test(sn_net *net, sn_net_req *req);
/* Frees the request, however it ends; at the deadline or when the job fails it is cancelled.
 * what: "recv #7 of group data", for the sentence; NULL: the caller puts it before. */
sn_status sn_net_wait(sn_net *net, sn_net_req *req, sn_time deadline, const char *what);
/* Completes it now, one way or the other, and frees it: the buffer is the caller's again. A large
 * message that the peer has not begun to take is thrown away there, if the peer drives progress and
 * no older one with its tag waits. What is under way and does not end within 50 ms costs the
 * connection: the peer counts as failed. */
void sn_net_cancel(sn_net *net, sn_net_req *req);

/* Drive everything a little; true when something moved. With no request pending it looks at the
 * sockets in one call of eight (20 ns a call); with some in each (a system call, 0.2 µs). */
bool sn_net_progress(sn_net *net);
int sn_net_pending(const sn_net *net); /* requests that callers hold, answers they expect */
/* Sleep until something arrives from another host, or `until`. */
void sn_net_sleep(sn_net *net, sn_time until);

/* ---- failures ---- */

/* Checked inside every wait loop of the layers above: SN_OK, SN_ECANCEL (page->stop == 2),
 * SN_EEPOCH (names the page's victim), SN_EPEER (names the first peer known dead). Costs a few
 * loads. */
sn_status sn_net_alive(const sn_net *net);
/* The same after a look at every rank of my host (10 ns each): notices a death at once, where
 * sn_net_alive learns it from the heartbeat thread up to 10 ms later. For before each sleep. */
sn_status sn_net_look(sn_net *net);
void sn_net_peer_failed(sn_net *net, int rank, const char *how); /* a layer above found out */
/* It said goodbye: in good order, or because of another's failure. A rank of my host is known to
 * have left from the sn_net_look after its sn_net_close on, one elsewhere once its goodbye came. */
bool sn_net_left(const sn_net *net, int rank);

/* ---- parcels across hosts: small messages that a function on the target takes ----
 *
 * The function runs on the target's worker thread, inside any call that drives progress; it may
 * send parcels, and nothing else of net. Parcels between a pair are taken in the order sent. A
 * parcel to a port that was closed is dropped. */
#define SN_PARCEL_BYTES 8000
#define SN_PARCELS 64 /* that a rank may have under way */
typedef void (*sn_net_port_fn)(void *ctx, int from, const void *data, size_t bytes);
/* *ret_port is never 0. SN_ENOTSUP in a job on one host. */
sn_status sn_net_port_open(sn_net *net, sn_net_port_fn fn, void *ctx, uint32_t *ret_port);
void sn_net_port_close(sn_net *net, uint32_t port);
/* A parcel to fill: SN_PARCEL_BYTES, 8-byte aligned; NULL when all are under way: drive progress.
 * `reply` takes from those kept for answers to parcels, so that two ranks that wait for room answer
 * each other. */
void *sn_net_parcel_take(sn_net *net, bool reply);
void sn_net_parcel_drop(sn_net *net, void *parcel);
sn_status sn_net_parcel_send(sn_net *net, int peer, uint32_t port, void *parcel, size_t bytes);
/* +1 while an answer is expected, so that progress looks at the sockets each time; -1 after. */
void sn_net_expect(sn_net *net, int more);

/* ---- one-sided access across hosts ---- */
typedef struct sn_net_region sn_net_region;
/* Collective over members (may include ranks of my host, which are left out): they may read and
 * write [at, at + bytes) of my memory until the region is closed. */
sn_status sn_net_region_open(sn_net *net, const int *members, int n, void *at, uint64_t bytes,
                             sn_time deadline, sn_net_region **ret);
/* Local, after all members have agreed that nothing is under way (or died). NULL is fine. */
void sn_net_region_close(sn_net_region *region);
/* [offset, offset + bytes) of members[member]'s memory; as sn_net_send: `buf` is borrowed until the
 * request completes, SN_AGAIN when requests are out. A put is there when a later flush is done. */
sn_status sn_net_put(sn_net_region *region, int member, uint64_t offset, const void *buf,
                     size_t bytes, sn_net_req **ret);
sn_status sn_net_get(sn_net_region *region, int member, uint64_t offset, void *buf, size_t bytes,
                     sn_net_req **ret);
sn_status sn_net_flush(sn_net *net, int peer, sn_net_req **ret);

/* ---- setting up groups ---- */

/* Hand each same-host member a duplicate of every member's fd: members[] (n, sorted, contains me,
 * all on my host, the same on each), ret_fds[i] is members[i]'s (mine dup'ed), close-on-exec.
 * Collective over them. */
sn_status sn_net_share_fds(sn_net *net, const int *members, int n, int fd, sn_time deadline,
                           int *ret_fds);

/* Small-blob all-gather among `members` over whatever reaches them. bytes ≤ 1 KiB, equal on all. */
sn_status sn_net_gather(sn_net *net, const int *members, int n, const void *blob, size_t bytes,
                        sn_time deadline, void *ret);

/* Half round-trip latency (8 B, median of 200) and bandwidth (1 MiB, median of 8) to a peer on
 * another host; both ends call and get the same numbers. */
sn_status sn_net_measure(sn_net *net, int peer, sn_time deadline, double *ret_latency_ns,
                         double *ret_bytes_per_s);

#endif
