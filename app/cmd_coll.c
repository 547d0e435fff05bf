/* SPDX-License-Identifier: Apache-2.0
 * supernode coll explain: the algorithms for a call, their predicted times, the choice and why. */
#include "cmd.h"

#include "algo/algo.h"
#include "os/os.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

enum { MEMBERS_MAX = 1024, ROWS_MAX = 32 };

typedef struct candidate {
    const sn_algo_row *row;
    bool fits;
    double ns, waiting_ns; /* waiting: what it were less if signals and messages took no time */
} candidate;

typedef struct question {
    sn_algo_call call;
    sn_algo_group group;
    sn_algo_model model;
    const sn_topo *topo;
    int hosts;
    int host[MEMBERS_MAX], card[MEMBERS_MAX];
} question;

typedef struct answer {
    int candidates;
    candidate candidate[ROWS_MAX]; /* those that fit first, the fastest first */
    const sn_algo_row *choice;
} answer;

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
        return sn_fail(SN_EINVAL, "--dtype is '%s'; f32 and bf16 can be reduced", given);
    if ((c->op == SN_ALL_REDUCE || c->op == SN_REDUCE_SCATTER) && c->dtype != SN_F32 &&
        c->dtype != SN_BF16)
        return sn_fail(SN_ENOTSUP, "--dtype is '%s': f32 and bf16 can be reduced", given);
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
static sn_status choose_members(question *q, int64_t hosts, int64_t cards)
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
            if (q->group.members == MEMBERS_MAX)
                return sn_fail(SN_EFIT, "more than %d members; take fewer --hosts or --cards",
                               MEMBERS_MAX);
            q->host[q->group.members] = h;
            q->card[q->group.members++] = host->first_card + k;
        }
    }
    if (q->group.members == 0)
        return sn_fail(SN_EFIT, "these hosts have no cards");
    q->group.host = q->host;
    q->group.model = &q->model;
    q->model = sn_algo_model_from(topo, q->card, q->group.members);
    return SN_OK;
}

static sn_status read_topology(const char *cluster, int64_t hosts, int64_t cards, sn_topo **ret)
{
    sn_job job = {.hosts = (int) SN_MAX(hosts, 1),
                  .cards_per_host = cards > 0 ? (int) cards : sn_cores()};
    if (cluster != NULL)
        return sn_cluster_read(cluster, ret);
    if ((int64_t) job.hosts * job.cards_per_host > MEMBERS_MAX)
        return sn_fail(SN_EFIT, "more than %d members; take fewer --hosts or --cards", MEMBERS_MAX);
    return sn_job_topology(&job, ret);
}

/* ---- the answer ---- */

static int by_time(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->fits != y->fits)
        return x->fits ? -1 : 1;
    return x->ns < y->ns ? -1 : x->ns > y->ns;
}

static sn_status ask(const question *q, answer *a)
{
    const sn_algo_row *const *rows;
    int n = sn_algo_rows(&rows);
    SN_TRY(sn_algo_choose(&q->group, &q->call, &q->model, NULL, &a->choice, NULL));
    for (int i = 0; i < n && i < ROWS_MAX; i++) {
        candidate *c = &a->candidate[a->candidates++];
        *c = (candidate){.row = rows[i]};
        c->fits = sn_algo_fits(rows[i], &q->group, &q->call);
        if (!c->fits)
            continue;
        sn_algo_model bytes = q->model;
        bytes.signal_ns = bytes.net_latency_ns = bytes.net_message_ns = 0;
        c->ns = sn_algo_cost_ns(rows[i], &q->group, &q->call, &q->model);
        c->waiting_ns = c->ns - sn_algo_cost_ns(rows[i], &q->group, &q->call, &bytes);
    }
    qsort(a->candidate, (size_t) a->candidates, sizeof(candidate), by_time);
    return SN_OK;
}

static const char *why_not(const question *q, const candidate *c, char out[160])
{
    bool does = c->row->ops >> q->call.op & 1;
    snprintf(out, 160, does ? "needs %s" : "has no %s",
             does ? c->row->needs : sn_coll_op_name(q->call.op));
    return out;
}

/* The choice beside the fastest other one. */
static void reason(const question *q, const answer *a, sn_str *out)
{
    const candidate *chosen = NULL, *other = NULL;
    for (int i = 0; i < a->candidates; i++) {
        const candidate *c = &a->candidate[i];
        if (c->row == a->choice)
            chosen = c;
        else if (c->fits && other == NULL)
            other = c;
    }
    int waiting = (int) (chosen->waiting_ns / chosen->ns * 100 + 0.5);
    sn_str_printf(out, "%s: ", chosen->row->name);
    if (other == NULL)
        sn_str_add(out, "nothing else fits");
    else if (other->ns < chosen->ns)
        sn_str_printf(out, "%s is predicted faster, but a small all_reduce stays in the notes",
                      other->row->name);
    else
        sn_str_printf(out, "least predicted time; %s would take %.2f times as long",
                      other->row->name, other->ns / chosen->ns);
    sn_str_printf(out, "; %d %% of its time is waiting, %d %% bytes", waiting, 100 - waiting);
}

static void print_text(const question *q, const answer *a, sn_str *out)
{
    char x[32], y[32], z[32], why[160];
    const sn_algo_model *m = &q->model;
    double bytes = (double) q->call.count * (double) sn_dtype_bytes(q->call.dtype);
    sn_str_printf(out, "%s", sn_coll_op_name(q->call.op));
    if (q->call.op != SN_BARRIER)
        sn_str_printf(out, " of %s %s", sn_fmt_bytes(x, bytes), sn_dtype_name(q->call.dtype));
    sn_str_printf(out, " among %d member%s on %d host%s\n\n", q->group.members,
                  q->group.members > 1 ? "s" : "", q->hosts, q->hosts > 1 ? "s" : "");
    sn_str_printf(out, "  %-20s %12s %12s %12s\n", "algorithm", "predicted", "waiting", "bytes");
    for (int i = 0; i < a->candidates; i++) {
        const candidate *c = &a->candidate[i];
        if (!c->fits)
            sn_str_printf(out, "  %-20s %s\n", c->row->name, why_not(q, c, why));
        else
            sn_str_printf(out, "%c %-20s %12s %12s %12s\n", c->row == a->choice ? '*' : ' ',
                          c->row->name, sn_fmt_ns(x, c->ns), sn_fmt_ns(y, c->waiting_ns),
                          sn_fmt_ns(z, c->ns - c->waiting_ns));
    }
    sn_str_add(out, "\nchosen  ");
    reason(q, a, out);
    sn_str_printf(out, "\nmodel   in a host: signal %s, ", sn_fmt_ns(x, m->signal_ns));
    sn_str_printf(out, "copy %s/s, reduce %s/s, %.3g members a core\n",
                  sn_fmt_bytes(x, m->copy_bytes_per_s), sn_fmt_bytes(y, m->reduce_bytes_per_s),
                  m->members_per_core);
    if (q->hosts > 1)
        sn_str_printf(out, "        between hosts: latency %s, %s/s, %s a further message\n",
                      sn_fmt_ns(x, m->net_latency_ns), sn_fmt_bytes(y, m->net_bytes_per_s),
                      sn_fmt_ns(z, m->net_message_ns));
    sn_str_add(out, "        predicted from the topology; no collective was run\n");
}

static json_t *candidate_json(const question *q, const answer *a, const candidate *c)
{
    char why[160];
    if (!c->fits)
        return json_pack("{s:s, s:b, s:s}", "algorithm", c->row->name, "fits", 0, "why",
                         why_not(q, c, why));
    return json_pack("{s:s, s:b, s:b, s:f, s:f}", "algorithm", c->row->name, "fits", 1, "chosen",
                     c->row == a->choice, "predicted_ns", c->ns, "waiting_ns", c->waiting_ns);
}

static void print_json(const question *q, const answer *a)
{
    const sn_algo_model *m = &q->model;
    sn_str why = {0};
    json_t *all = json_array();
    reason(q, a, &why);
    for (int i = 0; i < a->candidates; i++)
        json_array_append_new(all, candidate_json(q, a, &a->candidate[i]));
    json_t *model = json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "signal_ns", m->signal_ns,
                              "copy_bytes_per_s", m->copy_bytes_per_s, "reduce_bytes_per_s",
                              m->reduce_bytes_per_s, "net_latency_ns", m->net_latency_ns,
                              "net_bytes_per_s", m->net_bytes_per_s, "net_message_ns",
                              m->net_message_ns, "members_per_core", m->members_per_core);
    json_t *root = json_pack("{s:s, s:s, s:I, s:i, s:i, s:s, s:s, s:o, s:o}", "op",
                             sn_coll_op_name(q->call.op), "dtype", sn_dtype_name(q->call.dtype),
                             "count", (json_int_t) q->call.count, "members", q->group.members,
                             "hosts", q->hosts, "choice", a->choice->name, "reason",
                             sn_str_get(&why), "model", model, "candidates", all);
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_SORT_KEYS);
    putchar('\n');
    json_decref(root);
    sn_str_done(&why);
}

static sn_status explain(const sn_args *args, int64_t hosts, int64_t cards)
{
    question q = {.call = {.op = SN_ALL_REDUCE, .red = SN_SUM}};
    answer a = {0};
    sn_topo *topo = NULL;
    sn_str out = {0};
    SN_TRY(read_call(args, &q.call));
    SN_TRY(read_topology(sn_args_get(args, "cluster"), hosts, cards, &topo));
    q.topo = topo;
    sn_status status = choose_members(&q, hosts, cards);
    if (status >= 0)
        status = ask(&q, &a);
    if (status >= 0 && sn_args_get(args, "json")) {
        print_json(&q, &a);
    } else if (status >= 0) {
        print_text(&q, &a, &out);
        fputs(sn_str_get(&out), stdout);
    }
    sn_str_done(&out);
    sn_topo_free(topo);
    return status;
}

int sn_cmd_coll(const sn_args *args)
{
    int64_t hosts = 0, cards = 0;
    if (args->words != 1 || strcmp(args->word[0], "explain") != 0)
        return sn_exit_with("coll", sn_fail(SN_EINVAL, "say what: supernode coll explain"));
    if (!sn_args_int(args, "hosts", 1, MEMBERS_MAX, &hosts) ||
        !sn_args_int(args, "cards", 1, MEMBERS_MAX, &cards))
        return SN_EXIT_USAGE;
    sn_status status = explain(args, hosts, cards);
    return status < 0 ? sn_exit_with("coll", status) : SN_EXIT_OK;
}
