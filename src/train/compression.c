/* SPDX-License-Identifier: Apache-2.0
 *
 * compression — the job's words about compression as codecs, and what `auto` means.
 *
 * auto: the fewest seconds for the bytes of a step between hosts, as they are or encoded. Coding
 * costs the card's time, so a link that is fast enough is left alone. */
#include <stdio.h>
#include <string.h>

#include "train/parts.h"

#define CODEC_BYTES_PER_S 1e9 /* when nobody measured */

bool train_compression_encodes(const sn_plan_compression *c)
{
    return c->gradients.kind != SN_CODEC_NONE || c->parameters.kind != SN_CODEC_NONE;
}

static const char *codec_text(const sn_job *job)
{
    return job->compression.codec ? job->compression.codec : "none";
}

bool train_compression_auto(const sn_job *job)
{
    return !strcmp(codec_text(job), "auto");
}

/* "onebit", or "2xonebit": a code, and one of what it leaves. */
static sn_status parse_passes(const char *text, sn_codec *ret, int *ret_passes)
{
    bool many = text[0] >= '1' && text[0] <= '8' && text[1] == 'x';
    SN_TRY(sn_codec_parse(many ? text + 2 : text, ret));
    *ret_passes = many ? text[0] - '0' : 1;
    return SN_OK;
}

static bool parameters_auto(const sn_job *job)
{
    return !job->compression.parameters || !strcmp(job->compression.parameters, "auto");
}

/* The parameters' changes are left at home if they can be: codes of them cost more loss than codes
 * of gradients. */
static sn_status parse_parameters(const sn_job *job, sn_plan_compression *c)
{
    c->kept = parameters_auto(job) || !strcmp(job->compression.parameters, "kept");
    if (c->kept)
        return SN_OK;
    SN_TRY(parse_passes(job->compression.parameters, &c->parameters, &c->passes));
    return c->parameters.kind == SN_CODEC_POWERSGD
               ? sn_fail(SN_EINVAL, "compression.parameters is powersgd, which codes sums: take "
                                    "another codec, or kept")
               : SN_OK;
}

/* Where cards have no room to keep the whole state of the optimizer the changes travel: a change
 * has few large elements to pick and no rank to be low, but a sign and a size. */
bool train_compression_spread(const sn_job *job, sn_plan_compression *c)
{
    if (!c->kept || !parameters_auto(job))
        return false;
    c->kept = false;
    c->parameters = c->gradients;
    if (c->gradients.kind == SN_CODEC_TOPK || c->gradients.kind == SN_CODEC_POWERSGD)
        c->parameters = (sn_codec){.kind = SN_CODEC_TERNARY};
    return true;
}

/* Error feedback is what SGD needs; AdamW divides by the size of what it is given, and the residual
 * of three levels is larger than what they say: doc/compression.md has both. */
static bool forgets(const sn_job *job, const sn_codec *gradients)
{
    const char *word = job->compression.feedback;
    if (!word || !strcmp(word, "auto"))
        return gradients->kind == SN_CODEC_TERNARY;
    return !strcmp(word, "no");
}

const char *train_compression_text(const sn_job *job, char out[96])
{
    sn_plan_compression c;
    char gradients[32], parameters[32], times[16] = "";
    if (train_compression_auto(job))
        return "auto";
    if (sn_job_compression(job, NULL, 0, 0, &c, NULL) < 0)
        return "?";
    sn_codec_text(&c.gradients, gradients);
    sn_codec_text(&c.parameters, parameters);
    if (c.kept)
        snprintf(parameters, sizeof(parameters), "kept");
    if (c.passes > 1)
        snprintf(times, sizeof(times), "%dx", c.passes);
    if (!train_compression_encodes(&c))
        return "none";
    bool usual = c.forget == (c.gradients.kind == SN_CODEC_TERNARY);
    snprintf(out, 96, "%s, parameters %s%s%s", gradients, times, parameters,
             usual      ? ""
             : c.forget ? ", no feedback"
                        : ", feedback");
    return out;
}

/* ---- auto ---- */

/* The slowest path between neighbouring hosts; 0: one host. */
static double slowest_link(const sn_topo *topo)
{
    double least = 0;
    for (int h = 0; topo && h + 1 < topo->hosts; h++) {
        sn_path path;
        const sn_topo_host *a = &topo->host[h], *b = &topo->host[h + 1];
        if (a->cards > 0 && b->cards > 0 &&
            sn_topo_path(topo, a->first_card, b->first_card, &path) >= 0 &&
            (least == 0 || path.bytes_per_s < least))
            least = path.bytes_per_s;
    }
    return least;
}

static int64_t parameters_of(const sn_gpt *g)
{
    int64_t mlp = g->mlp ? g->mlp : 4 * g->hidden;
    return g->layers * (4 * g->hidden * g->hidden + 2 * g->hidden * mlp) + 2 * g->vocab * g->hidden;
}

static void choose(const sn_job *job, double link, double rate, sn_plan_compression *c, sn_str *why)
{
    char a[32], b[32], plain[32], coded[32];
    sn_codec none = {.kind = SN_CODEC_NONE};
    int64_t n = parameters_of(&job->gpt);
    double as_is = 2 * sn_codec_seconds(&none, n, link, rate);
    double encoded = 2 * sn_codec_seconds(&c->gradients, n, link, rate);
    bool pays = encoded < as_is;
    if (why)
        sn_str_printf(
            why,
            "compression: auto %s: %s/s between hosts, %s/s of coding: the gradients of a "
            "step take %s as they are, %s encoded",
            pays ? "takes " TRAIN_AUTO_GRADIENTS " for gradients and keeps parameters"
                 : "leaves the bytes as they are",
            sn_fmt_bytes(a, link), sn_fmt_bytes(b, rate), sn_fmt_ns(plain, as_is * 1e9),
            sn_fmt_ns(coded, encoded * 1e9));
    if (!pays)
        *c = (sn_plan_compression){.gradients = none, .parameters = none};
}

static sn_status automatic(const sn_job *job, const sn_topo *topo, double link, double rate,
                           sn_plan_compression *c, sn_str *why)
{
    SN_TRY(sn_codec_parse(TRAIN_AUTO_GRADIENTS, &c->gradients));
    c->kept = true;
    link = link > 0 ? link : slowest_link(topo);
    if (link > 0) {
        choose(job, link, rate > 0 ? rate : CODEC_BYTES_PER_S, c, why);
        return SN_OK;
    }
    *c = (sn_plan_compression){0};
    if (why)
        sn_str_add(why, "compression: auto has nothing to do on one host");
    return SN_OK;
}

sn_status sn_job_compression(const sn_job *job, const sn_topo *topo, double link_bytes_per_s,
                             double codec_bytes_per_s, sn_plan_compression *ret, sn_str *ret_why)
{
    sn_plan_compression c = {0};
    if (train_compression_auto(job)) {
        SN_TRY(automatic(job, topo, link_bytes_per_s, codec_bytes_per_s, &c, ret_why));
    } else {
        SN_TRY(sn_codec_parse(codec_text(job), &c.gradients));
        SN_TRY(parse_parameters(job, &c));
    }
    if (c.gradients.kind == SN_CODEC_TOPK)
        c.momentum = job->compression.momentum;
    c.forget = forgets(job, &c.gradients);
    *ret = c;
    return SN_OK;
}
