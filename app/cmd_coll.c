/* SPDX-License-Identifier: Apache-2.0
 * supernode coll explain: the algorithms for a call, their predicted times, the choice and why. */
#include "cmd.h"
#include "coll_question.h"

#include "os/os.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- the question ---- */

static sn_status bad_choice(const char *flag, const char *given, const char *const *known, int n)
{
    sn_str all = {0};
    for (int i = 0; i < n; i++)
        sn_str_printf(&all, "%s%s", i > 0 ? ", " : "", known[i]);
    sn_status status =
        sn_fail(SN_EINVAL, "--%s is '%s'; there is %s", flag, given, sn_str_get(&all));
    sn_str_done(&all);
    return status;
}

static sn_status read_op(const sn_args *args, sn_algo_call *c)
{
    const char *given = sn_args_get(args, "op"), *known[SN_COLL_OPS];
    for (int i = 0; i < SN_COLL_OPS; i++) {
        known[i] = sn_coll_op_name((sn_coll_op) i);
        if (given == NULL || strcmp(given, known[i]) != 0)
            continue;
        c->op = (sn_coll_op) i;
        return SN_OK;
    }
    return given == NULL ? SN_OK : bad_choice("op", given, known, SN_COLL_OPS);
}

static sn_status read_dtype(const sn_args *args, sn_algo_call *c)
{
    const char *given = sn_args_get(args, "dtype");
    char upper[16] = "F32";
    for (size_t i = 0; given != NULL && i < sizeof(upper); i++) {
        upper[i] = (char) toupper((unsigned char) given[i]);
        if (given[i] == '\0')
            break;
    }
    upper[sizeof(upper) - 1] = '\0';
    if (!sn_dtype_parse(upper, &c->dtype))
        return sn_fail(SN_EINVAL, "--dtype is '%s'; f32, bf16 and f16 can be reduced", given);
    if ((c->op == SN_ALL_REDUCE || c->op == SN_REDUCE_SCATTER) && c->dtype != SN_F32 &&
        c->dtype != SN_BF16 && c->dtype != SN_F16)
        return sn_fail(SN_ENOTSUP, "--dtype is '%s': f32, bf16 and f16 can be reduced", given);
    return SN_OK;
}

static sn_status read_call(const sn_args *args, sn_algo_call *c)
{
    const char *size = sn_args_get(args, "bytes");
    uint64_t bytes = 1 << 20;
    SN_TRY(read_op(args, c));
    SN_TRY(read_dtype(args, c));
    if (size != NULL && (!sn_str_to_bytes(size, &bytes) || bytes > UINT64_C(1) << 50))
        return sn_fail(SN_EINVAL, "--bytes is '%s', not a size like 64K, 8M or 1.5G", size);
    uint64_t each = sn_dtype_bytes(c->dtype);
    c->count = c->op == SN_BARRIER ? 0 : (int64_t) ((bytes + each - 1) / each);
    return SN_OK;
}

/* The first `cards` cards of the first `hosts` hosts; 0: all. */
static sn_status choose_members(sn_question *q, int64_t hosts, int64_t cards)
{
    const sn_topo *topo = q->topo;
    if (hosts > topo->hosts)
        return sn_fail(SN_EFIT, "the cluster has %d hosts, not %lld", topo->hosts,
                       (long long) hosts);
    q->hosts = hosts > 0 ? (int) hosts : topo->hosts;
    for (int h = 0; h < q->hosts; h++) {
        const sn_topo_host *host = &topo->host[h];
        if (cards > host->cards)
            return sn_fail(SN_EFIT, "host %s has %d cards, not %lld", host->name, host->cards,
                           (long long) cards);
        for (int k = 0; k < (cards > 0 ? cards : host->cards); k++) {
            if (q->group.members == SN_QUESTION_MEMBERS)
                return sn_fail(SN_EFIT, "more than %d members; take fewer --hosts or --cards",
                               SN_QUESTION_MEMBERS);
            q->host[q->group.members] = h;
            q->card[q->group.members++] = host->first_card + k;
        }
    }
    if (q->group.members == 0)
        return sn_fail(SN_EFIT, "these hosts have no cards");
    q->group.host = q->host;
    q->cards = q->group.members / q->hosts;
    return SN_OK;
}

/* Calibrated where this machine is asked about and was measured. */
static void choose_model(sn_question *q)
{
    q->group.model = &q->model;
    if (!q->cluster)
        q->calibration = sn_calibration_find(q->hosts, q->cards, sn_hosts_kind_of(q->hosts, false));
    q->model = q->calibration
                   ? sn_algo_model_for(&q->calibration->model, q->topo, q->card, q->group.members)
                   : sn_algo_model_from(q->topo, q->card, q->group.members);
}

static sn_status read_topology(const char *cluster, int64_t hosts, int64_t cards, sn_topo **ret)
{
    sn_job job = {.hosts = (int) SN_MAX(hosts, 1),
                  .cards_per_host = cards > 0 ? (int) cards : sn_cores()};
    if (cluster != NULL)
        return sn_cluster_read(cluster, ret);
    if ((int64_t) job.hosts * job.cards_per_host > SN_QUESTION_MEMBERS)
        return sn_fail(SN_EFIT, "more than %d members; take fewer --hosts or --cards",
                       SN_QUESTION_MEMBERS);
    return sn_job_topology(&job, ret);
}

static sn_status answer(const sn_args *args, sn_question *q)
{
    sn_answer a;
    sn_str out = {0};
    SN_TRY(sn_question_answer(q, &a));
    if (sn_args_get(args, "measure"))
        SN_TRY(sn_question_measure(q, &a));
    if (sn_args_get(args, "json")) {
        sn_answer_json(q, &a);
        return SN_OK;
    }
    sn_answer_text(q, &a, &out);
    fputs(sn_str_get(&out), stdout);
    sn_str_done(&out);
    return SN_OK;
}

static sn_status explain(const sn_args *args, int64_t hosts, int64_t cards)
{
    sn_question *q = sn_alloc(sizeof *q);
    sn_topo *topo = NULL;
    q->call = (sn_algo_call){.op = SN_ALL_REDUCE, .red = SN_SUM};
    q->cluster = sn_args_get(args, "cluster");
    sn_status status = read_call(args, &q->call);
    if (status >= 0)
        status = read_topology(q->cluster, hosts, cards, &topo);
    q->topo = topo;
    if (status >= 0)
        status = choose_members(q, hosts, cards);
    if (status >= 0) {
        choose_model(q);
        status = answer(args, q);
    }
    free((void *) q->calibration);
    sn_topo_free(topo);
    free(q);
    return status;
}

int sn_cmd_coll(const sn_args *args)
{
    int64_t hosts = 0, cards = 0;
    if (args->words != 1 || strcmp(args->word[0], "explain") != 0)
        return sn_exit_with("coll", sn_fail(SN_EINVAL, "say what: supernode coll explain"));
    if (!sn_args_int(args, "hosts", 1, SN_QUESTION_MEMBERS, &hosts) ||
        !sn_args_int(args, "cards", 1, SN_QUESTION_MEMBERS, &cards))
        return SN_EXIT_USAGE;
    sn_status status = explain(args, hosts, cards);
    return status < 0 ? sn_exit_with("coll", status) : SN_EXIT_OK;
}
