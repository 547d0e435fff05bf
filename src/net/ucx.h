/* SPDX-License-Identifier: Apache-2.0
 *
 * ucx — the functions of UCX that net uses, as a table filled by dlopen.
 *
 * UCX is loaded when a job really spans hosts and not before: loading it takes 2 ms, starts with
 * taking over SIGSEGV, SIGBUS, SIGHUP and others for its own debugger (undone here at once), and a
 * job on one host needs none of it. */
#ifndef SN_NET_UCX_H
#define SN_NET_UCX_H

#include "net/iface.h"

#include <ucp/api/ucp.h>

#define UCX_FUNCTIONS(X)                                                                           \
    X(ucp_config_read)                                                                             \
    X(ucp_config_modify)                                                                           \
    X(ucp_config_release)                                                                          \
    X(ucp_init_version)                                                                            \
    X(ucp_cleanup)                                                                                 \
    X(ucp_worker_create)                                                                           \
    X(ucp_worker_destroy)                                                                          \
    X(ucp_worker_get_address)                                                                      \
    X(ucp_worker_release_address)                                                                  \
    X(ucp_worker_get_efd)                                                                          \
    X(ucp_worker_arm)                                                                              \
    X(ucp_worker_progress)                                                                         \
    X(ucp_worker_flush_nbx)                                                                        \
    X(ucp_worker_set_am_recv_handler)                                                              \
    X(ucp_ep_create)                                                                               \
    X(ucp_ep_close_nbx)                                                                            \
    X(ucp_ep_flush_nbx)                                                                            \
    X(ucp_ep_rkey_unpack)                                                                          \
    X(ucp_am_send_nbx)                                                                             \
    X(ucp_mem_map)                                                                                 \
    X(ucp_mem_unmap)                                                                               \
    X(ucp_rkey_pack)                                                                               \
    X(ucp_rkey_buffer_release)                                                                     \
    X(ucp_rkey_destroy)                                                                            \
    X(ucp_put_nbx)                                                                                 \
    X(ucp_get_nbx)                                                                                 \
    X(ucp_tag_send_nbx)                                                                            \
    X(ucp_tag_recv_nbx)                                                                            \
    X(ucp_tag_probe_nb)                                                                            \
    X(ucp_tag_msg_recv_nbx)                                                                        \
    X(ucp_request_cancel)                                                                          \
    X(ucp_request_check_status)                                                                    \
    X(ucp_request_free)

typedef struct ucx {
    void *ucs, *ucp; /* library handles */
    const char *(*ucs_status_string)(ucs_status_t status);
#define UCX_MEMBER(name) __typeof__(name) *name;
    UCX_FUNCTIONS(UCX_MEMBER)
#undef UCX_MEMBER
} ucx;

/* The library stays loaded until the process ends: it keeps threads and hooks of its own. */
sn_status ucx_load(ucx *ret);

/* A context, quiet, without signal handlers. `transports`: "rc,ud,tcp" or some of them; NULL: RDMA
 * when a device is active and UCX can use it, and tcp at this address. */
sn_status ucx_context(const ucx *u, const net_address *address, const char *transports,
                      ucp_context_h *ret, char ret_text[80]);

#endif
