/* SPDX-License-Identifier: Apache-2.0
 *
 * supernode — everything that programs use, in one include:  cc x.c $(pkg-config --cflags --libs supernode)
 * Each layer's own header says what it promises. */
#ifndef SUPERNODE_H
#define SUPERNODE_H

#include "algo/algo.h"
#include "base/base.h"
#include "ckpt/ckpt.h"
#include "codec/codec.h"
#include "coll/coll.h"
#include "compress/compress.h"
#include "ctl/ctl.h"
#include "fold/fold.h"
#include "gmem/gmem.h"
#include "graph/graph.h"
#include "kern/kern.h"
#include "mon/mon.h"
#include "net/net.h"
#include "os/os.h"
#include "plan/plan.h"
#include "pool/pool.h"
#include "probe/probe.h"
#include "token/token.h"
#include "topo/topo.h"
#include "train/train.h"

#endif
