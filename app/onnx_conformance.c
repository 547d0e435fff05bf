/* SPDX-License-Identifier: Apache-2.0
 * Every model below a folder laid out as ONNX's own tests are: KIND/test_NAME/model.onnx with
 * test_data_set_N beside it. */
#include "onnx_case.h"

#include "cli.h"

#include <dirent.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What is not a tensor computation, or depends on chance: left out of the share of node tests. */
static const struct {
    const char *pattern, *why;
} left_out[] = {
    {"*STRING*", "strings"},
    {"test_strnorm*", "strings"},
    {"test_tfidf*", "strings"},
    {"*sequence_insert*", "sequences"},
    {"*sequence_map*", "sequences"},
    {"*sequence_model*", "sequences"},
    {"test_identity_sequence", "sequences"},
    {"test_loop1*_seq*", "sequences"},
    {"test_if_seq", "sequences"},
    {"test_split_to_sequence*", "sequences"},
    {"*optional*", "optionals"},
    {"test_*_opt", "optionals"},
    {"test_adagrad*", "training ops"},
    {"test_adam*", "training ops"},
    {"test_momentum*", "training ops"},
    {"test_nesterov*", "training ops"},
    {"test_gradient*", "training ops"},
    {"test_bernoulli*", "chance"},
    {"test_training_dropout_default*", "chance"},
    {"test_training_dropout", "chance"},
    {"test_training_dropout_mask", "chance"},
};

enum { OPS_MAX = 256 };
typedef struct tally {
    int passed, failed, unsupported, left_out;
} tally;

typedef struct walk {
    sn_card *card;
    bool failures;
    tally all, node;
    int ops, count[OPS_MAX];
    char *op[OPS_MAX];
} walk;

static const char *why_left_out(const char *name)
{
    for (size_t i = 0; i < SN_COUNT(left_out); i++)
        if (!fnmatch(left_out[i].pattern, name, 0))
            return left_out[i].why;
    return NULL;
}

static void count_op(walk *w, const char *name)
{
    for (int i = 0; i < w->ops; i++)
        if (!strcmp(w->op[i], name)) {
            w->count[i]++;
            return;
        }
    if (w->ops == OPS_MAX)
        return;
    w->op[w->ops] = sn_strdup(name);
    w->count[w->ops++] = 1;
}

static void add(walk *w, bool node, int passed, int failed, int unsupported, int out)
{
    tally *each[] = {&w->all, &w->node};
    for (int i = 0; i < 1 + node; i++) {
        each[i]->passed += passed;
        each[i]->failed += failed;
        each[i]->unsupported += unsupported;
        each[i]->left_out += out;
    }
}

static sn_status all_data(const sn_onnx_model *model, const char *dir, sn_card *card)
{
    sn_str data = {0};
    sn_status status = SN_OK;
    for (int i = 0; status >= 0; i++) {
        sn_str_clear(&data);
        sn_str_printf(&data, "%s/test_data_set_%d", dir, i);
        if (access(sn_str_get(&data), R_OK) != 0)
            break;
        status = sn_onnx_case(model, dir, sn_str_get(&data), card);
    }
    sn_str_done(&data);
    return status;
}

static void one(walk *w, const char *kind, const char *name, const char *dir)
{
    sn_onnx_model *model = NULL;
    sn_str path = {0}, missing = {0};
    bool node = !strcmp(kind, "node");
    const char *out = why_left_out(name);
    sn_str_printf(&path, "%s/model.onnx", dir);
    sn_status status = sn_onnx_file(sn_str_get(&path), &model);
    if (out) {
        add(w, node, 0, 0, 0, 1);
    } else if (status >= 0 && sn_onnx_missing(model, &missing) > 0) {
        add(w, node, 0, 0, 1, 0);
        count_op(w, sn_str_get(&missing));
    } else {
        if (status >= 0)
            status = all_data(model, dir, w->card);
        add(w, node, status >= 0, status < 0, 0, 0);
        if (status < 0 && w->failures)
            printf("%s/%s: %s\n", kind, name, sn_errmsg());
    }
    sn_onnx_free(model);
    sn_str_done(&path);
    sn_str_done(&missing);
}

static int is_test(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static int under(walk *w, const char *root, const char *kind)
{
    struct dirent **list;
    sn_str dir = {0};
    sn_str_printf(&dir, "%s/%s", root, kind);
    int n = scandir(sn_str_get(&dir), &list, is_test, alphasort), models = 0;
    for (int i = 0; i < n; i++) {
        sn_str_clear(&dir);
        sn_str_printf(&dir, "%s/%s/%s", root, kind, list[i]->d_name);
        sn_str model = {0};
        sn_str_printf(&model, "%s/model.onnx", sn_str_get(&dir));
        if (access(sn_str_get(&model), R_OK) == 0) {
            one(w, kind, list[i]->d_name, sn_str_get(&dir));
            models++;
        }
        sn_str_done(&model);
        free(list[i]);
    }
    if (n >= 0)
        free(list);
    sn_str_done(&dir);
    return models;
}

static void say(walk *w)
{
    int tried = w->node.passed + w->node.failed + w->node.unsupported;
    for (int i = 0; i < w->ops; i++)
        printf("unsupported %4d  %s\n", w->count[i], w->op[i]);
    printf("node tests: %d of %d pass (%.1f %%); %d left out: strings, sequences, optionals, "
           "training ops, chance\n",
           w->node.passed, tried, 100.0 * w->node.passed / (tried ? tried : 1), w->node.left_out);
    printf("%d passed, %d failed, %d unsupported\n", w->all.passed, w->all.failed,
           w->all.unsupported);
}

int sn_onnx_conformance(const char *root, sn_card *card, bool failures)
{
    walk w = {.card = card, .failures = failures};
    struct dirent **list;
    int n = scandir(root, &list, is_test, alphasort), models = 0;
    for (int i = 0; i < n; i++) {
        models += under(&w, root, list[i]->d_name);
        free(list[i]);
    }
    if (n >= 0)
        free(list);
    if (!models)
        return sn_exit_with("onnx",
                            sn_fail(SN_ENOTFOUND, "no KIND/NAME/model.onnx below %s", root));
    say(&w);
    for (int i = 0; i < w.ops; i++)
        free(w.op[i]);
    return w.all.failed ? SN_EXIT_FAILED : SN_EXIT_OK;
}
