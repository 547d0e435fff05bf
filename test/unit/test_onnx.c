/* SPDX-License-Identifier: Apache-2.0
 * Files that lie: every one is refused with a sentence, and quickly. Models are written here byte
 * by byte, in the wire format. */
#include "unit/sn_test.h"

#include "onnx/onnx.h"

typedef struct bytes {
    uint8_t data[4096];
    size_t n;
} bytes;

static void put_varint(bytes *b, uint64_t v)
{
    for (; v > 127; v >>= 7)
        b->data[b->n++] = (uint8_t) (v | 128);
    b->data[b->n++] = (uint8_t) v;
}

static void put_int(bytes *b, int field, int64_t v)
{
    put_varint(b, (uint64_t) field << 3);
    put_varint(b, (uint64_t) v);
}

static void put_bytes(bytes *b, int field, const void *data, size_t n)
{
    put_varint(b, (uint64_t) field << 3 | 2);
    put_varint(b, n);
    memcpy(b->data + b->n, data, n);
    b->n += n;
}

static void put_text(bytes *b, int field, const char *s)
{
    put_bytes(b, field, s, strlen(s));
}

static void put(bytes *b, int field, const bytes *part)
{
    put_bytes(b, field, part->data, part->n);
}

/* A ValueInfoProto of F32 with these dims; −1: the dim is called N. */
static bytes value(const char *name, int rank, const int64_t *dim)
{
    bytes v = {0}, type = {0}, tensor = {0}, shape = {0};
    for (int d = 0; d < rank; d++) {
        bytes one = {0};
        if (dim[d] == -1)
            put_text(&one, 2, "N");
        else
            put_int(&one, 1, dim[d]);
        put(&shape, 1, &one);
    }
    put_int(&tensor, 1, 1);
    put(&tensor, 2, &shape);
    put(&type, 1, &tensor);
    put_text(&v, 1, name);
    put(&v, 2, &type);
    return v;
}

static bytes node(const char *op, const char *a, const char *b, const char *out)
{
    bytes n = {0};
    put_text(&n, 1, a);
    if (b)
        put_text(&n, 1, b);
    put_text(&n, 2, out);
    put_text(&n, 4, op);
    return n;
}

static bytes model(const bytes *graph)
{
    bytes m = {0}, opset = {0};
    put_int(&opset, 2, 13);
    put_int(&m, 1, 7);
    put(&m, 8, &opset);
    put(&m, 7, graph);
    return m;
}

/* x[dims] → op → y */
static bytes simple(const char *op, const char *b, int rank, const int64_t *dim)
{
    bytes g = {0}, n = node(op, "x", b, "y"), x = value("x", rank, dim), y = value("y", 0, NULL);
    put(&g, 1, &n);
    put(&g, 11, &x);
    put(&g, 12, &y);
    return model(&g);
}

static sn_status read(const bytes *b, const sn_onnx_opts *opts, sn_arena *arena, sn_onnx **ret)
{
    sn_onnx_model *m;
    sn_status status = sn_onnx_parse(b->data, b->n, "file", &m);
    if (status < 0)
        return status;
    status = sn_onnx_import(m, opts, arena, ret);
    sn_onnx_free(m);
    return status;
}

static void refused(const bytes *b, sn_status want, const char *word)
{
    sn_arena *arena = sn_arena_create();
    sn_onnx *o;
    sn_status status = read(b, NULL, arena, &o);
    if (status != want || !strstr(sn_errmsg(), word))
        fail_msg("%s: %s, wanted '%s'", sn_status_name(status), sn_errmsg(), word);
    sn_arena_free(arena);
}

static void test_reads(void **state)
{
    sn_arena *arena = sn_arena_create();
    sn_onnx_dim dim = {"N", 4};
    sn_onnx_opts opts = {.dim = &dim, .dims = 1};
    bytes b = simple("Relu", NULL, 2, (int64_t[]){-1, 3});
    sn_onnx *o;
    assert_ok(read(&b, &opts, arena, &o));
    assert_int_equal(o->graph->nodes, 1);
    assert_int_equal(o->inputs, 1);
    assert_true(sn_shape_equal(o->output[0].tensor.shape, SN_SHAPE(4, 3)));
    sn_graph_check(o->graph);
    sn_arena_free(arena);
}

static void test_lies(void **state)
{
    bytes b = simple("Relu", NULL, 2, (int64_t[]){-1, 3});
    refused(&b, SN_EFIT, "'N'");
    b = simple("Frobnicate", NULL, 1, (int64_t[]){3});
    refused(&b, SN_ENOTSUP, "Frobnicate");
    b = simple("Add", "z", 1, (int64_t[]){3});
    refused(&b, SN_EINVAL, "'z'");
    b = simple("Add", "y", 1, (int64_t[]){3}); /* a circle */
    refused(&b, SN_EINVAL, "circle");
    b = simple("Add", NULL, 1, (int64_t[]){3});
    refused(&b, SN_EINVAL, "2 operands");
    b = simple("Relu", NULL, 2, (int64_t[]){INT64_MAX / 2, 8});
    refused(&b, SN_EFIT, "larger than allowed");
    b = simple("Relu", NULL, 1, (int64_t[]){-5});
    refused(&b, SN_EFIT, "larger than allowed");
    b = simple("Relu", NULL, 9, (int64_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1});
    refused(&b, SN_ENOTSUP, "9 dims");
    b = simple("Identity", NULL, 1, (int64_t[]){3}); /* "y" twice */
    bytes g = {0}, n = node("Relu", "x", NULL, "y"), x = value("x", 0, NULL);
    put(&g, 1, &n);
    put(&g, 1, &n);
    put(&g, 11, &x);
    put(&g, 12, &x);
    b = model(&g);
    refused(&b, SN_EINVAL, "twice");
}

static void test_initializers(void **state)
{
    bytes g = {0}, t = {0}, n = node("Add", "x", "w", "y"), x = value("x", 1, (int64_t[]){3});
    put_int(&t, 1, 1 << 30); /* a billion numbers, none of which are there */
    put_int(&t, 2, 1);
    put_text(&t, 8, "w");
    put(&g, 1, &n);
    put(&g, 5, &t);
    put(&g, 11, &x);
    bytes b = model(&g);
    refused(&b, SN_ECORRUPT, "'w'");
}

/* Cut anywhere: never more than a sentence. */
static void test_cut(void **state)
{
    bytes b = simple("Relu", NULL, 2, (int64_t[]){2, 3});
    sn_arena *arena = sn_arena_create();
    for (size_t n = 0; n < b.n; n++) {
        bytes cut = b;
        sn_onnx *o;
        cut.n = n;
        if (read(&cut, NULL, arena, &o) < 0)
            assert_true(*sn_errmsg());
    }
    for (uint64_t i = 0; i < 20000; i++) { /* and with bytes changed */
        bytes other = b;
        sn_onnx *o;
        sn_onnx_opts opts = {.tensor_bytes_max = 1 << 20};
        for (int k = 0; k < 1 + (int) (i % 3); k++)
            other.data[sn_hash64(1, i, (uint64_t) k) % b.n] =
                (uint8_t) sn_hash64(2, i, (uint64_t) k);
        if (read(&other, &opts, arena, &o) >= 0)
            sn_graph_check(o->graph);
        if (i % 1000 == 0)
            sn_arena_reset(arena);
    }
    sn_arena_free(arena);
}

/* Graphs in attributes in nodes in graphs …, deeper than any stack. */
static void test_nested(void **state)
{
    size_t levels = 200000, n = 0;
    uint8_t *room = malloc(levels * 16), *end = room + levels * 16, *at = end;
    for (size_t l = 0; l < levels; l++) { /* inside out, written backwards */
        static const uint8_t tag[] = {1 << 3 | 2, 5 << 3 | 2, 6 << 3 | 2};
        uint8_t size[10];
        size_t k = 0;
        for (uint64_t v = n; k == 0 || v; v >>= 7)
            size[k++] = (uint8_t) ((v & 127) | (v > 127 ? 128 : 0));
        at -= k;
        memcpy(at, size, k);
        *--at = l + 1 == levels ? 7 << 3 | 2 : tag[l % 3 == 0 ? 0 : l % 3 == 1 ? 2 : 1];
        n = (size_t) (end - at);
    }
    sn_onnx_model *m;
    assert_int_equal(sn_onnx_parse(at, n, "file", &m), SN_ECORRUPT);
    free(room);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),        cmocka_unit_test(test_lies),
        cmocka_unit_test(test_initializers), cmocka_unit_test(test_cut),
        cmocka_unit_test(test_nested),
    };
    sn_test_args(argc, argv);
    return sn_test_run(tests);
}
