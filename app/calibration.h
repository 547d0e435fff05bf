/* SPDX-License-Identifier: Apache-2.0
 *
 * calibration — what collectives were measured to cost on this machine, kept between runs.
 *
 *   calibrate ──▶ $XDG_CACHE_HOME/supernode/coll-MACHINE-2x4-KIND.json ──▶ explain, train
 *                       (else ~/.cache/supernode)
 *
 * One file a machine (processor and cores) and shape (hosts × cards, what joins the hosts). Written
 * whole or not at all. One that is damaged, or of another machine or version, is passed over with a
 * warning: predictions then come from the topology. */
#ifndef SN_APP_CALIBRATION_H
#define SN_APP_CALIBRATION_H

#include "algo/algo.h"

typedef enum sn_hosts_kind {
    SN_HOSTS_ONE,
    SN_HOSTS_EMULATED, /* on this machine */
    SN_HOSTS_LAUNCHED  /* by mpirun or srun */
} sn_hosts_kind;

typedef struct sn_calibration_rates { /* measured by themselves; 0: not */
    double signal_ns, copy_bytes_per_s, reduce_bytes_per_s, contention;
    double net_latency_ns, net_bytes_per_s, net_message_ns;
} sn_calibration_rates;

typedef struct sn_calibration {
    int hosts, cards;
    sn_hosts_kind kind;
    char path[4096], machine[160], when[32];
    int samples;
    double error, seconds; /* mean relative error of the fit; what measuring took */
    sn_calibration_rates rates;
    sn_algo_model model;
} sn_calibration;

sn_hosts_kind sn_hosts_kind_of(int hosts, bool launched);

/* Fills in path and machine, by hosts, cards and kind; for knowing early that it cannot be kept:
 * SN_ENOTFOUND, there is no directory. */
sn_status sn_calibration_place(sn_calibration *c);
/* The same, when, and writes it. */
sn_status sn_calibration_save(sn_calibration *c);

/* True: *ret is filled in. `warning` gets a sentence when there is a file that cannot be used. */
bool sn_calibration_load(int hosts, int cards, sn_hosts_kind kind, sn_calibration *ret,
                         sn_str *warning);
/* The same without being asked about: the warning is logged. NULL: none; else free() it. */
sn_calibration *sn_calibration_find(int hosts, int cards, sn_hosts_kind kind);

void sn_calibration_json(const sn_calibration *c, sn_str *out);
/* As written; `path` is for the sentence. */
sn_status sn_calibration_parse(const char *text, size_t bytes, const char *path,
                               sn_calibration *ret);

#endif
