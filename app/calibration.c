/* SPDX-License-Identifier: Apache-2.0
 * The cache of calibrated models. */
#include "calibration.h"
#include "bench.h"

#include "os/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

enum { FORMAT = 1, BYTES_MAX = 1 << 20 };

static const char *const kind_name[] = {
    [SN_HOSTS_ONE] = "one", [SN_HOSTS_EMULATED] = "emulated", [SN_HOSTS_LAUNCHED] = "launched"};

sn_hosts_kind sn_hosts_kind_of(int hosts, bool launched)
{
    if (hosts == 1)
        return SN_HOSTS_ONE;
    return launched ? SN_HOSTS_LAUNCHED : SN_HOSTS_EMULATED;
}

/* "Some Processor @ 2.8GHz, 2 cores": what the speeds depend on; all cores, also those that a
 * launcher keeps this process from. */
static void machine_name(char *ret, size_t max)
{
    char text[4096];
    bench_read_proc("/proc/cpuinfo", text, sizeof text);
    const char *at = strstr(text, "model name");
    at = at ? strchr(at, ':') : NULL;
    int n = at ? (int) strcspn(at + 2, "\n") : 0;
    snprintf(ret, max, "%.*s, %d cores", SN_MIN(n, 100), at ? at + 2 : "",
             (int) sysconf(_SC_NPROCESSORS_ONLN));
}

static sn_status file_name(const char *machine, int hosts, int cards, sn_hosts_kind kind, char *ret,
                           size_t max)
{
    sn_arena *arena = sn_arena_create();
    const char *dir = sn_cache_dir(arena);
    uint32_t hash = (uint32_t) sn_hash_bytes(machine, strlen(machine));
    int n = dir ? snprintf(ret, max, "%s/coll-%08x-%dx%d-%s.json", dir, hash, hosts, cards,
                           kind_name[kind])
                : -1;
    sn_arena_free(arena);
    if (n < 0)
        return sn_fail(SN_ENOTFOUND, "neither XDG_CACHE_HOME nor HOME says where to keep it");
    return n < (int) max ? SN_OK : sn_fail(SN_EINVAL, "the path of the cache is too long");
}

/* ---- writing ---- */

static json_t *rates_json(const sn_calibration_rates *r)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "signal_ns", r->signal_ns,
                     "copy_bytes_per_s", r->copy_bytes_per_s, "reduce_bytes_per_s",
                     r->reduce_bytes_per_s, "contention", r->contention, "net_latency_ns",
                     r->net_latency_ns, "net_bytes_per_s", r->net_bytes_per_s, "net_message_ns",
                     r->net_message_ns);
}

void sn_calibration_json(const sn_calibration *c, sn_str *out)
{
    sn_str text = {0};
    sn_algo_model_write(&c->model, &text);
    json_t *root =
        json_pack("{s:i, s:s, s:s, s:i, s:i, s:s, s:s, s:i, s:f, s:f, s:o, s:o?}", "format", FORMAT,
                  "version", SN_VERSION, "machine", c->machine, "hosts", c->hosts, "cards",
                  c->cards, "kind", kind_name[c->kind], "when", c->when, "samples", c->samples,
                  "error", c->error, "seconds", c->seconds, "rates", rates_json(&c->rates), "model",
                  json_loads(sn_str_get(&text), 0, NULL));
    char *said = json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(7));
    sn_str_printf(out, "%s\n", said);
    free(said);
    json_decref(root);
    sn_str_done(&text);
}

/* Under a name of our own first: two who calibrate at a time do not mix. */
static sn_status replace_file(const char *path, const sn_str *text)
{
    char own[4200];
    snprintf(own, sizeof own, "%s.%d", path, (int) getpid());
    SN_TRY(sn_file_write(own, text->data, text->len));
    if (!rename(own, path))
        return SN_OK;
    sn_status status = sn_file_failed("rename to", path);
    unlink(own);
    return status;
}

sn_status sn_calibration_place(sn_calibration *c)
{
    machine_name(c->machine, sizeof c->machine);
    return file_name(c->machine, c->hosts, c->cards, c->kind, c->path, sizeof c->path);
}

sn_status sn_calibration_save(sn_calibration *c)
{
    sn_str text = {0};
    char dir[4096];
    time_t now = (time_t) (sn_now_wall() / SN_SEC);
    struct tm tm;
    strftime(c->when, sizeof c->when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
    SN_TRY(sn_calibration_place(c));
    snprintf(dir, sizeof dir, "%.*s", (int) (strrchr(c->path, '/') - c->path), c->path);
    SN_TRY(sn_dir_create(dir));
    sn_calibration_json(c, &text);
    sn_status status = replace_file(c->path, &text);
    sn_str_done(&text);
    return status;
}

/* ---- reading ---- */

static double number_of(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static void read_rates(const json_t *o, sn_calibration_rates *ret)
{
    *ret = (sn_calibration_rates){.signal_ns = number_of(o, "signal_ns"),
                                  .copy_bytes_per_s = number_of(o, "copy_bytes_per_s"),
                                  .reduce_bytes_per_s = number_of(o, "reduce_bytes_per_s"),
                                  .contention = number_of(o, "contention"),
                                  .net_latency_ns = number_of(o, "net_latency_ns"),
                                  .net_bytes_per_s = number_of(o, "net_bytes_per_s"),
                                  .net_message_ns = number_of(o, "net_message_ns")};
}

static sn_status read_model(const json_t *root, sn_algo_model *ret)
{
    char *text = json_dumps(json_object_get(root, "model"), JSON_COMPACT);
    if (!text)
        return sn_fail(SN_ECORRUPT, "it has no model");
    sn_status status = sn_algo_model_read(text, strlen(text), ret);
    free(text);
    return status;
}

static sn_status read_root(const json_t *root, sn_calibration *c)
{
    const char *kind, *machine, *version, *when;
    int format;
    json_error_t error;
    if (json_unpack_ex((json_t *) root, &error, 0,
                       "{s:i, s:s, s:s, s:i, s:i, s:s, s:s, s:i, s:F, s:F}", "format", &format,
                       "version", &version, "machine", &machine, "hosts", &c->hosts, "cards",
                       &c->cards, "kind", &kind, "when", &when, "samples", &c->samples, "error",
                       &c->error, "seconds", &c->seconds))
        return sn_fail(SN_ECORRUPT, "it is damaged: %s", error.text);
    if (format != FORMAT || strcmp(version, SN_VERSION) != 0)
        return sn_fail(SN_EMISMATCH, "version %.20s wrote it, this is " SN_VERSION, version);
    int k = 0;
    while (k < (int) SN_COUNT(kind_name) && strcmp(kind, kind_name[k]) != 0)
        k++;
    if (k == (int) SN_COUNT(kind_name))
        return sn_fail(SN_ECORRUPT, "it is damaged: kind is '%.20s'", kind);
    c->kind = (sn_hosts_kind) k;
    snprintf(c->machine, sizeof c->machine, "%s", machine);
    snprintf(c->when, sizeof c->when, "%s", when);
    read_rates(json_object_get(root, "rates"), &c->rates);
    return read_model(root, &c->model);
}

sn_status sn_calibration_parse(const char *text, size_t bytes, const char *path,
                               sn_calibration *ret)
{
    json_error_t error;
    sn_calibration c = {0};
    snprintf(c.path, sizeof c.path, "%s", path);
    json_t *root = json_loadb(text, bytes, 0, &error);
    sn_status status =
        root ? read_root(root, &c)
             : sn_fail(SN_ECORRUPT, "it is damaged: line %d: %s", error.line, error.text);
    json_decref(root);
    if (status < 0)
        return status;
    *ret = c;
    return SN_OK;
}

static sn_status load(const char *path, int hosts, int cards, sn_hosts_kind kind,
                      const char *machine, sn_calibration *ret)
{
    sn_calibration c;
    size_t bytes;
    char *text;
    SN_TRY(sn_file_read(path, BYTES_MAX, &text, &bytes));
    sn_status status = sn_calibration_parse(text, bytes, path, &c);
    free(text);
    SN_TRY(status);
    if (strcmp(c.machine, machine) != 0)
        return sn_fail(SN_EMISMATCH, "it is of another machine (%.100s)", c.machine);
    if (c.hosts != hosts || c.cards != cards || c.kind != kind)
        return sn_fail(SN_EMISMATCH, "it is of %d hosts of %d cards", c.hosts, c.cards);
    *ret = c;
    return SN_OK;
}

bool sn_calibration_load(int hosts, int cards, sn_hosts_kind kind, sn_calibration *ret,
                         sn_str *warning)
{
    char machine[160], path[4096];
    machine_name(machine, sizeof machine);
    if (file_name(machine, hosts, cards, kind, path, sizeof path) < 0 || access(path, F_OK))
        return false; /* nothing was calibrated: nothing to warn of */
    if (load(path, hosts, cards, kind, machine, ret) >= 0)
        return true;
    sn_str_printf(warning,
                  "the calibration %s is not used: %s; supernode bench calibrate --hosts %d "
                  "--cards %d makes a new one",
                  path, sn_errmsg(), hosts, cards);
    return false;
}

sn_calibration *sn_calibration_find(int hosts, int cards, sn_hosts_kind kind)
{
    sn_calibration *c = sn_alloc(sizeof *c);
    sn_str warning = {0};
    bool found = sn_calibration_load(hosts, cards, kind, c, &warning);
    if (warning.len)
        sn_log(SN_LOG_WARN, "%s", sn_str_get(&warning));
    sn_str_done(&warning);
    if (found)
        return c;
    free(c);
    return NULL;
}
