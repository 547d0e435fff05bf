/* SPDX-License-Identifier: Apache-2.0
 *
 * The page as a whole: head, figures, the drawn parts, tables and texts. */
#include "mon/html.h"
#include "mon/number.h"
#include "os/os.h"

#include <math.h>
#include <stdio.h>

static bool known(double v)
{
    return isfinite(v) && v > 0;
}

/* ---- the head ---- */

static void verdict(const sn_report *r, sn_str *out)
{
    const char *name = r->baseline_name ? r->baseline_name : "baseline";
    bool both = known(r->final_loss) && known(r->baseline_loss);
    bool better = both && r->final_loss < r->baseline_loss;
    mon_html(out, "<p class=\"verdict %r\"><b></b>",
             !both    ? "unknown"
             : better ? "good"
                      : "behind");
    if (!both) {
        sn_str_add(out,
                   known(r->final_loss) ? "Held-out loss " : "The held-out loss was not measured");
        if (known(r->final_loss)) {
            mon_fixed(out, r->final_loss, 3);
            sn_str_add(out, " nats per byte");
        }
    } else {
        mon_html(out, better ? "Beats the %s by " : "Behind the %s by ", name);
        mon_fixed(out, fabs(r->baseline_loss - r->final_loss), 3);
        sn_str_add(out, " nats per byte: ");
        mon_fixed(out, r->final_loss, 3);
        sn_str_add(out, " against ");
        mon_fixed(out, r->baseline_loss, 3);
    }
    sn_str_add(out, "</p>");
}

static void figure(sn_str *out, const char *title, const char *value, const char *unit)
{
    mon_html(out, "<div><dt>%s</dt><dd>%s <small>%s</small></dd></div>", title, value, unit);
}

static void percent(char text[32], double share)
{
    snprintf(text, 32, "%.0f", 100 * mon_share(share, 1));
}

static void figures(const sn_report *r, const mon_totals *t, sn_str *out)
{
    char text[32];
    sn_str loss = {0};
    sn_str_add(out, "<dl class=\"figures\">");
    mon_fixed(&loss, known(r->final_loss) ? r->final_loss : NAN, 3);
    figure(out, "held-out loss", loss.data, "nats/byte");
    sn_str_done(&loss);
    mon_short_count(text, mon_tokens_per_s(t->tokens, t->ns));
    figure(out, "throughput", text, "tokens/s");
    percent(text, mon_share(t->flops * 1e9, t->peak_flops * t->ns));
    figure(out, "of the cores' peak", t->peak_flops > 0 && t->flops > 0 ? text : "–", "%");
    percent(text, mon_share(t->time_ns[SN_TIME_COLLECTIVE], t->ns));
    figure(out, "exposed comm", text, "%");
    mon_duration(text, (double) r->wall_ns / 1e9);
    figure(out, "wall time", r->wall_ns > 0 ? text : "–", "");
    mon_short_count(text, (double) r->parameters);
    figure(out, "parameters", r->parameters > 0 ? text : "–", "");
    sn_str_add(out, "</dl>\n");
}

static void head(const sn_report *r, const mon_totals *t, sn_str *out)
{
    const char *title = r->title && *r->title ? r->title : "Training run";
    mon_html(out,
             "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>"
             "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
             "style-src 'unsafe-inline'; script-src 'unsafe-inline'\"/>"
             "<meta name=\"color-scheme\" content=\"light dark\"/><title>%s · %s</title>"
             "<style>%r</style></head>\n<body><main><header><p class=\"brand\">supernode</p>"
             "<h1>%s</h1><p class=\"id\">run <code>%s</code></p>",
             title, r->run_id ? r->run_id : "", mon_style, title, r->run_id ? r->run_id : "");
    verdict(r, out);
    figures(r, t, out);
    sn_str_add(out, "</header>\n");
}

/* ---- tables and texts ---- */

static void row(sn_str *out, const char *key, const char *value)
{
    mon_html(out, "<tr><th>%s</th><td>%s</td></tr>", key, value);
}

static void row_of_fixed(sn_str *out, const char *key, double v, int digits, const char *unit)
{
    sn_str text = {0};
    mon_fixed(&text, v, digits);
    sn_str_add(&text, unit);
    row(out, key, text.data);
    sn_str_done(&text);
}

static void loss_rows(const sn_report *r, sn_str *out)
{
    if (known(r->final_loss)) {
        row_of_fixed(out, "held-out loss", r->final_loss, 4, " nats per byte");
        row_of_fixed(out, "the same in bits", r->final_loss / log(2), 3, " bits per byte");
    }
    if (known(r->baseline_loss))
        row_of_fixed(out, r->baseline_name ? r->baseline_name : "baseline", r->baseline_loss, 4,
                     " nats per byte");
    if (r->row && r->rows > 0)
        row_of_fixed(out, "training loss, last step", r->row[r->rows - 1].loss, 4, "");
}

static void row_of_int(sn_str *out, const char *key, int64_t v)
{
    sn_str text = {0};
    mon_html_int(&text, v);
    row(out, key, text.data);
    sn_str_done(&text);
}

static void row_of_ns(sn_str *out, const char *key, double ns, const char *more)
{
    sn_str text = {0};
    mon_html_ns(&text, ns);
    sn_str_add(&text, more);
    row(out, key, text.data);
    sn_str_done(&text);
}

/* What of the time under way was hidden: the rest is in the step's account of exposed waits. */
static void communication(const mon_totals *t, sn_str *out)
{
    double exposed = t->time_ns[SN_TIME_COLLECTIVE] + t->time_ns[SN_TIME_PIPELINE];
    char text[64];
    snprintf(text, sizeof text, " a step, %.0f %% hidden behind computing",
             100 * mon_share(SN_MAX(0, t->comm_ns - exposed), t->comm_ns));
    row_of_ns(out, "communication under way", t->comm_ns / (double) t->rows, text);
}

static void speed_rows(const sn_report *r, const mon_totals *t, sn_str *out)
{
    char a[32], text[64];
    double steps = (double) SN_MAX(t->rows, 1);
    if (t->rows)
        row_of_ns(out, "mean step", t->ns / steps, "");
    if (t->peak_flops > 0) {
        snprintf(text, sizeof text, "%sFLOP/s", sn_fmt_count(a, t->peak_flops));
        row(out, "peak of the cores, measured", text);
    }
    if (t->rows && t->comm_ns > 0)
        communication(t, out);
    row(out, "bytes a step, within hosts", sn_fmt_bytes(a, t->bytes_host / steps));
    row(out, "bytes a step, across hosts", sn_fmt_bytes(a, t->bytes_net / steps));
    if (r->link_latency_ns > 0 && r->link_bytes_per_s > 0) {
        snprintf(text, sizeof text, ", %s", sn_fmt_rate(a, r->link_bytes_per_s));
        row_of_ns(out, "link between hosts", r->link_latency_ns, text);
    }
}

static void summary(const sn_report *r, const mon_totals *t, sn_str *out)
{
    char text[96];
    sn_str_add(out, "<section class=\"panel\"><h2>Summary</h2><table class=\"facts\"><tbody>");
    loss_rows(r, out);
    row_of_int(out, "steps in this report", t->rows);
    row_of_int(out, "tokens seen", r->tokens);
    row_of_int(out, "parameters", r->parameters);
    snprintf(text, sizeof text, "%d on %d host%s", r->cards, r->hosts, r->hosts == 1 ? "" : "s");
    row(out, "cards", text);
    snprintf(text, sizeof text, "tensor %d, pipeline %d, data %d", SN_MAX(r->tensor, 1),
             SN_MAX(r->pipeline, 1), SN_MAX(r->data, 1));
    row(out, "split", text);
    speed_rows(r, t, out);
    sn_str_add(out, "</tbody></table></section>\n");
}

static void events(const sn_report *r, sn_str *out)
{
    sn_str_add(out, "<section class=\"panel\"><h2>Events</h2>");
    if (!r->event || r->events < 1)
        sn_str_add(out, "<p class=\"quiet\">Nothing out of the ordinary happened.</p>");
    else
        sn_str_add(out, "<ol class=\"events\">");
    for (int i = 0; r->event && i < r->events; i++)
        mon_html(out, "<li>%s</li>", r->event[i]);
    if (r->event && r->events > 0)
        sn_str_add(out, "</ol>");
    sn_str_add(out, "</section>\n");
}

static void sample(const sn_report *r, sn_str *out)
{
    if (r->sample_text && *r->sample_text)
        mon_html(out,
                 "<section class=\"panel\"><h2>What the model writes</h2><pre class=\"sample\">%s"
                 "</pre></section>\n",
                 r->sample_text);
}

static void job(const sn_report *r, sn_str *out)
{
    if (r->job_yaml && *r->job_yaml)
        mon_html(out,
                 "<section class=\"panel\"><details open=\"open\"><summary><h2>The job, as "
                 "resolved</h2></summary><pre class=\"job\">%s</pre></details></section>\n",
                 r->job_yaml);
}

void sn_report_html(const sn_report *report, sn_str *out)
{
    mon_totals t = mon_sum(report);
    head(report, &t, out);
    mon_report_loss(report, out);
    mon_report_time(report, out);
    mon_report_plan(report, out);
    mon_report_cards(report, out);
    sn_str_add(out, "<div class=\"two\">");
    summary(report, &t, out);
    sn_str_add(out, "<div class=\"stack\">");
    sample(report, out);
    events(report, out);
    sn_str_add(out, "</div></div>");
    job(report, out);
    mon_html(out, "</main><script>%r</script></body></html>\n", mon_script);
}

sn_status sn_report_write(const sn_report *report, const char *path)
{
    sn_str page = {0};
    sn_report_html(report, &page);
    sn_status status = sn_file_write(path, page.data, page.len);
    sn_str_done(&page);
    return status;
}
