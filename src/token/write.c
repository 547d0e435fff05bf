/* SPDX-License-Identifier: Apache-2.0
 *
 * write — the same files as others write them for GPT-2. */
#include "token/parts.h"

static void add_name(const token_entry *e, sn_str *out)
{
    if (e->special)
        sn_str_add_n(out, (const char *) e->text, (size_t) e->bytes);
    else
        token_name_add(out, e->text, e->bytes);
}

static void add_quoted(const token_entry *e, sn_str *out)
{
    sn_str name = {0};
    add_name(e, &name);
    sn_str_add(out, "\"");
    for (size_t i = 0; i < name.len; i++) {
        unsigned char c = (unsigned char) name.data[i];
        if (c == '"' || c == '\\')
            sn_str_printf(out, "\\%c", c);
        else if (c < 0x20)
            sn_str_printf(out, "\\u%04x", c);
        else
            sn_str_add_n(out, name.data + i, 1);
    }
    sn_str_add(out, "\"");
    sn_str_done(&name);
}

void sn_token_write_vocab(const sn_token *t, sn_str *out)
{
    const char *comma = "";
    sn_str_add(out, "{");
    for (int64_t id = 0; id < t->vocab; id++) {
        if (!t->entry[id].bytes)
            continue;
        sn_str_add(out, comma);
        add_quoted(&t->entry[id], out);
        sn_str_printf(out, ":%lld", (long long) id);
        comma = ",";
    }
    sn_str_add(out, "}");
}

void sn_token_write_merges(const sn_token *t, sn_str *out)
{
    sn_str_add(out, "#version: 0.2\n");
    for (int64_t r = 0; r < t->merges; r++) {
        add_name(&t->entry[t->merge[r].left], out);
        sn_str_add(out, " ");
        add_name(&t->entry[t->merge[r].right], out);
        sn_str_add(out, "\n");
    }
}

static void write_added(const sn_token *t, sn_str *out)
{
    const char *comma = "";
    for (int64_t id = 0; id < t->vocab; id++) {
        if (!t->entry[id].special)
            continue;
        sn_str_printf(out, "%s\n    {\"id\":%lld,\"content\":", comma, (long long) id);
        add_quoted(&t->entry[id], out);
        sn_str_add(out, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                        "\"normalized\":false,\"special\":true}");
        comma = ",";
    }
}

void sn_token_write(const sn_token *t, sn_str *out)
{
    static const char byte_level[] =
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
        "\"use_regex\":true}";
    sn_str_add(out, "{\n  \"version\":\"1.0\",\n  \"truncation\":null,\n  \"padding\":null,\n"
                    "  \"added_tokens\":[");
    write_added(t, out);
    sn_str_printf(out,
                  "],\n  \"normalizer\":null,\n  \"pre_tokenizer\":%s,\n  \"post_processor\":%s,\n"
                  "  \"decoder\":%s,\n  \"model\":{\"type\":\"BPE\",\"dropout\":null,"
                  "\"unk_token\":null,\"continuing_subword_prefix\":\"\","
                  "\"end_of_word_suffix\":\"\",\"fuse_unk\":false,\"byte_fallback\":false,\n"
                  "  \"vocab\":",
                  byte_level, byte_level, byte_level);
    sn_token_write_vocab(t, out);
    sn_str_add(out, ",\n  \"merges\":[");
    for (int64_t r = 0; r < t->merges; r++) {
        sn_str both = {0};
        add_name(&t->entry[t->merge[r].left], &both);
        sn_str_add(&both, " ");
        add_name(&t->entry[t->merge[r].right], &both);
        token_entry e = {(const uint8_t *) both.data, (int32_t) both.len, true};
        sn_str_add(out, r ? "," : "");
        add_quoted(&e, out);
        sn_str_done(&both);
    }
    sn_str_add(out, "]}\n}\n");
}
