/* SPDX-License-Identifier: Apache-2.0
 * The one test header: cmocka in its order, and a runner that names the group after the file. */
#ifndef SN_TEST_H
#define SN_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define sn_test_run(tests) cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL)

/* --test PATTERN (with * and ?): only the tests with such names. */
static inline void sn_test_args(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--test") == 0)
            cmocka_set_test_filter(argv[i + 1]);
}

/* A status that must be SN_OK; shows the sentence when it is not. */
#define assert_ok(expr)                                                                            \
    do {                                                                                           \
        sn_status assert_ok_ = (expr);                                                             \
        if (assert_ok_ != SN_OK)                                                                   \
            fail_msg("%s: %s: %s", #expr, sn_status_name(assert_ok_), sn_errmsg());                \
    } while (0)

#endif
