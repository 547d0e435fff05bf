/* SPDX-License-Identifier: Apache-2.0
 * Names, and quantities with units. */
#include "topo/field.h"
#include "topo/model.h"

#include <stdio.h>
#include <string.h>

sn_status topo_word(const sn_yaml_doc *doc, const sn_yaml_node *node, const char *what,
                    const char **ret)
{
    const char *text = NULL;
    SN_TRY(sn_yaml_text(doc, node, what, &text));
    for (const char *c = text; *c; c++)
        if (!topo_name_char(*c))
            return sn_yaml_fail(
                doc, node, "`%s` is `%.64s`: letters, digits and -_.:@+ make a name", what, text);
    if (strlen(text) > TOPO_NAME_LONG)
        return sn_yaml_fail(doc, node, "`%s` is `%.32s…`: at most %d characters", what, text,
                            TOPO_NAME_LONG);
    *ret = text;
    return SN_OK;
}

typedef struct unit_row {
    topo_unit unit;
    const char *text;
    double factor;
} unit_row;

/* The writer takes the shortest text that reads back exactly, the upper row among equals. `Gb/s` is
 * not a unit: nobody can tell whether bits or bytes were meant. */
static const unit_row units[] = {
    {TOPO_RATE, "TB/s", 1e12},     {TOPO_RATE, "GB/s", 1e9},      {TOPO_RATE, "MB/s", 1e6},
    {TOPO_RATE, "KB/s", 1e3},      {TOPO_RATE, "B/s", 1},         {TOPO_RATE, "TiB/s", 0x1p40},
    {TOPO_RATE, "GiB/s", 0x1p30},  {TOPO_RATE, "MiB/s", 0x1p20},  {TOPO_RATE, "KiB/s", 0x1p10},
    {TOPO_RATE, "Tbit/s", 125e9},  {TOPO_RATE, "Gbit/s", 125e6},  {TOPO_RATE, "Mbit/s", 125e3},
    {TOPO_RATE, "Kbit/s", 125},    {TOPO_TIME, "s", 1e9},         {TOPO_TIME, "ms", 1e6},
    {TOPO_TIME, "us", 1e3},        {TOPO_TIME, "ns", 1},          {TOPO_TIME, "µs", 1e3},
    {TOPO_BYTES, "TiB", 0x1p40},   {TOPO_BYTES, "GiB", 0x1p30},   {TOPO_BYTES, "MiB", 0x1p20},
    {TOPO_BYTES, "KiB", 0x1p10},   {TOPO_BYTES, "B", 1},          {TOPO_BYTES, "TB", 1e12},
    {TOPO_BYTES, "GB", 1e9},       {TOPO_BYTES, "MB", 1e6},       {TOPO_BYTES, "KB", 1e3},
    {TOPO_FLOPS, "PFLOP/s", 1e15}, {TOPO_FLOPS, "TFLOP/s", 1e12}, {TOPO_FLOPS, "GFLOP/s", 1e9},
    {TOPO_FLOPS, "MFLOP/s", 1e6},  {TOPO_FLOPS, "FLOP/s", 1},
};

typedef struct unit_kind {
    const char *example;
    double most; /* beyond any machine, and safe to add up */
} unit_kind;

static const unit_kind kinds[] = {
    [TOPO_RATE] = {"25GB/s or 400Gbit/s", 1e18},
    [TOPO_TIME] = {"5us or 800ns", 1e9},
    [TOPO_BYTES] = {"80GB or 64GiB", 0x1p60},
    [TOPO_FLOPS] = {"989TFLOP/s", 1e24},
};

/* The factor of a unit of this kind, or 0. */
static double factor_of(topo_unit unit, const char *text)
{
    for (size_t i = 0; i < SN_COUNT(units); i++)
        if (units[i].unit == unit && !strcmp(units[i].text, text))
            return units[i].factor;
    return 0;
}

/* "25 GB/s" → 25 and "GB/s"; false when there is no number. */
static bool split(const char *text, double *ret_number, const char **ret_unit)
{
    char number[48];
    size_t n = strspn(text, "0123456789.+-");
    /* an exponent, but not the E of a unit */
    if (n && (text[n] == 'e' || text[n] == 'E'))
        n += 1 + strspn(text + n + 1, "0123456789+-");
    if (!n || n >= sizeof number)
        return false;
    memcpy(number, text, n);
    number[n] = 0;
    *ret_unit = text + n + (text[n] == ' ');
    return sn_str_to_float(number, ret_number);
}

sn_status topo_quantity(const sn_yaml_doc *doc, const sn_yaml_node *node, const char *what,
                        topo_unit unit, bool or_unknown, double *ret)
{
    const char *text = NULL, *tail, *example = kinds[unit].example;
    double v;
    SN_TRY(sn_yaml_text(doc, node, what, &text));
    if (or_unknown && !strcmp(text, "unknown")) {
        *ret = 0;
        return SN_OK;
    }
    if (!split(text, &v, &tail))
        return sn_yaml_fail(doc, node, "`%s` is `%.64s`: a number with a unit is needed, like %s",
                            what, text, example);
    if (!*tail)
        return sn_yaml_fail(doc, node, "`%s` is `%.64s` without a unit: write it like %s", what,
                            text, example);
    double factor = factor_of(unit, tail);
    if (factor == 0)
        return sn_yaml_fail(doc, node,
                            "`%s` is `%.64s`: `%.32s` is not a unit for it; write it like %s", what,
                            text, tail, example);
    v *= factor;
    if (!(v > 0) || v > kinds[unit].most)
        return sn_yaml_fail(doc, node, "`%s` is `%.64s`: it must be above 0 and at most %g %s",
                            what, text, kinds[unit].most,
                            unit == TOPO_RATE    ? "B/s"
                            : unit == TOPO_TIME  ? "ns"
                            : unit == TOPO_BYTES ? "B"
                                                 : "FLOP/s");
    *ret = v;
    return SN_OK;
}

/* Shortest text of `value` in this unit that reads back exactly; false when there is none. */
static bool exact(char out[64], double value, const unit_row *row)
{
    static const int digits[] = {6, 12, 15, 17};
    for (size_t i = 0; i < SN_COUNT(digits); i++) {
        double back;
        snprintf(out, 64, "%.*g", digits[i], value / row->factor);
        if (sn_str_to_float(out, &back) && back * row->factor == value) {
            strcat(out, row->text);
            return true;
        }
    }
    return false;
}

void topo_quantity_add(sn_str *out, topo_unit unit, double value)
{
    char best[64] = "unknown", text[64];
    size_t shortest = SIZE_MAX;
    for (size_t i = 0; value > 0 && i < SN_COUNT(units); i++)
        if (units[i].unit == unit && (value >= units[i].factor || units[i].factor == 1) &&
            exact(text, value, &units[i]) && strlen(text) < shortest) {
            shortest = strlen(text);
            memcpy(best, text, sizeof best);
        }
    sn_str_add(out, best);
}
