/* First kernel: finds outlier channels and quantizes all others to bytes.
 *
 * Magnitudes are compared as float bits, which order like numbers and put infinity and NaN on top.
 * Compile-time parameter: EK_SIMD. */
#include "floats.h"

#define VECTORS 4 /* independent vectors in flight */
#define STRIP (VECTORS * EK_VL)
#define PREFETCH_DISTANCE 1024 /* prefetch distance in values of X */
#define ROWS 32                /* rows per piece of the scan; channels per piece: */
#define CHANNELS 1024
/* Turns the top bit of quantized values for unsigned bytes. */
#define FLIP (EK_I8 == EK_I8_DOT4_US ? 0x80 : 0)

typedef struct {
    const ek_outlier_args *args;
    int32_t limit;
    uint32_t *marks;
    int *bad;
} scan;

/* Writes only if the bit is not set yet; otherwise threads would contend for the cache line. */
static void mark(const scan *s, long channel, int32_t magnitude) {
    uint32_t *word = s->marks + channel / 32;
    const uint32_t bit = 1u << channel % 32;
    if (!(__atomic_load_n(word, __ATOMIC_RELAXED) & bit))
        __atomic_fetch_or(word, bit, __ATOMIC_RELAXED);
    if (magnitude > EK_FINITE_BITS && !__atomic_load_n(s->bad, __ATOMIC_RELAXED))
        __atomic_store_n(s->bad, 1, __ATOMIC_RELAXED);
}

/* Raises `most` to each channel's maximum magnitude over some rows, for channels from `from`. */
EK_INLINE void raise(int32_t *most, const scan *s, long row, const int rows, long from, long count,
                     const int half) {
    const void *x[4];
    EK_UNROLL
    for (int r = 0; r < rows; r++)
        x[r] = x_row(s->args, row + r);
    long i = 0;
    for (; i + STRIP <= count; i += STRIP) {
        vi v[VECTORS];
        EK_UNROLL
        for (int j = 0; j < VECTORS; j++)
            v[j] = vi_load(most + i + j * EK_VL);
        EK_UNROLL
        for (int r = 0; r < rows; r++) {
            EK_UNROLL
            for (int j = 0; j < VECTORS; j++)
                v[j] = vi_max(v[j], magnitude_of(x_load(x[r], from + i + j * EK_VL, half)));
        }
        EK_UNROLL
        for (int j = 0; j < VECTORS; j++)
            vi_store(most + i + j * EK_VL, v[j]);
    }
    for (; i + EK_VL <= count; i += EK_VL) {
        vi v = vi_load(most + i);
        EK_UNROLL
        for (int r = 0; r < rows; r++)
            v = vi_max(v, magnitude_of(x_load(x[r], from + i, half)));
        vi_store(most + i, v);
    }
    if (i < count) {
        vi v = vi_load(most + i);
        EK_UNROLL
        for (int r = 0; r < rows; r++)
            v = vi_max(v, magnitude_of(x_load_n(x[r], from + i, count - i, half)));
        vi_store(most + i, v);
    }
}

EK_INLINE void scan_block(const scan *s, long row, long row_end, long from, long count,
                          const int half) {
    int32_t most[CHANNELS] __attribute__((aligned(64)));
    memset(most, 0, (size_t)ek_ceil(count, STRIP) * STRIP * sizeof *most);
    for (; row + 4 <= row_end; row += 4)
        raise(most, s, row, 4, from, count, half);
    for (; row < row_end; row++)
        raise(most, s, row, 1, from, count, half);
    for (long i = 0; i < count; i += STRIP) {
        vi v = vi_load(most + i);
        EK_UNROLL
        for (int j = 1; j < VECTORS; j++)
            v = vi_max(v, vi_load(most + i + j * EK_VL));
        if (largest_lane(v) > s->limit)
            for (long c = i; c < ek_min(i + STRIP, count); c++)
                if (most[c] > s->limit)
                    mark(s, from + c, most[c]);
    }
}

static void scan_piece(const void *args, long begin, long end) {
    const scan *s = args;
    const long m = s->args->m, k = s->args->weights->k, across = ek_ceil(k, CHANNELS);
    for (long piece = begin; piece < end; piece++) {
        const long row = piece / across * ROWS, row_end = ek_min(row + ROWS, m);
        const long from = piece % across * CHANNELS, count = ek_min(CHANNELS, k - from);
        if (s->args->half)
            scan_block(s, row, row_end, from, count, 1);
        else
            scan_block(s, row, row_end, from, count, 0);
    }
}

static const int32_t lane_bits[16] = {
    1,      1 << 1, 1 << 2,  1 << 3,  1 << 4,  1 << 5,  1 << 6,  1 << 7,
    1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15,
};

/* All-ones lanes for unmarked channels, starting at `at`. */
EK_INLINE vi unmarked(const uint32_t *marks, long at) {
    const int32_t word = (int32_t)(marks[at / 32] >> at % 32);
    return EK_MASK((vi_splat(word) & vi_load(lane_bits)) == 0);
}

EK_INLINE vi magnitudes_at(const uint32_t *marks, vf v, long at) {
    return marks ? magnitude_of(v) & unmarked(marks, at) : magnitude_of(v);
}

/* Bits of the largest unmarked magnitude. */
EK_INLINE int32_t largest_of(const void *x, const uint32_t *marks, long k, const int half) {
    vi most[VECTORS] = {0};
    long at = 0;
    for (; at + STRIP <= k; at += STRIP) {
        EK_UNROLL
        for (int j = 0; j < VECTORS; j++) {
            const long here = at + j * EK_VL;
            x_prefetch(x, here + PREFETCH_DISTANCE, half);
            most[j] = vi_max(most[j], magnitudes_at(marks, x_load(x, here, half), here));
        }
    }
    for (; at < k; at += EK_VL) {
        const vf v = at + EK_VL <= k ? x_load(x, at, half) : x_load_n(x, at, k - at, half);
        most[0] = vi_max(most[0], magnitudes_at(marks, v, at));
    }
    return largest_lane(vi_max(vi_max(most[0], most[1]), vi_max(most[2], most[3])));
}

int ek_outlier_scan(const ek_outlier_args *args, int32_t limit, uint32_t *marks, ek_pool *pool) {
    const long k = args->weights->k;
    int bad = 0;
    const scan s = {args, limit, marks, &bad};
    memset(marks, 0, (size_t)ek_ceil(k, 32) * sizeof *marks);
    /* The channels of a row are looked at one by one only if there are outliers. */
    const void *x = x_row(args, 0);
    if (args->m == 1 &&
        (args->half ? largest_of(x, NULL, k, 1) : largest_of(x, NULL, k, 0)) <= limit)
        return 0;
    ek_parallel(pool, scan_piece, &s, ek_ceil(args->m, ROWS) * ek_ceil(k, CHANNELS), 1);
    return bad;
}

void ek_outlier_find_bad(const ek_outlier_args *args, ek_outlier_report *report) {
    for (long row = 0; row < args->m; row++)
        for (long c = 0; c < args->weights->k; c++) {
            const float v = x_value(x_row(args, row), c, args->half);
            if (!(v - v == 0)) {
                report->row = row, report->channel = c;
                return;
            }
        }
}

typedef struct {
    const ek_outlier_args *args;
    const uint32_t *marks;
    uint8_t *x1;
    float *scale;
} quantizer;

/* Quantizes into the low bytes of lanes. Adding 1.5 * 2^23 leaves the nearest integer, half to
 * even, in the low bits; the product is rounded separately, as by two operators. */
EK_INLINE vi quantize(vf x, vf factor, const uint32_t *marks, long at) {
    const vf scaled = x * factor;
    const vf moved = scaled + 0x1.8p23f;
    const vi bits = vf_bits(moved);
    return (marks ? bits & unmarked(marks, at) : bits) ^ FLIP;
}

/* Stores the lowest bytes of a strip's lanes together. */
EK_INLINE void strip_to_bytes(uint8_t *to, const vi v[VECTORS]) {
    typedef int32_t values __attribute__((vector_size(4 * STRIP)));
    typedef uint8_t bytes __attribute__((vector_size(STRIP)));
    values all;
    memcpy(&all, v, sizeof all);
    const bytes lowest = __builtin_convertvector(all, bytes);
    memcpy(to, &lowest, sizeof lowest);
}

EK_INLINE void quantize_row(const void *x, const uint32_t *marks, long k, float factor, uint8_t *to,
                            const int half) {
    const vf f = vf_splat(factor);
    long at = 0;
    for (; at + STRIP <= k; at += STRIP) {
        vi v[VECTORS]; /* before any store, which could change x for all the compiler knows */
        EK_UNROLL
        for (int j = 0; j < VECTORS; j++) {
            const long here = at + j * EK_VL;
            v[j] = quantize(x_load(x, here, half), f, marks, here);
        }
        strip_to_bytes(to + at, v);
    }
    for (; at + EK_VL <= k; at += EK_VL)
        vi_to_bytes(to + at, quantize(x_load(x, at, half), f, marks, at));
    if (at < k)
        vi_to_bytes_n(to + at, quantize(x_load_n(x, at, k - at, half), f, marks, at), k - at);
}

/* Rows that share a scale: their maximum magnitude maps to 127. */
EK_INLINE void quantize_rows(const quantizer *q, long row, long row_end, const uint32_t *marks,
                             const int half) {
    const ek_outlier_args *g = q->args;
    const long k = g->weights->k;
    int32_t bits = 0;
    for (long r = row; r < row_end; r++) {
        const int32_t most = largest_of(x_row(g, r), g->absmax_row ? NULL : marks, k, half);
        bits = most > bits ? most : bits;
    }
    float largest, factor = 0, scale;
    memcpy(&largest, &bits, sizeof largest);
    scale = largest / 127;
    if (largest > 0)
        factor = 127 / largest;
    if (factor > 5e37f) /* values so small that the inverse would overflow */
        factor = 5e37f, scale = 1 / 5e37f;
    for (long r = row; r < row_end; r++) {
        q->scale[r] = scale;
        quantize_row(x_row(g, r), marks, k, factor, q->x1 + r * k, half);
    }
}

static void quantize_piece(const void *args, long begin, long end) {
    const quantizer *q = args;
    const long rows = q->args->rows_per_scale;
    for (long piece = begin; piece < end; piece++) {
        const long row = piece * rows, row_end = ek_min(row + rows, q->args->m);
        if (q->args->half)
            quantize_rows(q, row, row_end, q->marks, 1);
        else if (q->marks)
            quantize_rows(q, row, row_end, q->marks, 0);
        else
            quantize_rows(q, row, row_end, NULL, 0);
    }
}

int ek_outlier_dtype(void) {
    return FLIP ? EK_GEMM_U8 : EK_GEMM_S8;
}

void ek_outlier_quantize(const ek_outlier_args *args, const uint32_t *marks, uint8_t *x1,
                         float *scale, ek_pool *pool) {
    const quantizer q = {args, marks, x1, scale};
    ek_parallel(pool, quantize_piece, &q, ek_ceil(args->m, args->rows_per_scale), 1);
}
