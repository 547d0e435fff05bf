/* SPDX-License-Identifier: Apache-2.0
 * The kernels in the order in which they use one another; included once by each width. */
#include "kern/cpu/conv.h"
#include "kern/cpu/kernels.h"
#include "kern/cpu/product.h"
#include "kern/ref/ref.h"

#include <math.h>
#include <string.h>

#include "kern/cpu/vec.h"

#include "kern/cpu/panel.h"

#include "kern/cpu/k_embed.c"

#include "kern/cpu/k_attention.c"

#include "kern/cpu/k_activate.c"
#include "kern/cpu/k_attend.c"
#include "kern/cpu/k_batch_norm.c"
#include "kern/cpu/k_broadcast.c"
#include "kern/cpu/k_convert.c"
#include "kern/cpu/k_gelu.c"
#include "kern/cpu/k_norm.c"
#include "kern/cpu/k_optimizer.c"
#include "kern/cpu/k_pool.c"
#include "kern/cpu/k_product.c"
#include "kern/cpu/k_xent.c"

#include "kern/cpu/k_table.c"
