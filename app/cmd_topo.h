/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SN_APP_CMD_TOPO_H
#define SN_APP_CMD_TOPO_H

/* supernode topo; argv[0] is "topo". Returns the exit code. */
int sn_cmd_topo(int argc, char **argv);

#endif
