/* SPDX-License-Identifier: Apache-2.0
 *
 * model.safetensors.index.json: {"weight_map": {"tensor": "shard file", …}, …}. The list and the
 * shards must say the same: a tensor in neither or in another shard would stay unset in silence. */
#include "ckpt/parts.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static int file_of(const ckpt_table *t, const char *name)
{
    for (size_t i = 0; i < t->files; i++)
        if (!strcmp(t->file[i].name, name))
            return (int) i;
    return -1;
}

/* The shards, each once. */
static sn_status shards(sn_ckpt *c, json_t *map)
{
    const char *tensor;
    char show[80], name[80];
    json_t *v;
    json_object_foreach(map, tensor, v)
    {
        const char *shard = json_string_value(v);
        if (!shard)
            return sn_fail(SN_ECORRUPT, "tensor \"%s\": its shard is not a text",
                           ckpt_show(show, tensor));
        if (!ckpt_file_name_ok(shard))
            return sn_fail(SN_ECORRUPT, "tensor \"%s\": the shard \"%s\" is not a plain file name",
                           ckpt_show(show, tensor), ckpt_show(name, shard));
        if (file_of(&c->table, shard) >= 0)
            continue;
        ckpt_file file = {.name = sn_arena_str(c->table.arena, shard)};
        char path[4096];
        ckpt_reader r;
        sn_status status = ckpt_file_open(c, &file, path, &r);
        if (status < 0)
            return sn_fail_in(status, "tensor \"%s\" in shard %s", ckpt_show(show, tensor),
                              ckpt_show(name, shard));
        file.bytes = r.bytes;
        status = ckpt_file_header(c, &file, &r);
        ckpt_reader_close(&r);
        SN_TRY(status);
        ckpt_table_add_file(&c->table, &file);
    }
    return SN_OK;
}

/* Each tensor of the list is in its shard. */
static sn_status listed(sn_ckpt *c, json_t *map)
{
    const char *tensor;
    char show[80];
    json_t *v;
    json_object_foreach(map, tensor, v)
    {
        int file = file_of(&c->table, json_string_value(v));
        const ckpt_entry *e = ckpt_file_entry(&c->table.file[file], tensor);
        if (!e)
            return sn_fail(SN_ECORRUPT,
                           "tensor \"%s\" is listed in shard %s, which has none of "
                           "that name",
                           ckpt_show(show, tensor), c->table.file[file].name);
        ckpt_table_add_whole(&c->table, e, file);
    }
    return SN_OK;
}

/* Each tensor of a shard is in the list, under that shard. */
static sn_status complete(const sn_ckpt *c, json_t *map)
{
    char show[80];
    for (size_t f = 0; f < c->table.files; f++) {
        const ckpt_file *file = &c->table.file[f];
        for (int i = 0; i < file->entries; i++) {
            const char *shard = json_string_value(json_object_get(map, file->entry[i].name));
            if (!shard || strcmp(shard, file->name))
                return sn_fail(SN_ECORRUPT, "tensor \"%s\" is in shard %s and the list %s",
                               ckpt_show(show, file->entry[i].name), file->name,
                               shard ? "says another" : "omits it");
        }
    }
    return SN_OK;
}

static sn_status parse(sn_ckpt *c, const char *text, size_t bytes)
{
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return sn_fail(SN_ECORRUPT, "line %d: %s", error.line, error.text);
    json_t *map = json_object_get(root, "weight_map");
    sn_status status = json_is_object(map)
                           ? shards(c, map)
                           : sn_fail(SN_ECORRUPT, "no \"weight_map\": not a list of shards");
    if (status >= 0)
        status = listed(c, map);
    if (status >= 0)
        status = complete(c, map);
    json_decref(root);
    return status < 0 ? status : ckpt_table_finish(&c->table);
}

sn_status ckpt_index_open(sn_ckpt *c, const char *path)
{
    char *text;
    ckpt_reader r;
    SN_TRY(ckpt_reader_open(path, &r));
    text = r.bytes <= CKPT_HEADER_MAX ? malloc(r.bytes + 1) : NULL;
    sn_status status = text ? ckpt_reader_get(&r, 0, r.bytes, text)
                            : sn_fail(SN_EFIT, "%llu bytes, a list of shards has %d at most",
                                      (unsigned long long) r.bytes, CKPT_HEADER_MAX);
    if (status >= 0)
        status = parse(c, text, r.bytes);
    free(text);
    ckpt_reader_close(&r);
    return status;
}
