/* SPDX-License-Identifier: Apache-2.0
 * Areas that have no cases. */
#include "bench.h"

const bench_case bench_compute[] = {{.area = "compute"}};
const bench_case bench_net[] = {{.area = "net"}};
const bench_case bench_coll[] = {{.area = "coll"}};
const bench_case bench_train[] = {{.area = "train"}};
const bench_case bench_ckpt[] = {{.area = "ckpt"}};
const bench_case bench_plan[] = {{.area = "plan"}};
