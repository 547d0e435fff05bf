/* SPDX-License-Identifier: Apache-2.0 */
#include "net/ucx.h"

#include "net/rdma.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A symbol by its name; the indirection is how POSIX has data pointers become functions. */
static bool find(void *library, const char *name, void *ret_symbol)
{
    void *at = dlsym(library, name);
    memcpy(ret_symbol, &at, sizeof at);
    return at != NULL;
}

static sn_status calm(const ucx *u)
{
    void (*disable_signals)(void);
    ucs_status_t (*set_value)(const char *, const char *);
    if (!find(u->ucs, "ucs_debug_disable_signals", &disable_signals) ||
        !find(u->ucs, "ucs_global_opts_set_value", &set_value))
        return sn_fail(SN_ENOTSUP, "this UCX is not one that can be kept quiet (1.13 is)");
    disable_signals();
    set_value("HANDLE_ERRORS", "none");
    set_value("LOG_LEVEL", "fatal");
    return SN_OK;
}

sn_status ucx_load(ucx *ret)
{
    ucx u = {0};
    /* Read while the library loads, so it cannot be said in any other way: do not patch mmap,
     * madvise and their like in this process. That is for registered memory, which tcp has not. */
    setenv("UCX_MEM_EVENTS", "n", 0);
    u.ucs = dlopen("libucs.so.0", RTLD_NOW | RTLD_LOCAL);
    u.ucp = u.ucs ? dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!u.ucp)
        return sn_fail(SN_ENOTFOUND,
                       "a job over several hosts needs UCX, which cannot be loaded (%s): install "
                       "libucx0",
                       dlerror());
    SN_TRY(calm(&u));
    const char *missing = NULL;
    if (!find(u.ucs, "ucs_status_string", &u.ucs_status_string))
        missing = "ucs_status_string";
#define UCX_FIND(name)                                                                             \
    if (!find(u.ucp, #name, &u.name))                                                              \
        missing = #name;
    UCX_FUNCTIONS(UCX_FIND)
#undef UCX_FIND
    if (missing)
        return sn_fail(SN_ENOTSUP, "this UCX has no %s: version 1.13 or later is needed", missing);
    *ret = u;
    return SN_OK;
}

/* ---- which transports ---- */

typedef struct ucx_wish {
    bool rdma, tcp;
    char tls[32], devices[200];
    net_rdma found;
} ucx_wish;

/* "rc,tcp" → what it asks for. */
static sn_status parse(const char *transports, ucx_wish *ret)
{
    for (const char *at = transports; *at;) {
        size_t n = strcspn(at, ",");
        bool rdma = n == 2 && (strncmp(at, "rc", 2) == 0 || strncmp(at, "ud", 2) == 0);
        bool tcp = n == 3 && strncmp(at, "tcp", 3) == 0;
        if ((!rdma && !tcp) || strlen(transports) >= sizeof ret->tls - sizeof ",self")
            return sn_fail(SN_EINVAL, "transports \"%s\": rc, ud and tcp, with commas, are known",
                           transports);
        ret->rdma |= rdma;
        ret->tcp |= tcp;
        at += n;
        at += *at == ',';
    }
    snprintf(ret->tls, sizeof ret->tls, "%s,self", transports);
    return SN_OK;
}

static sn_status plan(const net_address *address, const char *transports, ucx_wish *ret)
{
    SN_TRY(parse(transports, ret));
    if (ret->rdma && !ret->found.devices[0])
        return sn_fail(SN_ENOTFOUND, "transports \"%s\": no RDMA device is active (see rdma link)",
                       transports);
    snprintf(ret->devices, sizeof ret->devices, "%s%s%s", ret->rdma ? ret->found.devices : "",
             ret->rdma && ret->tcp ? "," : "", ret->tcp ? address->name : "");
    return SN_OK;
}

/* ---- the context ---- */

static sn_status configure(const ucx *u, const net_address *address, const ucx_wish *wish,
                           ucp_config_t *config)
{
    char gid[16];
    ucs_status_t code = u->ucp_config_modify(config, "NET_DEVICES", wish->devices);
    if (code == UCS_OK)
        code = u->ucp_config_modify(config, "TLS", wish->tls);
    if (code != UCS_OK)
        return sn_fail(SN_EIO, "UCX takes no settings: %s", u->ucs_status_string(code));
    /* Flushing the worker then asks its interfaces, not every peer for an answer. UCX 1.13 ends the
     * process over verbs, where nobody flushes so. */
    if (!wish->rdma)
        u->ucp_config_modify(config, "FLUSH_WORKER_EPS", "n");
    /* The transports' own settings are named without their prefix here; where they are not known
     * UCX is merely slower, or says later what it cannot do.
     * Larger pieces than the usual 8 and 64 KiB: 1 MiB messages go twice as fast over loopback. */
    u->ucp_config_modify(config, "TX_SEG_SIZE", "256k");
    u->ucp_config_modify(config, "RX_SEG_SIZE", "256k");
    /* Else a peer whose packets vanish holds the worker in connect(2) for minutes. */
    u->ucp_config_modify(config, "CONN_NB", "y");
    u->ucp_config_modify(config, "AF_PRIO", address->family == 4 ? "inet" : "inet6");
    if (!wish->rdma)
        return SN_OK;
    u->ucp_config_modify(config, "RCACHE_MAX_REGIONS", "4096"); /* and no more mappings pinned */
    /* Else a forked child has no memory where its parent has registered buffers. Since 5.12 Linux
     * copies such pages when it forks, which is what this setting is there to replace. */
    u->ucp_config_modify(config, "FORK_INIT", "n");
    if (wish->found.soft) /* checks an address that the software device does not deliver */
        u->ucp_config_modify(config, "ETH_DGID_CHECK", "n");
    if (wish->found.gid >= 0) {
        snprintf(gid, sizeof gid, "%d", wish->found.gid);
        u->ucp_config_modify(config, "GID_INDEX", gid);
    }
    return SN_OK;
}

static sn_status init(const ucx *u, const net_address *address, const ucx_wish *wish,
                      ucp_context_h *ret)
{
    ucp_config_t *config;
    ucs_status_t code = u->ucp_config_read(NULL, NULL, &config);
    if (code != UCS_OK)
        return sn_fail(SN_EIO, "UCX cannot read its settings (%s): check the UCX_ variables",
                       u->ucs_status_string(code));
    sn_status status = configure(u, address, wish, config);
    if (status >= 0) {
        ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                               .features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_RMA |
                                           UCP_FEATURE_WAKEUP};
        sigset_t all, old;
        sigfillset(&all); /* UCX starts a thread here: signals are not for it */
        pthread_sigmask(SIG_SETMASK, &all, &old);
        code = u->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, ret);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (code != UCS_OK)
            status = sn_fail(SN_EIO, "UCX cannot use %s on %s: %s", wish->tls, wish->devices,
                             u->ucs_status_string(code));
    }
    u->ucp_config_release(config);
    return status;
}

sn_status ucx_context(const ucx *u, const net_address *address, const char *transports,
                      ucp_context_h *ret, char ret_text[80])
{
    ucx_wish wish = {0};
    net_rdma_list(&wish.found);
    bool guess = !transports && wish.found.devices[0];
    SN_TRY(plan(address, guess ? "rc,ud,tcp" : transports ? transports : "tcp", &wish));
    sn_status status = init(u, address, &wish, ret);
    if (status < 0 && guess) {
        sn_log(SN_LOG_DEBUG, "%s; going on with tcp", sn_errmsg());
        wish.rdma = false;
        SN_TRY(plan(address, "tcp", &wish));
        status = init(u, address, &wish, ret);
    }
    SN_TRY(status);
    size_t n = strlen(wish.tls) - strlen(",self");
    snprintf(ret_text, 80, "%.*s on %.60s", (int) n, wish.tls, wish.devices);
    return SN_OK;
}
