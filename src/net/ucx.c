/* SPDX-License-Identifier: Apache-2.0 */
#include "net/ucx.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
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

static sn_status configure(const ucx *u, const char *device, ucp_config_t *config)
{
    ucs_status_t code = u->ucp_config_modify(config, "NET_DEVICES", device);
    if (code == UCS_OK)
        code = u->ucp_config_modify(config, "TLS", "tcp,self");
    if (code != UCS_OK)
        return sn_fail(SN_EIO, "UCX takes no settings: %s", u->ucs_status_string(code));
    /* Larger pieces than the usual 8 and 64 KiB: 1 MiB messages go twice as fast over loopback. The
     * transport's own settings are named without its prefix here; where they are not known it is
     * merely slower. */
    u->ucp_config_modify(config, "TX_SEG_SIZE", "256k");
    u->ucp_config_modify(config, "RX_SEG_SIZE", "256k");
    return SN_OK;
}

sn_status ucx_context(const ucx *u, const char *device, ucp_context_h *ret)
{
    ucp_config_t *config;
    ucs_status_t code = u->ucp_config_read(NULL, NULL, &config);
    if (code != UCS_OK)
        return sn_fail(SN_EIO, "UCX cannot read its settings (%s): check the UCX_ variables",
                       u->ucs_status_string(code));
    sn_status status = configure(u, device, config);
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
            status = sn_fail(SN_EIO, "UCX cannot use the interface %s: %s", device,
                             u->ucs_status_string(code));
    }
    u->ucp_config_release(config);
    return status;
}
