/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SN_NET_RDMA_H
#define SN_NET_RDMA_H

#include "base/base.h"

typedef struct net_rdma {
    char devices[160]; /* the active ports as UCX names them: "mlx5_0:1,mlx5_1:1"; "" none */
    bool soft;         /* one of them is made of software */
    int gid;           /* index of the address that a soft one must use, -1 UCX chooses */
} net_rdma;

void net_rdma_list(net_rdma *ret);

#endif
