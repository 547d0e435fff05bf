/* SPDX-License-Identifier: Apache-2.0
 *
 * The build without PMIx. */
#include "net/net.h"

sn_status sn_boot_pmix(sn_boot **ret)
{
    return sn_fail(SN_ENOTSUP, "built without PMIx: install libpmix-dev and build again to start "
                               "under mpirun or srun");
}
