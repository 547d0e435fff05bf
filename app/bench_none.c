/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"
const bench_case bench_compute[]={{.area="compute"}}, bench_net[]={{.area="net"}}, bench_coll[]={{.area="coll"}}, bench_train[]={{.area="train"}}, bench_ckpt[]={{.area="ckpt"}}, bench_plan[]={{.area="plan"}};
