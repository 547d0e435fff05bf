/* SPDX-License-Identifier: Apache-2.0
 *
 * past — the last steps before a checkpoint, in its description. Whoever writes metrics.jsonl may
 * die after a step and before its row; a run that resumes behind that step puts the row there. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "train/parts.h"

static json_t *row_of(const sn_page_step *s)
{
    /* NaN, which JSON has not, is null; a loss of NaN is news, so it must come back as one */
    json_t *val = isfinite(s->val_loss) ? json_real(s->val_loss) : json_null();
    json_t *loss = isfinite(s->loss) ? json_real(s->loss) : json_null();
    json_t *norm = isfinite(s->grad_norm) ? json_real(s->grad_norm) : json_null();
    return json_pack("[I,o,o,f,o,I,I,f]", (json_int_t) s->step, loss, norm, s->lr, val,
                     (json_int_t) s->step_ns, (json_int_t) s->tokens, s->flops);
}

void train_past_write(const sn_page *page, int64_t step, sn_str *out)
{
    json_t *rows = json_array();
    sn_page_step s;
    for (int64_t i = SN_MAX(0, step - SN_PAGE_RING); i < step; i++)
        if (sn_page_step_read(page, i, &s))
            json_array_append_new(rows, row_of(&s));
    char *text = json_dumps(rows, JSON_COMPACT | JSON_REAL_PRECISION(17));
    sn_str_add(out, text ? text : "[]");
    free(text);
    json_decref(rows);
}

static double number(const json_t *row, size_t i)
{
    const json_t *v = json_array_get(row, i);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

int train_past_read(const json_t *rows, int64_t step, sn_page_step ret[SN_PAGE_RING])
{
    size_t i;
    const json_t *row;
    int count = 0;
    json_array_foreach(rows, i, row)
    {
        const json_t *at = json_array_get(row, 0);
        int64_t of = json_is_integer(at) ? json_integer_value(at) : -1;
        if (of < SN_MAX(0, step - SN_PAGE_RING) || of >= step || count == SN_PAGE_RING)
            continue; /* not of this checkpoint */
        ret[count++] = (sn_page_step){.step = of,
                                      .loss = number(row, 1),
                                      .grad_norm = number(row, 2),
                                      .lr = number(row, 3),
                                      .val_loss = number(row, 4),
                                      .step_ns = json_integer_value(json_array_get(row, 5)),
                                      .tokens = json_integer_value(json_array_get(row, 6)),
                                      .flops = number(row, 7)};
    }
    return count;
}
