/* SPDX-License-Identifier: Apache-2.0 */
#include "fold/fold.h"

static const char *const red_name[SN_REDS] = {"sum", "avg", "max", "min"};

const char *sn_red_name(sn_red red)
{
    return (unsigned) red < SN_REDS ? red_name[red] : "?";
}
