/* SPDX-License-Identifier: Apache-2.0
 *
 * iface — which network interface and address carry the job's traffic.
 *
 * Every rank lists the addresses it has; all lists travel in the first boot exchange, so each rank
 * can judge its own addresses by whom they reach, and all agree on IPv4 or IPv6. */
#ifndef SN_NET_IFACE_H
#define SN_NET_IFACE_H

#include "base/base.h"

#include <sys/socket.h>

#define NET_ADDRESSES 8

typedef enum net_grade {
    NET_LOOPBACK = 1,
    NET_INNER, /* bridges and pairs that container engines make, addresses that nobody gave */
    NET_OUTER,
    NET_ASKED, /* the caller named it */
} net_grade;

typedef struct net_address {
    char name[16];  /* of the interface */
    uint8_t family; /* 4 or 6; 0: none */
    uint8_t prefix; /* bits of the subnet */
    uint8_t grade;  /* net_grade */
    uint8_t route;  /* the default route leaves here */
    uint32_t mbit;  /* per second, 0 unknown */
    uint8_t bytes[16];
} net_address;

typedef struct net_addresses {
    int32_t n;
    net_address list[NET_ADDRESSES];
} net_addresses;

/* All addresses of interfaces that are up, the best grades first when there are too many; with
 * `asked` only that one, SN_ENOTFOUND when no interface has it. */
sn_status net_iface_list(const char *asked, net_addresses *ret);

/* Pure. lists[world] of all ranks, host_of[world]; one_kernel: all are on one machine and in one
 * network namespace. *ret is one of lists[me]; `why` says what decided. SN_ENOTFOUND when no family
 * is had by all (names two ranks). */
sn_status net_iface_choose(const net_addresses *lists, const int *host_of, int world, int me,
                           bool one_kernel, net_address *ret, char why[160]);

/* Until the interface is running; UCX must be able to see it. */
sn_status net_iface_wait(const net_address *address, sn_time deadline);

const char *net_address_text(const net_address *a, char out[64]); /* "10.0.0.1" */
socklen_t net_address_socket(const net_address *a, uint16_t port, struct sockaddr_storage *ret);

#endif
