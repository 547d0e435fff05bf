/* SPDX-License-Identifier: Apache-2.0
 *
 * ternary — each element is -1, 0 or 1 times a level of its block, times the scales of its row and
 * column where the vector is a matrix. Rows and columns of a gradient differ by orders of
 * magnitude; without their scales the large ones set the level and the small ones get noise.
 *
 *   base, top | row scales | column scales | level of each 4096 | four elements in 6 bits, …
 *
 * A level is the mean of what exceeds 3/4 of the mean magnitude (Li & Liu, "Ternary weight
 * networks", 2016, choose about that for a normal distribution); the rest becomes 0. Of the 81
 * fours 64 have a code: those with four non-zeros lose their smallest, as does one other.
 *
 * A row's scale is a power of 2^(1/4) in a byte, down from the largest element's, `base`; a
 * column's one of 2^(3/4) in four bits, down from the largest column's, `top`: a matrix is coded in
 * as many parts as there are cards, each with scales of all columns. 0: nothing but zeros. */
#include "codec/block.h"

enum { BLOCK = 4096, FOUR = 4, SIXES = 6, CODES = 64, LEVEL = 2, BASE = 2, TOP = 1 };
enum { ROW_TOP = 255, QUARTERS = 4, BASE_MOST = 480, LEAST = -500 };
enum { COLUMN_ONE = 128, COLUMN_TOP = 15, COLUMN_STEP = 3 }; /* in quarters */
enum { COLS_LEAST = 8, COLS_MOST = 2048, ROWS_LEAST = 4 };
#define DROPPED 27 /* the four -1 -1 -1 0 */

typedef struct shape {
    int64_t rows, cols, phase; /* rows 0: no scales */
} shape;

typedef struct scales {
    int base, top;
    uint8_t *row, *column; /* in the code; a column is four bits */
} scales;

/* ---- sizes ---- */

static shape shape_of(const sn_codec *c, int64_t n)
{
    shape s = {.cols = c->cols, .phase = c->phase};
    if (s.cols >= COLS_LEAST && s.cols <= COLS_MOST && s.phase >= 0 && s.phase < s.cols)
        s.rows = (s.phase + n + s.cols - 1) / s.cols;
    if (s.rows < ROWS_LEAST)
        s.rows = 0;
    return s;
}

static int64_t head_bytes(const shape *s)
{
    return s->rows > 0 ? BASE + TOP + s->rows + blocks(s->cols, 2) : 0;
}

static int64_t sixes_bytes(int64_t n)
{
    return blocks(blocks(n, FOUR) * SIXES, 8);
}

static int64_t bytes(const sn_codec *c, int64_t n)
{
    shape s = shape_of(c, n);
    return head_bytes(&s) + blocks(n, BLOCK) * LEVEL + sixes_bytes(n);
}

/* ---- powers of the fourth root of two ---- */

/* The nearest of a positive number that is not a denormal. */
INLINE int quarters_of(float x)
{
    uint32_t u = bits_of(x);
    float m = float_of((u & 0x7fffffu) | 0x3f800000u);
    int more = (m >= 0x1.172b84p+0f) + (m >= 0x1.4bfdaep+0f) + (m >= 0x1.8ace54p+0f) +
               (m >= 0x1.d5818ep+0f); /* 2^(1/8), 2^(3/8), 2^(5/8), 2^(7/8) */
    return ((int) (u >> 23) - 127) * QUARTERS + more;
}

INLINE float power(int quarters)
{
    static const float part[QUARTERS] = {1, 0x1.306fep+0f, 0x1.6a09e6p+0f, 0x1.ae89fap+0f};
    int whole = quarters >= 0 ? quarters / QUARTERS : -((QUARTERS - 1 - quarters) / QUARTERS);
    return part[quarters - whole * QUARTERS] * float_of((uint32_t) (whole + 127) << 23);
}

INLINE int limited(int x, int least, int most)
{
    return x < least ? least : x > most ? most : x;
}

static float row_scale(const scales *s, int64_t row)
{
    return s->row[row] ? power(limited(s->base - ROW_TOP + s->row[row], LEAST, BASE_MOST)) : 0;
}

static float column_scale(const scales *s, int64_t column)
{
    int steps = s->column[column / 2] >> (column % 2 * 4) & COLUMN_TOP;
    return steps ? power(s->top - (COLUMN_TOP - steps) * COLUMN_STEP) : 0;
}

INLINE float inverse(float x)
{
    return x > 0 ? 1 / x : 0;
}

/* ---- finding scales ---- */

INLINE float element(const sn_codec_in *in, int64_t i)
{
    return in->residual ? in->x[i] + in->residual[i] : in->x[i];
}

/* |y|, or 0 for what is not finite. */
INLINE float magnitude(const sn_codec_in *in, int64_t i)
{
    uint32_t u = bits_of(element(in, i)) & 0x7fffffffu;
    return u < INFINITE ? float_of(u) : 0;
}

static float largest_of_all(const sn_codec_in *in)
{
    float top = 0;
    for (int64_t i = 0; i < in->n; i++)
        top = SN_MAX(top, magnitude(in, i));
    return top;
}

/* Elements [from, to) of row `row`. */
INLINE void row_range(const shape *s, int64_t n, int64_t row, int64_t *from, int64_t *to)
{
    *from = SN_MAX(0, row * s->cols - s->phase);
    *to = SN_MIN(n, (row + 1) * s->cols - s->phase);
}

static float row_mean(const sn_codec_in *in, int64_t from, int64_t to)
{
    float sum[LANES] = {0};
    for (int64_t i = from; i < to; i += LANES) /* small parts, so that nothing overflows */
        for (int l = 0; l < LANES && i + l < to; l++)
            sum[l] += magnitude(in, i + l) * 0x1p-12f;
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            sum[l] += sum[l + half];
    return sum[0] / (float) (to - from);
}

static void find_rows(const sn_codec_in *in, const shape *s, scales *ret)
{
    for (int64_t row = 0; row < s->rows; row++) {
        int64_t from, to;
        row_range(s, in->n, row, &from, &to);
        float mean = row_mean(in, from, to);
        int quarters = mean >= 0x1p-126f ? quarters_of(mean) + 12 * QUARTERS : LEAST;
        bool none = quarters <= LEAST || ret->base <= LEAST;
        ret->row[row] = none ? 0 : (uint8_t) limited(ROW_TOP + quarters - ret->base, 1, ROW_TOP);
    }
}

/* The mean magnitude of each column of what is left under the rows' scales. mean: zeros. */
static void column_means(const sn_codec_in *in, const shape *s, const scales *by, float *mean)
{
    for (int64_t row = 0; row < s->rows; row++) {
        int64_t from, to, at = row * s->cols - s->phase;
        float up = inverse(row_scale(by, row));
        row_range(s, in->n, row, &from, &to);
        for (int64_t i = from; i < to; i++)
            mean[i - at] += magnitude(in, i) * up;
    }
    for (int64_t j = 0; j < s->cols; j++) {
        int64_t first = (j - s->phase + s->cols) % s->cols; /* the first element of the column */
        int64_t count = first < in->n ? (in->n - 1 - first) / s->cols + 1 : 0;
        mean[j] = count > 0 ? mean[j] / (float) count : 0;
    }
}

static void find_columns(const sn_codec_in *in, const shape *s, scales *by, uint8_t *ret_top)
{
    float mean[COLS_MOST] = {0}, most = 0x1p-32f;
    column_means(in, s, by, mean);
    for (int64_t j = 0; j < s->cols; j++)
        most = SN_MAX(most, mean[j]);
    by->top = limited(quarters_of(most), -COLUMN_ONE, COLUMN_ONE - 1);
    *ret_top = (uint8_t) (by->top + COLUMN_ONE);
    memset(by->column, 0, (size_t) blocks(SN_MIN(SN_MAX(s->cols, 1), COLS_MOST), 2));
    for (int64_t j = 0; j < s->cols; j++) {
        if (mean[j] < 0x1p-32f)
            continue;
        int down = (by->top - quarters_of(mean[j]) + COLUMN_STEP / 2) / COLUMN_STEP;
        int steps = limited(COLUMN_TOP - down, 1, COLUMN_TOP);
        by->column[j / 2] |= (uint8_t) (steps << (j % 2 * 4));
    }
}

static scales scales_in(const shape *s, uint8_t *code)
{
    uint8_t *row = code + BASE + TOP;
    return (scales){.base = (int16_t) load16(code),
                    .top = code[BASE] - COLUMN_ONE,
                    .row = row,
                    .column = row + s->rows};
}

static scales find_scales(const sn_codec_in *in, const shape *s, uint8_t *code)
{
    float top = largest_of_all(in);
    int base = top >= 0x1p-126f ? SN_MIN(quarters_of(top), BASE_MOST) : LEAST;
    store16(code, (uint16_t) base);
    scales ret = scales_in(s, code);
    find_rows(in, s, &ret);
    find_columns(in, s, &ret, code + BASE);
    return ret;
}

/* ---- a block ---- */

/* Where a block lies in the matrix: f(i) of its elements one row after the other. */
INLINE void scale_block(const shape *s, const scales *by, int64_t at, int n, bool invert,
                        const float *in, float *out)
{
    if (s->rows == 0) {
        memmove(out, in, (size_t) n * sizeof(*out));
        return;
    }
    for (int i = 0; i < n;) {
        int64_t place = s->phase + at + i, column = place % s->cols;
        int end = (int) SN_MIN(n, i + s->cols - column);
        float r = row_scale(by, place / s->cols);
        r = invert ? inverse(r) : r;
        for (; i < end; i++, column++) {
            float c = column_scale(by, column);
            out[i] = in[i] * r * (invert ? inverse(c) : c);
        }
    }
}

/* The mean magnitude of those that exceed `least`, times 2^-12. */
static float mean_above(const float *u, int n, float least, int *ret_count)
{
    float sum[LANES] = {0};
    int count = 0;
    for (int i = 0; i < n; i++) {
        float m = float_of(bits_of(u[i]) & 0x7fffffffu);
        sum[i % LANES] += m > least ? m * 0x1p-12f : 0;
        count += m > least;
    }
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            sum[l] += sum[l + half];
    *ret_count = count;
    return count > 0 ? sum[0] / (float) count : 0;
}

static uint16_t level_of(const float *u, int n, float *ret_least)
{
    int count;
    float mean = mean_above(u, n, -1, &count);
    *ret_least = mean * 0x1.8p+11f; /* 3/4 of it */
    uint16_t h = sn_f32_to_bf16(mean_above(u, n, *ret_least, &count) * 0x1p12f);
    return (h & 0x7fff) == 0x7f80 ? (uint16_t) (h - 1) : h; /* rounding may not reach infinity */
}

/* The fours that have a code: code → four, and back. */
typedef struct book {
    int8_t four[CODES][FOUR];
    uint8_t code[81];
} book;

static void write_book(book *b)
{
    for (int value = 0, code = 0; value < 81; value++) {
        int8_t t[FOUR];
        int zeros = 0;
        for (int k = 0, rest = value; k < FOUR; k++, rest /= 3) {
            t[k] = (int8_t) (rest % 3 - 1);
            zeros += t[k] == 0;
        }
        b->code[value] = 0;
        if (zeros == 0 || value == DROPPED)
            continue;
        memcpy(b->four[code], t, FOUR);
        b->code[value] = (uint8_t) code++;
    }
}

INLINE int value_of(const int8_t t[FOUR])
{
    return t[0] + 1 + 3 * (t[1] + 1) + 9 * (t[2] + 1) + 27 * (t[3] + 1);
}

INLINE void drop_smallest(const float *u, int8_t t[FOUR])
{
    int least = -1;
    for (int k = 0; k < FOUR; k++)
        if (t[k] != 0 && (least < 0 || float_of(bits_of(u[k]) & 0x7fffffffu) <
                                           float_of(bits_of(u[least]) & 0x7fffffffu)))
            least = k;
    t[least] = 0;
}

INLINE uint32_t four_code(const book *b, const float *u, float least)
{
    int8_t t[FOUR];
    int zeros = 0;
    for (int k = 0; k < FOUR; k++) {
        t[k] = (int8_t) ((u[k] > least) - (u[k] < -least));
        zeros += t[k] == 0;
    }
    if (zeros == 0 || value_of(t) == DROPPED)
        drop_smallest(u, t);
    return b->code[value_of(t)];
}

/* u [n, a multiple of 16 with zeros beyond the end] → sixes. */
static void to_sixes(const book *b, const float *u, int n, float least, uint8_t *to)
{
    for (int i = 0, left = (int) sixes_bytes(n); i < n; i += 4 * FOUR, left -= 3, to += 3) {
        uint32_t bits = 0;
        for (int k = 0; k < 4 && i + k * FOUR < n; k++)
            bits |= four_code(b, u + i + k * FOUR, least) << (k * SIXES);
        for (int k = 0; k < SN_MIN(3, left); k++)
            to[k] = (uint8_t) (bits >> (8 * k));
    }
}

static void from_sixes(const book *b, const uint8_t *from, int n, float level, float *d)
{
    for (int i = 0, left = (int) sixes_bytes(n); i < n; i += 4 * FOUR, left -= 3, from += 3) {
        uint32_t bits = 0;
        for (int k = 0; k < SN_MIN(3, left); k++)
            bits |= (uint32_t) from[k] << (8 * k);
        for (int k = 0; k < 4 * FOUR; k++)
            d[i + k] = (float) b->four[bits >> (k / FOUR * SIXES) & (CODES - 1)][k % FOUR] * level;
    }
}

static bool overflows(const float *d, int n)
{
    return largest(d, n) >= INFINITE;
}

/* One block: its level and sixes, and in d what they decode to. */
static void encode_block(const book *b, const shape *s, const scales *by, int64_t at, int n,
                         const float *y, float *d, uint8_t *level, uint8_t *sixes)
{
    float u[BLOCK + 4 * FOUR], least = 0;
    bool lost = overflows(y, n);
    scale_block(s, by, at, n, true, y, u);
    memset(u + n, 0, 4 * FOUR * sizeof(*u));
    uint16_t h = lost ? BF16_NAN : level_of(u, n, &least);
    if (lost)
        memset(u, 0, sizeof(u));
    for (;;) {
        to_sixes(b, u, n, least, sixes);
        from_sixes(b, sixes, n, sn_bf16_to_f32(h), d);
        scale_block(s, by, at, n, false, d, d);
        if (lost || h == 0 || !overflows(d, n))
            break;
        h = 0; /* the code cannot say so much: later */
    }
    store16(level, h);
}

static void encode(const sn_codec *c, const sn_codec_in *in, void *code)
{
    shape s = shape_of(c, in->n);
    scales by = {0};
    book b;
    write_book(&b);
    if (s.rows > 0)
        by = find_scales(in, &s, code);
    uint8_t *level = (uint8_t *) code + head_bytes(&s);
    uint8_t *sixes = level + blocks(in->n, BLOCK) * LEVEL;
    for (int64_t at = 0; at < in->n; at += BLOCK) {
        int n = (int) SN_MIN(BLOCK, in->n - at);
        float y[BLOCK], d[BLOCK + 4 * FOUR];
        take(in, at, n, n, y);
        encode_block(&b, &s, &by, at, n, y, d, level, sixes);
        leave(in, at, n, y, d, overflows(y, n));
        level += LEVEL;
        sixes += BLOCK / FOUR * SIXES / 8;
    }
}

static sn_status decode(const sn_codec *c, const void *code, int64_t n, bool add, float *out)
{
    shape s = shape_of(c, n);
    scales by = {0};
    book b;
    write_book(&b);
    if (s.rows > 0)
        by = scales_in(&s, (uint8_t *) (uintptr_t) code);
    const uint8_t *level = (const uint8_t *) code + head_bytes(&s);
    const uint8_t *sixes = level + blocks(n, BLOCK) * LEVEL;
    for (int64_t at = 0; at < n; at += BLOCK) {
        int m = (int) SN_MIN(BLOCK, n - at);
        float d[BLOCK + 4 * FOUR];
        from_sixes(&b, sixes, m, sn_bf16_to_f32(load16(level)), d);
        scale_block(&s, &by, at, m, false, d, d);
        give(out + at, d, m, add);
        level += LEVEL;
        sixes += BLOCK / FOUR * SIXES / 8;
    }
    return SN_OK;
}

const sn_codec_row CODEC_HERE(codec_ternary) = {
    .name = "ternary",
    .form = "ternary",
    .help = "1/21 of the bytes: -1, 0 or 1 times a level and the scales of row and column; wants "
            "feedback",
    .kind = SN_CODEC_TERNARY,
    .feedback = true,
    .bytes = bytes,
    .encode = encode,
    .decode = decode,
};
