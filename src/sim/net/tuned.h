/* SPDX-License-Identifier: Apache-2.0
 * Parameters that `supernode sim net --tune 120 --seed 1` found. */
opts->red = (sn_roce_red){.kmin_bytes = 117517, .kmax_bytes = 198745, .pmax = 0.2036};
opts->dcqcn = (sn_roce_dcqcn){.g = 0.038253,
                              .alpha_us = 17.97,
                              .cnp_us = 57.40,
                              .timer_us = 72.94,
                              .byte_counter = 3302489,
                              .fast_recovery = 5,
                              .rai_bps = 7.8825e+08,
                              .rhai_bps = 1.0492e+09,
                              .rate_min_bps = 4.0000e+07};
