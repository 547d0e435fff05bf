/* SPDX-License-Identifier: Apache-2.0
 *
 * base — the words the rest is written in: status, arena, strings, units, random numbers, tensors,
 * log. Front door of the layer; pure. */
#ifndef SN_BASE_BASE_H
#define SN_BASE_BASE_H

#include "base/arena.h"
#include "base/log.h"
#include "base/prng.h"
#include "base/status.h"
#include "base/str.h"
#include "base/tensor.h"
#include "base/yaml.h"

#define SN_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define SN_MIN(a, b) ((a) < (b) ? (a) : (b))
#define SN_MAX(a, b) ((a) > (b) ? (a) : (b))
#define SN_ALIGN_UP(x, a) (((x) + (a) -1) / (a) * (a))

#endif
