/* SPDX-License-Identifier: Apache-2.0
 * Cluster files. What is accepted must hold every invariant and be read again from its own text.
 *   clang -fsanitize=fuzzer,address,undefined … && ./fuzz_topo -max_total_time=30 corpus/topo */
#include "topo/topo.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    enum { LARGE = 5000 }; /* a short text can ask for millions: legal, but slow to fuzz */
    sn_topo *topo = NULL, *again = NULL;
    if (sn_topo_parse((const char *) data, bytes, "fuzz", &topo) != SN_OK)
        return 0;
    if (topo->vertices < LARGE) {
        sn_str text = {0};
        sn_path path;
        sn_topo_check(topo);
        sn_topo_yaml(topo, &text);
        SN_ASSERT(sn_topo_parse(sn_str_get(&text), text.len, "again", &again) == SN_OK);
        SN_ASSERT(sn_topo_equal(topo, again));
        sn_str_clear(&text);
        sn_topo_print(topo, &text);
        sn_topo_dot(topo, &text);
        sn_topo_json(topo, &text);
        if (topo->cards)
            sn_topo_path(topo, 0, topo->cards - 1, &path);
        sn_str_done(&text);
        sn_topo_free(again);
    }
    sn_topo_free(topo);
    return 0;
}
