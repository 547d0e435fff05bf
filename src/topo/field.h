/* SPDX-License-Identifier: Apache-2.0
 * Fields that only a cluster file has: quantities with units, and words that can be names. */
#ifndef SN_TOPO_FIELD_H
#define SN_TOPO_FIELD_H

#include "base/base.h"

typedef enum topo_unit { TOPO_RATE, TOPO_TIME, TOPO_BYTES, TOPO_FLOPS } topo_unit;

/* A number above 0 with a unit, into bytes/s, ns, bytes or flop/s; the word `unknown` (allowed
 * where `or_unknown`) is 0. */
sn_status topo_quantity(const sn_yaml_doc *doc, const sn_yaml_node *node, const char *what,
                        topo_unit unit, bool or_unknown, double *ret);
/* The shortest text that reads back as exactly this number. */
void topo_quantity_add(sn_str *out, topo_unit unit, double value);

/* A word that can be a name: at most TOPO_NAME_LONG of topo_name_char. */
enum { TOPO_NAME_LONG = 64 };
sn_status topo_word(const sn_yaml_doc *doc, const sn_yaml_node *node, const char *what,
                    const char **ret);

#endif
