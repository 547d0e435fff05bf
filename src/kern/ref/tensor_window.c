/* SPDX-License-Identifier: Apache-2.0
 * Products of stacks of matrices; a tensor through windows and back. */
#include "kern/ref/tensor.h"

/* Sizes of one product, and how its operands lie. */
typedef struct stack {
    int64_t count, m, n, inner;
    bool swap_x, swap_y;
} stack;

static stack stack_of(const sn_kernel *k)
{
    sn_shape x = k->spec.in[0].shape, z = k->spec.out[0].shape;
    int r = x.rank;
    stack s = {1, z.dim[r - 2], z.dim[r - 1], 0, k->spec.attr.i[0], k->spec.attr.i[1]};
    s.inner = x.dim[s.swap_x ? r - 2 : r - 1];
    for (int d = 0; d < r - 2; d++)
        s.count *= x.dim[d];
    return s;
}

/* A row of x, a row of z, and y as [K,N], of 8 bytes each. */
sn_status REF(matmul_work)(sn_kernel *k)
{
    stack s = stack_of(k);
    k->work_bytes = (size_t) (s.inner + s.n + s.inner * s.n) * sizeof(double);
    return SN_OK;
}

static void matmul_real(const sn_kernel *k, const void *const *in, void *out, double *x)
{
    stack s = stack_of(k);
    double *z = x + s.inner, *y = z + s.n;
    sn_dtype t = k->spec.in[0].dtype;
    for (int64_t b = 0; b < s.count; b++) {
        int64_t at_x = b * s.m * s.inner, at_y = b * s.inner * s.n, at_z = b * s.m * s.n;
        for (int64_t i = 0; i < s.inner; i++)
            REF(read_f64)
            (t, in[1], at_y + i * (s.swap_y ? 1 : s.n), s.swap_y ? s.inner : 1, s.n, y + i * s.n);
        for (int64_t row = 0; row < s.m; row++) {
            REF(read_f64)
            (t, in[0], at_x + row * (s.swap_x ? 1 : s.inner), s.swap_x ? s.m : 1, s.inner, x);
            memset(z, 0, (size_t) s.n * sizeof *z);
            for (int64_t i = 0; i < s.inner; i++)
                for (int64_t j = 0; j < s.n; j++)
                    z[j] += x[i] * y[i * s.n + j];
            REF(write_f64)(k->spec.out[0].dtype, out, at_z + row * s.n, s.n, z);
        }
    }
}

static void matmul_integer(const sn_kernel *k, const void *const *in, void *out, int64_t *x)
{
    stack s = stack_of(k);
    int64_t *z = x + s.inner, *y = z + s.n;
    sn_dtype t = k->spec.in[0].dtype;
    for (int64_t b = 0; b < s.count; b++) {
        int64_t at_x = b * s.m * s.inner, at_y = b * s.inner * s.n, at_z = b * s.m * s.n;
        for (int64_t i = 0; i < s.inner; i++)
            REF(read_i64)
            (t, in[1], at_y + i * (s.swap_y ? 1 : s.n), s.swap_y ? s.inner : 1, s.n, y + i * s.n);
        for (int64_t row = 0; row < s.m; row++) {
            REF(read_i64)
            (t, in[0], at_x + row * (s.swap_x ? 1 : s.inner), s.swap_x ? s.m : 1, s.inner, x);
            memset(z, 0, (size_t) s.n * sizeof *z);
            for (int64_t i = 0; i < s.inner; i++)
                for (int64_t j = 0; j < s.n; j++)
                    z[j] =
                        (int64_t) ((uint64_t) z[j] + (uint64_t) x[i] * (uint64_t) y[i * s.n + j]);
            REF(write_i64)(k->spec.out[0].dtype, out, at_z + row * s.n, s.n, z);
        }
    }
}

REF_RUN(matmul)
{
    if (tensor_real(k->spec.in[0].dtype))
        matmul_real(k, in, out[0], work);
    else
        matmul_integer(k, in, out[0], work);
    return SN_OK;
}

/* Windows over up to three dims; those that are missing have size 1. */
typedef struct windows {
    int64_t images, places, count; /* N·C, K, O */
    int64_t x[3], size[3], stride[3], dilation[3], before[3], o[3];
} windows;

static windows windows_of(const sn_kernel *k, sn_shape x)
{
    const int64_t *a = k->spec.attr.i;
    windows w = {x.dim[0] * x.dim[1], 1, 1};
    for (int j = 0; j < 3; j++) {
        int from = j - (3 - (x.rank - 2)); /* the missing ones come first */
        bool there = from >= 0;
        w.x[j] = there ? x.dim[2 + from] : 1;
        w.size[j] = there ? a[from] : 1;
        w.stride[j] = there ? a[3 + from] : 1;
        w.dilation[j] = there ? a[6 + from] : 1;
        w.before[j] = there ? a[9 + from] : 0;
        int64_t room = w.x[j] + (there ? a[9 + from] + a[12 + from] : 0);
        w.o[j] = (room - (w.size[j] - 1) * w.dilation[j] - 1) / w.stride[j] + 1;
        w.places *= w.size[j];
        w.count *= w.o[j];
    }
    return w;
}

/* Where dim j of window o has its place p: outside when there is only padding. */
static int64_t position(const windows *w, int j, int64_t o, int64_t p)
{
    int64_t at = o * w->stride[j] + p * w->dilation[j] - w->before[j];
    return at < 0 || at >= w->x[j] ? -1 : at;
}

/* The run of windows (a, b, all of the last dim) for place p: where its dims stand, or false when
 * all of it is padding. */
static bool run_of(const windows *w, int64_t p, int64_t row, int64_t *ret_base, int64_t *ret_last)
{
    int64_t p2 = p % w->size[2], p1 = p / w->size[2] % w->size[1], p0 = p / w->size[2] / w->size[1];
    int64_t at0 = position(w, 0, row / w->o[1], p0), at1 = position(w, 1, row % w->o[1], p1);
    *ret_base = (at0 * w->x[1] + at1) * w->x[2];
    *ret_last = p2;
    return at0 >= 0 && at1 >= 0;
}

REF_RUN(unfold)
{
    windows w = windows_of(k, k->spec.in[0].shape);
    sn_dtype t = k->spec.out[0].dtype;
    size_t bytes = tensor_bytes(t);
    int64_t image = w.x[0] * w.x[1] * w.x[2];
    uint64_t value = 0;
    REF(write_f64)(t, &value, 0, 1, &k->spec.attr.f[0]);
    char *y = out[0];
    for (int64_t n = 0; n < w.images; n++)
        for (int64_t p = 0; p < w.places; p++)
            for (int64_t row = 0; row < w.o[0] * w.o[1]; row++) {
                int64_t base, last;
                bool there = run_of(&w, p, row, &base, &last);
                for (int64_t o = 0; o < w.o[2]; o++, y += bytes) {
                    int64_t at = there ? position(&w, 2, o, last) : -1;
                    const void *from = &value;
                    if (at >= 0)
                        from = (const char *) in[0] + (n * image + base + at) * (int64_t) bytes;
                    memcpy(y, from, bytes);
                }
            }
    return SN_OK;
}

/* One image of sums. */
sn_status REF(image)(sn_kernel *k)
{
    sn_shape x = k->spec.out[0].shape;
    size_t n = 1;
    for (int d = 2; d < x.rank; d++)
        n *= (size_t) x.dim[d];
    k->work_bytes = n * sizeof(double);
    return SN_OK;
}

static void fold_run(const windows *w, int64_t base, int64_t last, const double *y, int64_t from,
                     int64_t n, double *sum)
{
    for (int64_t o = 0; o < n; o++) {
        int64_t at = position(w, 2, from + o, last);
        if (at >= 0)
            sum[base + at] += y[o];
    }
}

REF_RUN(fold)
{
    windows w = windows_of(k, k->spec.out[0].shape);
    int64_t image = w.x[0] * w.x[1] * w.x[2], at = 0;
    double *sum = work, y[TENSOR_BLOCK];
    for (int64_t n = 0; n < w.images; n++) {
        memset(sum, 0, (size_t) image * sizeof *sum);
        for (int64_t p = 0; p < w.places; p++)
            for (int64_t row = 0; row < w.o[0] * w.o[1]; row++, at += w.o[2]) {
                int64_t base, last;
                if (!run_of(&w, p, row, &base, &last))
                    continue;
                for (int64_t o = 0; o < w.o[2]; o += TENSOR_BLOCK) {
                    int64_t part = SN_MIN(w.o[2] - o, (int64_t) TENSOR_BLOCK);
                    REF(read_f64)(k->spec.in[0].dtype, in[0], at + o, 1, part, y);
                    fold_run(&w, base, last, y, o, part, sum);
                }
            }
        REF(write_f64)(k->spec.out[0].dtype, out[0], n * image, image, sum);
    }
    return SN_OK;
}
