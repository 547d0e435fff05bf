/* SPDX-License-Identifier: Apache-2.0
 *
 * model_json — a model as text, for a cache:
 *
 *   {"format": 1, "signal_ns": 250.0, …, "factor": {"ring": {"all_reduce": [0, 3, -1, 0, 2, 5]}}}
 *
 * Factors that are all 0 are left out. Reading trusts nothing. */
#include "algo/cost.h"

#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT 1

static const struct {
    const char *name;
    size_t at;
    double least; /* a speed of 0 would be no speed */
} field[] = {
#define FIELD(name, least)                                                                         \
    {                                                                                              \
#name, offsetof(sn_algo_model, name), least                                                \
    }
    FIELD(signal_ns, 0),        FIELD(copy_bytes_per_s, 1), FIELD(reduce_bytes_per_s, 1),
    FIELD(net_latency_ns, 0),   FIELD(net_bytes_per_s, 1),  FIELD(net_message_ns, 0),
    FIELD(members_per_core, 1), FIELD(call_ns, 0),          FIELD(net_member_bytes_per_s, 0),
    FIELD(fitted, 0),
#undef FIELD
};

#define LARGEST 1e18

static double *field_of(sn_algo_model *m, size_t i)
{
    return (double *) (void *) ((char *) m + field[i].at);
}

/* ---- writing ---- */

static json_t *factors_json(const int8_t *factor)
{
    json_t *all = json_array();
    bool any = false;
    for (int i = 0; i < SN_ALGO_BANDS; i++) {
        any = any || factor[i] != 0;
        json_array_append_new(all, json_integer(factor[i]));
    }
    if (any)
        return all;
    json_decref(all);
    return NULL;
}

static json_t *row_json(const sn_algo_model *m, int row)
{
    json_t *ops = json_object();
    for (int op = 0; op < SN_COLL_OPS; op++) {
        json_t *f = factors_json(m->factor[row][op]);
        if (f != NULL)
            json_object_set_new(ops, sn_coll_op_name((sn_coll_op) op), f);
    }
    return ops;
}

void sn_algo_model_write(const sn_algo_model *m, sn_str *out)
{
    const sn_algo_row *const *rows;
    sn_algo_model copy = *m;
    int n = sn_algo_rows(&rows);
    json_t *root = json_object(), *factor = json_object();
    json_object_set_new(root, "format", json_integer(FORMAT));
    for (size_t i = 0; i < SN_COUNT(field); i++)
        json_object_set_new(root, field[i].name, json_real(*field_of(&copy, i)));
    for (int r = 0; r < n; r++) {
        json_t *ops = row_json(m, r);
        if (json_object_size(ops) > 0)
            json_object_set(factor, rows[r]->name, ops);
        json_decref(ops);
    }
    json_object_set_new(root, "factor", factor);
    char *text = json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    sn_str_add(out, text != NULL ? text : "");
    sn_str_add(out, "\n");
    free(text);
}

/* ---- reading ---- */

static sn_status read_field(const json_t *root, size_t i, sn_algo_model *m)
{
    const json_t *v = json_object_get(root, field[i].name);
    if (!json_is_number(v))
        return sn_fail(SN_ECORRUPT,
                       "a model of collectives without a number \"%s\": calibrate again",
                       field[i].name);
    double x = json_number_value(v);
    if (!isfinite(x) || x < field[i].least || x > LARGEST)
        return sn_fail(SN_ECORRUPT, "a model of collectives with %s %g: calibrate again",
                       field[i].name, x);
    *field_of(m, i) = x;
    return SN_OK;
}

static sn_status read_factors(const char *row, const char *op, const json_t *v, int8_t *ret)
{
    if (!json_is_array(v) || json_array_size(v) != SN_ALGO_BANDS)
        return sn_fail(SN_ECORRUPT,
                       "factors of %.40s for %.40s that are not %d numbers: calibrate again", op,
                       row, SN_ALGO_BANDS);
    for (size_t i = 0; i < SN_ALGO_BANDS; i++) {
        const json_t *x = json_array_get(v, i);
        json_int_t f = json_integer_value(x);
        if (!json_is_integer(x) || f < -127 || f > 127)
            return sn_fail(SN_ECORRUPT, "factor %zu of %.40s for %.40s is none: calibrate again", i,
                           op, row);
        ret[i] = (int8_t) f;
    }
    return SN_OK;
}

static int row_named(const char *name)
{
    const sn_algo_row *const *rows;
    for (int i = 0, n = sn_algo_rows(&rows); i < n; i++)
        if (strcmp(rows[i]->name, name) == 0)
            return i;
    return -1;
}

static int op_named(const char *name)
{
    for (int i = 0; i < SN_COLL_OPS; i++)
        if (strcmp(sn_coll_op_name((sn_coll_op) i), name) == 0)
            return i;
    return -1;
}

static sn_status read_row(const char *name, json_t *ops, sn_algo_model *m)
{
    int row = row_named(name);
    const char *op;
    json_t *v;
    if (row < 0 || !json_is_object(ops))
        return sn_fail(SN_ECORRUPT,
                       "a model with factors of \"%.40s\", no algorithm here: calibrate again",
                       name);
    json_object_foreach(ops, op, v)
    {
        int at = op_named(op);
        if (at < 0)
            return sn_fail(SN_ECORRUPT,
                           "a model with factors for \"%.40s\", no operation: calibrate again", op);
        SN_TRY(read_factors(name, op, v, m->factor[row][at]));
    }
    return SN_OK;
}

static sn_status read_root(json_t *root, sn_algo_model *m)
{
    json_t *factor = json_object_get(root, "factor"), *ops;
    const char *name;
    if (json_integer_value(json_object_get(root, "format")) != FORMAT)
        return sn_fail(SN_ECORRUPT, "not a model of collectives of format %d: calibrate again",
                       FORMAT);
    for (size_t i = 0; i < SN_COUNT(field); i++)
        SN_TRY(read_field(root, i, m));
    if (!json_is_object(factor))
        return sn_fail(SN_ECORRUPT, "a model of collectives without factors: calibrate again");
    json_object_foreach(factor, name, ops) SN_TRY(read_row(name, ops, m));
    return SN_OK;
}

sn_status sn_algo_model_read(const char *text, size_t bytes, sn_algo_model *ret)
{
    json_error_t error;
    sn_algo_model m = {0};
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL)
        return sn_fail(SN_ECORRUPT, "a model of collectives that is no JSON: line %d: %s",
                       error.line, error.text);
    sn_status status = read_root(root, &m);
    json_decref(root);
    if (status == SN_OK)
        *ret = m;
    return status;
}
