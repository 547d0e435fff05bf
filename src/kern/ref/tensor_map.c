/* SPDX-License-Identifier: Apache-2.0
 * unary, its gradient, binary, where, cast: element by element, broadcast as in NumPy. */
#include "kern/ref/tensor.h"

#define EACH(expression)                                                                           \
    for (int64_t i = 0; i < n; i++)                                                                \
    y[i] = (expression)
#define X x[i]

static double tensor_sigmoid(double x)
{
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

static double tensor_clamp01(double x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x; /* NaN stays */
}

static void unary_real(int64_t f, double a, double b, const double *x, double *y, int64_t n)
{
    switch ((sn_unary) f) { /* tidy: table */
    case SN_UNARY_ABS:
        EACH(fabs(X));
        break;
    case SN_UNARY_AFFINE:
        EACH(a * X + b);
        break;
    case SN_UNARY_NEG:
        EACH(-X);
        break;
    case SN_UNARY_SIGN:
        EACH(X > 0 ? 1 : X < 0 ? -1 : X);
        break;
    case SN_UNARY_CEIL:
        EACH(ceil(X));
        break;
    case SN_UNARY_FLOOR:
        EACH(floor(X));
        break;
    case SN_UNARY_ROUND:
        EACH(nearbyint(X));
        break;
    case SN_UNARY_SQRT:
        EACH(sqrt(X));
        break;
    case SN_UNARY_RECIPROCAL:
        EACH(1 / X);
        break;
    case SN_UNARY_EXP:
        EACH(exp(X));
        break;
    case SN_UNARY_LOG:
        EACH(log(X));
        break;
    case SN_UNARY_SIN:
        EACH(sin(X));
        break;
    case SN_UNARY_COS:
        EACH(cos(X));
        break;
    case SN_UNARY_TAN:
        EACH(tan(X));
        break;
    case SN_UNARY_ASIN:
        EACH(asin(X));
        break;
    case SN_UNARY_ACOS:
        EACH(acos(X));
        break;
    case SN_UNARY_ATAN:
        EACH(atan(X));
        break;
    case SN_UNARY_SINH:
        EACH(sinh(X));
        break;
    case SN_UNARY_COSH:
        EACH(cosh(X));
        break;
    case SN_UNARY_TANH:
        EACH(tanh(X));
        break;
    case SN_UNARY_ASINH:
        EACH(asinh(X));
        break;
    case SN_UNARY_ACOSH:
        EACH(acosh(X));
        break;
    case SN_UNARY_ATANH:
        EACH(atanh(X));
        break;
    case SN_UNARY_ERF:
        EACH(erf(X));
        break;
    case SN_UNARY_RELU:
        EACH(X < 0 ? 0 : X);
        break;
    case SN_UNARY_SIGMOID:
        EACH(tensor_sigmoid(X));
        break;
    case SN_UNARY_SOFTPLUS:
        EACH((X > 0 ? X : 0) + log1p(exp(-fabs(X))));
        break;
    case SN_UNARY_SOFTSIGN:
        EACH(X / (1 + fabs(X)));
        break;
    case SN_UNARY_LEAKY_RELU:
        EACH(X < 0 ? a * X : X);
        break;
    case SN_UNARY_ELU:
        EACH(X < 0 ? a * expm1(X) : X);
        break;
    case SN_UNARY_SELU:
        EACH(b * (X <= 0 ? a * expm1(X) : X));
        break;
    case SN_UNARY_CELU:
        EACH(X < 0 ? a * expm1(X / a) : X);
        break;
    case SN_UNARY_HARD_SIGMOID:
        EACH(tensor_clamp01(a * X + b));
        break;
    case SN_UNARY_HARD_SWISH:
        EACH(X * tensor_clamp01(X / 6 + 0.5));
        break;
    case SN_UNARY_THRESHOLD:
        EACH(X > a ? X : 0);
        break;
    case SN_UNARY_SHRINK:
        EACH(X < -a ? X + b : X > a ? X - b : 0);
        break;
    case SN_UNARY_IS_NAN:
        EACH(isnan(X));
        break;
    case SN_UNARY_IS_INF:
        EACH(isinf(X) && (X < 0 ? a : b) != 0);
        break;
    default:
        EACH(X);
        break;
    }
}

/* Integers: what stays among them; the rest goes by way of f64. */
static bool unary_integer(int64_t f, bool boolean, const int64_t *x, int64_t *y, int64_t n)
{
    switch ((sn_unary) f) {
    case SN_UNARY_ABS:
        EACH(X < 0 ? (int64_t) (0 - (uint64_t) X) : X);
        return true;
    case SN_UNARY_NEG:
        EACH((int64_t) (0 - (uint64_t) X));
        return true;
    case SN_UNARY_SIGN:
        EACH((X > 0) - (X < 0));
        return true;
    case SN_UNARY_RELU:
        EACH(X < 0 ? 0 : X);
        return true;
    case SN_UNARY_NOT:
        EACH(boolean ? !X : ~X);
        return true;
    case SN_UNARY_CEIL:
    case SN_UNARY_FLOOR:
    case SN_UNARY_ROUND:
        EACH(X);
        return true;
    default:
        return false;
    }
}

REF_RUN(unary)
{
    const sn_attr *attr = &k->spec.attr;
    sn_dtype from = k->spec.in[0].dtype, to = k->spec.out[0].dtype;
    int64_t count = sn_shape_count(k->spec.out[0].shape);
    for (int64_t at = 0; at < count; at += TENSOR_BLOCK) {
        int64_t n = SN_MIN(count - at, (int64_t) TENSOR_BLOCK), whole[TENSOR_BLOCK];
        double block[TENSOR_BLOCK];
        if (!tensor_real(from)) {
            REF(read_i64)(from, in[0], at, 1, n, whole);
            if (unary_integer(attr->i[0], from == SN_BOOL, whole, whole, n)) {
                REF(write_i64)(to, out[0], at, n, whole);
                continue;
            }
        }
        REF(read_f64)(from, in[0], at, 1, n, block);
        unary_real(attr->i[0], attr->f[0], attr->f[1], block, block, n);
        REF(write_f64)(to, out[0], at, n, block);
    }
    return SN_OK;
}

/* f'(x), where it has one; at a corner the value from the side that others take. */
static double tensor_slope(sn_unary f, double a, double b, double x)
{
    switch (f) { /* tidy: table */
    case SN_UNARY_ABS:
        return (x > 0) - (x < 0);
    case SN_UNARY_AFFINE:
        return a;
    case SN_UNARY_NEG:
        return -1;
    case SN_UNARY_SQRT:
        return 0.5 / sqrt(x);
    case SN_UNARY_RECIPROCAL:
        return -1 / (x * x);
    case SN_UNARY_EXP:
        return exp(x);
    case SN_UNARY_LOG:
        return 1 / x;
    case SN_UNARY_SIN:
        return cos(x);
    case SN_UNARY_COS:
        return -sin(x);
    case SN_UNARY_TAN:
        return 1 + tan(x) * tan(x);
    case SN_UNARY_ASIN:
        return 1 / sqrt(1 - x * x);
    case SN_UNARY_ACOS:
        return -1 / sqrt(1 - x * x);
    case SN_UNARY_ATAN:
        return 1 / (1 + x * x);
    case SN_UNARY_SINH:
        return cosh(x);
    case SN_UNARY_COSH:
        return sinh(x);
    case SN_UNARY_TANH:
        return 1 - tanh(x) * tanh(x);
    case SN_UNARY_ASINH:
        return 1 / sqrt(x * x + 1);
    case SN_UNARY_ACOSH:
        return 1 / sqrt(x * x - 1);
    case SN_UNARY_ATANH:
        return 1 / (1 - x * x);
    case SN_UNARY_ERF:
        return 2 / sqrt(M_PI) * exp(-x * x);
    case SN_UNARY_RELU:
        return x > 0;
    case SN_UNARY_SIGMOID:
        return tensor_sigmoid(x) * tensor_sigmoid(-x);
    case SN_UNARY_SOFTPLUS:
        return tensor_sigmoid(x);
    case SN_UNARY_SOFTSIGN:
        return 1 / ((1 + fabs(x)) * (1 + fabs(x)));
    case SN_UNARY_LEAKY_RELU:
        return x > 0 ? 1 : a;
    case SN_UNARY_ELU:
        return x > 0 ? 1 : a * exp(x);
    case SN_UNARY_SELU:
        return b * (x > 0 ? 1 : a * exp(x));
    case SN_UNARY_CELU:
        return x > 0 ? 1 : exp(x / a);
    case SN_UNARY_HARD_SIGMOID:
        return a * x + b > 0 && a * x + b < 1 ? a : 0;
    case SN_UNARY_HARD_SWISH:
        return x <= -3 ? 0 : x >= 3 ? 1 : x / 3 + 0.5;
    case SN_UNARY_THRESHOLD:
        return x > a;
    case SN_UNARY_SHRINK:
        return x < -a || x > a;
    default: /* steps: flat where they are smooth */
        return 0;
    }
}

REF_RUN(unary_grad)
{
    const sn_attr *attr = &k->spec.attr;
    int64_t count = sn_shape_count(k->spec.out[0].shape);
    for (int64_t at = 0; at < count; at += TENSOR_BLOCK) {
        int64_t n = SN_MIN(count - at, (int64_t) TENSOR_BLOCK);
        double dy[TENSOR_BLOCK], x[TENSOR_BLOCK];
        REF(read_f64)(k->spec.in[0].dtype, in[0], at, 1, n, dy);
        REF(read_f64)(k->spec.in[1].dtype, in[1], at, 1, n, x);
        for (int64_t i = 0; i < n; i++) /* an infinite slope where nothing arrives adds nothing */
            x[i] = dy[i] == 0 && !isnan(x[i])
                       ? 0
                       : dy[i] * tensor_slope((sn_unary) attr->i[0], attr->f[0], attr->f[1], x[i]);
        REF(write_f64)(k->spec.out[0].dtype, out[0], at, n, x);
    }
    return SN_OK;
}

#define Y w[i]

static double floor_mod(double x, double y)
{
    double m = fmod(x, y);
    return m != 0 && (m < 0) != (y < 0) ? m + y : m;
}

static double larger(double x, double y)
{
    return isnan(x) || x > y ? x : y; /* y when it is NaN */
}

static double smaller(double x, double y)
{
    return isnan(x) || x < y ? x : y;
}

/* x and the result share y's memory in the caller: each element is read before it is written. */
static void binary_real(int64_t f, const double *x, const double *w, double *y, int64_t n)
{
    switch ((sn_binary) f) {
    case SN_BINARY_ADD:
        EACH(X + Y);
        break;
    case SN_BINARY_SUB:
        EACH(X - Y);
        break;
    case SN_BINARY_MUL:
        EACH(X * Y);
        break;
    case SN_BINARY_DIV:
        EACH(X / Y);
        break;
    case SN_BINARY_POW:
        EACH(pow(X, Y));
        break;
    case SN_BINARY_MOD:
        EACH(floor_mod(X, Y));
        break;
    case SN_BINARY_FMOD:
        EACH(fmod(X, Y));
        break;
    case SN_BINARY_MAX:
        EACH(larger(X, Y));
        break;
    case SN_BINARY_MIN:
        EACH(smaller(X, Y));
        break;
    case SN_BINARY_EQ:
        EACH(X == Y);
        break;
    case SN_BINARY_NE:
        EACH(X != Y);
        break;
    case SN_BINARY_LT:
        EACH(X < Y);
        break;
    case SN_BINARY_LE:
        EACH(X <= Y);
        break;
    case SN_BINARY_GT:
        EACH(X > Y);
        break;
    default:
        EACH(X >= Y);
        break;
    }
}

static int64_t integer_div(int64_t x, int64_t y, bool is_unsigned)
{
    if (y == 0)
        return 0;
    if (is_unsigned)
        return (int64_t) ((uint64_t) x / (uint64_t) y);
    return y == -1 ? (int64_t) (0 - (uint64_t) x) : x / y;
}

/* sign_of_y: what is left has the divisor's sign, else the dividend's. */
static int64_t integer_mod(int64_t x, int64_t y, bool is_unsigned, bool sign_of_y)
{
    if (y == 0 || (y == -1 && !is_unsigned))
        return 0;
    if (is_unsigned)
        return (int64_t) ((uint64_t) x % (uint64_t) y);
    int64_t m = x % y;
    return sign_of_y && m != 0 && (m < 0) != (y < 0) ? m + y : m;
}

static int64_t integer_pow(int64_t x, int64_t y)
{
    uint64_t power = 1, base = (uint64_t) x;
    if (y < 0)
        return x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0;
    for (; y; y >>= 1, base *= base)
        if (y & 1)
            power *= base;
    return (int64_t) power;
}

static int64_t shifted(int64_t x, int64_t by, bool left)
{
    if (by < 0 || by > 63)
        return 0;
    return (int64_t) (left ? (uint64_t) x << by : (uint64_t) x >> by);
}

/* Order of 64-bit integers: unsigned ones are compared with the sign bit turned. */
static int64_t ordered(int64_t x, bool is_unsigned)
{
    return is_unsigned ? (int64_t) ((uint64_t) x ^ (uint64_t) INT64_MIN) : x;
}

static void binary_integer(int64_t f, bool u, const int64_t *x, const int64_t *w, int64_t *y,
                           int64_t n)
{
    switch ((sn_binary) f) { /* tidy: table */
    case SN_BINARY_ADD:
        EACH((int64_t) ((uint64_t) X + (uint64_t) Y));
        break;
    case SN_BINARY_SUB:
        EACH((int64_t) ((uint64_t) X - (uint64_t) Y));
        break;
    case SN_BINARY_MUL:
        EACH((int64_t) ((uint64_t) X * (uint64_t) Y));
        break;
    case SN_BINARY_DIV:
        EACH(integer_div(X, Y, u));
        break;
    case SN_BINARY_POW:
        EACH(integer_pow(X, Y));
        break;
    case SN_BINARY_MOD:
        EACH(integer_mod(X, Y, u, true));
        break;
    case SN_BINARY_FMOD:
        EACH(integer_mod(X, Y, u, false));
        break;
    case SN_BINARY_MAX:
        EACH(ordered(X, u) > ordered(Y, u) ? X : Y);
        break;
    case SN_BINARY_MIN:
        EACH(ordered(X, u) < ordered(Y, u) ? X : Y);
        break;
    case SN_BINARY_AND:
        EACH(X & Y);
        break;
    case SN_BINARY_OR:
        EACH(X | Y);
        break;
    case SN_BINARY_XOR:
        EACH(X ^ Y);
        break;
    case SN_BINARY_SHL:
        EACH(shifted(X, Y, true));
        break;
    case SN_BINARY_SHR:
        EACH(shifted(X, Y, false));
        break;
    case SN_BINARY_EQ:
        EACH(X == Y);
        break;
    case SN_BINARY_NE:
        EACH(X != Y);
        break;
    case SN_BINARY_LT:
        EACH(ordered(X, u) < ordered(Y, u));
        break;
    case SN_BINARY_LE:
        EACH(ordered(X, u) <= ordered(Y, u));
        break;
    case SN_BINARY_GT:
        EACH(ordered(X, u) > ordered(Y, u));
        break;
    default:
        EACH(ordered(X, u) >= ordered(Y, u));
        break;
    }
}

/* Steps of the inputs from `first` on, and of the dense result as operand 0. */
static void begin_map(const sn_kernel *k, tensor_walk *w)
{
    int64_t step[WALK_MAX][SN_RANK_MAX];
    sn_shape full = k->spec.out[0].shape;
    REF(steps_of)(full, full, step[0]);
    for (int i = 0; i < k->spec.ins; i++)
        REF(steps_of)(k->spec.in[i].shape, full, step[1 + i]);
    REF(walk_begin)(w, full, 1 + k->spec.ins, step);
}

REF_RUN(binary)
{
    tensor_walk w;
    begin_map(k, &w);
    sn_dtype tx = k->spec.in[0].dtype, ty = k->spec.in[1].dtype, tz = k->spec.out[0].dtype;
    bool floating = tensor_real(tx) || tensor_real(ty);
    int64_t f = k->spec.attr.i[0], last = w.rank - 1, done = 0;
    for (int64_t row = 0; row < w.rows; row++, REF(walk_next)(&w)) {
        for (int64_t at = 0; at < w.inner; at += TENSOR_BLOCK) {
            int64_t n = SN_MIN(w.inner - at, (int64_t) TENSOR_BLOCK);
            int64_t sx = w.step[1][last], sy = w.step[2][last];
            int64_t px = w.at[1] + at * sx, py = w.at[2] + at * sy;
            if (floating) {
                double x[TENSOR_BLOCK], y[TENSOR_BLOCK];
                REF(read_f64)(tx, in[0], px, sx, n, x);
                REF(read_f64)(ty, in[1], py, sy, n, y);
                binary_real(f, x, y, x, n);
                REF(write_f64)(tz, out[0], done, n, x);
            } else {
                int64_t x[TENSOR_BLOCK], y[TENSOR_BLOCK];
                REF(read_i64)(tx, in[0], px, sx, n, x);
                REF(read_i64)(ty, in[1], py, sy, n, y);
                binary_integer(f, tx == SN_U64, x, y, x, n);
                REF(write_i64)(tz, out[0], done, n, x);
            }
            done += n;
        }
    }
    return SN_OK;
}

REF_RUN(where)
{
    tensor_walk w;
    begin_map(k, &w);
    size_t bytes = tensor_bytes(k->spec.out[0].dtype);
    int64_t last = w.rank - 1;
    const uint8_t *c = in[0];
    char *z = out[0];
    for (int64_t row = 0; row < w.rows; row++, REF(walk_next)(&w))
        for (int64_t i = 0; i < w.inner; i++, z += bytes) {
            int side = c[w.at[1] + i * w.step[1][last]] ? 1 : 2;
            int64_t at = w.at[1 + side] + i * w.step[1 + side][last];
            memcpy(z, (const char *) in[side] + (size_t) at * bytes, bytes);
        }
    return SN_OK;
}

REF_RUN(cast)
{
    sn_dtype from = k->spec.in[0].dtype, to = k->spec.out[0].dtype;
    int64_t count = sn_shape_count(k->spec.out[0].shape);
    for (int64_t at = 0; at < count; at += TENSOR_BLOCK) {
        int64_t n = SN_MIN(count - at, (int64_t) TENSOR_BLOCK);
        if (tensor_real(from) || (from == SN_U64 && tensor_real(to))) { /* or beyond 2^63 */
            double block[TENSOR_BLOCK];
            REF(read_f64)(from, in[0], at, 1, n, block);
            REF(write_f64)(to, out[0], at, n, block);
        } else {
            int64_t block[TENSOR_BLOCK];
            REF(read_i64)(from, in[0], at, 1, n, block);
            REF(write_i64)(to, out[0], at, n, block);
        }
    }
    return SN_OK;
}

#undef EACH
#undef X
#undef Y
