/* SPDX-License-Identifier: Apache-2.0
 * The oracle once more, in double: what finite differences are taken of. */
#ifndef SN_TEST_KERN_REF64_H
#define SN_TEST_KERN_REF64_H

#define SN_REF_REAL double
#define REF(name) ref64_##name
#define REF_IMPLS ref64_impls

#include "kern/ref/ref.h"

#include "kern/ref/activate.c"
#include "kern/ref/attend.c"
#include "kern/ref/attention.c"
#include "kern/ref/batch_norm.c"
#include "kern/ref/conv.c"
#include "kern/ref/elementwise.c"
#include "kern/ref/embed.c"
#include "kern/ref/linear.c"
#include "kern/ref/loss.c"
#include "kern/ref/moe.c"
#include "kern/ref/move.c"
#include "kern/ref/norm.c"
#include "kern/ref/optimizer.c"
#include "kern/ref/rms.c"
#include "kern/ref/table.c"
#include "kern/ref/tensor.c"
#include "kern/ref/tensor_index.c"
#include "kern/ref/tensor_map.c"
#include "kern/ref/tensor_move.c"
#include "kern/ref/tensor_reduce.c"
#include "kern/ref/tensor_window.c"
#include "kern/ref/xent.c"

#endif
