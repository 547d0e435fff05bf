/* SPDX-License-Identifier: Apache-2.0
 * A topology as JSON: the arrays of the model, with names instead of indices. */
#include "topo/model.h"

#include <jansson.h>
#include <stdlib.h>

/* Names hold no control characters, but may hold bytes that are not UTF-8. */
static json_t *word(const char *text)
{
    json_t *json = json_string(text);
    return json ? json : json_string("?");
}

static json_t *figure(double v) /* 0 is "nobody knows" */
{
    return v > 0 ? json_real(v) : json_null();
}

static json_t *size(uint64_t bytes)
{
    return bytes ? json_integer((json_int_t) bytes) : json_null();
}

static json_t *host_json(const sn_topo *topo, const sn_topo_host *h)
{
    json_t *o = json_object();
    json_object_set_new(o, "name", word(h->name));
    json_object_set_new(o, "machine", word(topo->host[h->machine].name));
    json_object_set_new(o, "cores", json_integer(h->cores));
    json_object_set_new(o, "numa_nodes", json_integer(h->numa_nodes));
    json_object_set_new(o, "memory_bytes", size(h->memory_bytes));
    json_object_set_new(o, "l1d_bytes", size(h->cache_bytes[0]));
    json_object_set_new(o, "l2_bytes", size(h->cache_bytes[1]));
    json_object_set_new(o, "l3_bytes", size(h->cache_bytes[2]));
    return o;
}

static json_t *card_json(const sn_topo *topo, const sn_topo_card *c)
{
    json_t *o = json_object();
    json_object_set_new(o, "name", word(c->name));
    json_object_set_new(o, "kind", word(c->kind));
    json_object_set_new(o, "host", word(topo->host[c->host].name));
    json_object_set_new(o, "core", c->core < 0 ? json_null() : json_integer(c->core));
    json_object_set_new(o, "numa_node",
                        c->numa_node < 0 ? json_null() : json_integer(c->numa_node));
    json_object_set_new(o, "share", json_real(c->share));
    json_object_set_new(o, "flops_f32", figure(c->flops_f32));
    json_object_set_new(o, "flops_bf16", figure(c->flops_bf16));
    json_object_set_new(o, "memory_bytes", size(c->memory_bytes));
    json_object_set_new(o, "memory_bytes_per_s", figure(c->memory_bytes_per_s));
    return o;
}

static json_t *link_json(const sn_topo *topo, const sn_topo_link *l)
{
    json_t *o = json_object();
    json_object_set_new(o, "a", word(sn_topo_vertex_name(topo, l->a)));
    json_object_set_new(o, "b", word(sn_topo_vertex_name(topo, l->b)));
    json_object_set_new(o, "kind", word(l->kind));
    json_object_set_new(o, "latency_ns", json_real(l->latency_ns));
    json_object_set_new(o, "bytes_per_s", json_real(l->bytes_per_s));
    json_object_set_new(o, "measured", json_boolean(l->measured));
    return o;
}

static json_t *topo_json(const sn_topo *topo)
{
    json_t *o = json_object(), *hosts = json_array(), *cards = json_array(), *nics = json_array(),
           *switches = json_array(), *links = json_array();
    for (int i = 0; i < topo->hosts; i++)
        json_array_append_new(hosts, host_json(topo, &topo->host[i]));
    for (int i = 0; i < topo->cards; i++)
        json_array_append_new(cards, card_json(topo, &topo->card[i]));
    for (int i = 0; i < topo->nics; i++) {
        json_t *nic = json_object();
        json_object_set_new(nic, "name", word(topo->nic[i].name));
        json_object_set_new(nic, "host", word(topo->host[topo->nic[i].host].name));
        json_object_set_new(nic, "bytes_per_s", figure(topo->nic[i].bytes_per_s));
        json_array_append_new(nics, nic);
    }
    for (int i = 0; i < topo->switches; i++) {
        int host = topo->sw[i].host;
        json_t *sw = json_object();
        json_object_set_new(sw, "name", word(topo->sw[i].name));
        json_object_set_new(sw, "host", host < 0 ? json_null() : word(topo->host[host].name));
        json_array_append_new(switches, sw);
    }
    for (int i = 0; i < topo->links; i++)
        json_array_append_new(links, link_json(topo, &topo->link[i]));
    json_object_set_new(o, "name", word(topo->name));
    json_object_set_new(o, "hosts", hosts);
    json_object_set_new(o, "cards", cards);
    json_object_set_new(o, "nics", nics);
    json_object_set_new(o, "switches", switches);
    json_object_set_new(o, "links", links);
    return o;
}

static int add(const char *text, size_t bytes, void *out)
{
    sn_str_add_n(out, text, bytes);
    return 0;
}

void sn_topo_json(const sn_topo *topo, sn_str *out)
{
    json_t *o = topo_json(topo);
    json_dump_callback(o, add, out, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    sn_str_add(out, "\n");
    json_decref(o);
}
