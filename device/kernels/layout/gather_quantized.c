/* Gathers rows of quantized values, or of f16, as floats. Compile-time parameters: NAME, EK_SIMD,
 * TI (type of indices), INT4: two values per byte, PACKED: number of a row's values that are
 * adjacent in the packed weights of a product, STREAM: bits per value of weights that a product
 * streams (outlier/grouped_row.h) with GROUPS and SCALES, FROM_F16, and SCALE_BITS (32, 16 or 8; 0
 * for f16 and STREAM). */
#include "gather_quantized.h"
#include "../elementwise/half.h"

#ifdef FROM_F16
static void widen(const ek_gather_quantized_args *a, long at, long from, long until, float scale,
                  float *y) {
    const uint16_t *row = (const uint16_t *)a->table + at * a->run;
    (void)scale;
    EK_VECTOR_LOOP
    for (long i = from; i < until; i++)
        y[i] = ek_float_of_half(row[i]);
}
#elif defined INT4
/* Dequantizes `count` values in the same half of their bytes. */
static void widen_half(const uint8_t *bytes, int shift, long count, float scale, float *y) {
    for (long i = 0; i < count; i++)
        y[i] = (float)((bytes[i] >> shift & 15) - 8) * scale;
}

static void widen(const ek_gather_quantized_args *a, long at, long from, long until, float scale,
                  float *y) {
    const long half = a->run / 2, middle = ek_max(from, ek_min(until, half));
    const uint8_t *row = (const uint8_t *)a->table + at * half;
    widen_half(row + from, 0, middle - from, scale, y + from);
    widen_half(row + middle - half, 4, until - middle, scale, y + middle);
}
#elif defined PACKED
#define MR 1
#define NV 1
#include "../gemm/i8_tile.h"
/* Row `at` is a column of its panel; the last panel may be narrower. */
static void widen(const ek_gather_quantized_args *a, long at, long from, long until, float scale,
                  float *y) {
    const long start = at / a->columns * a->columns;
    const long step = ek_min(a->columns, a->padded - start) * PACKED;
    const int8_t *row = (const int8_t *)a->table + start * a->depth + (at - start) * PACKED;
    for (long i = from; i < until; i++)
        y[i] = (float)row[i / PACKED * step + I8_PLACE(i % PACKED)] * scale;
}
#elif defined STREAM
#define MR 1
#define NV 1
#include "../gemm/i8_tile.h"
#include "../outlier/stream.h"
static float stream_scale(const uint8_t *p) {
    uint32_t bits = 0;
    memcpy(&bits, p, (size_t)stream_scale_bytes(SCALES));
    if (SCALES == STREAM_F16)
        return ek_float_of_half((uint16_t)bits);
    return ek_float_of_bits(SCALES == STREAM_BF16 ? bits << 16 : bits);
}

/* Row `at` is a column of its panel; the last panel may be narrower. */
static void widen(const ek_gather_quantized_args *a, long at, long from, long until, float scale,
                  float *y) {
    const long start = at / a->columns * a->columns, column = at - start;
    const long width = ek_min(a->columns, a->padded - start), groups = a->run / a->group;
    const uint8_t *w = (const uint8_t *)a->table +
                       groups * stream_full(start, GROUPS, STREAM, SCALES) +
                       from / a->group * stream_block(width, GROUPS, STREAM, SCALES);
    const int middle = 1 << (stream_bits(STREAM) - 1);
    const int flip = stream_is_raised(STREAM) ? 0 : middle;
    scale = stream_scale(w + stream_values(width, GROUPS, STREAM) +
                         column * stream_scale_bytes(SCALES));
    for (long i = from; i < until; i++) {
        const stream_place of = stream_place_of(i - from, GROUPS, STREAM);
        const uint8_t *step = w + of.step * stream_step(width, STREAM);
        const int code = (int)stream_code(step, width, column, STREAM, &of);
        y[i] = (float)((code ^ flip) - middle) * scale;
    }
}
#else
static void widen(const ek_gather_quantized_args *a, long at, long from, long until, float scale,
                  float *y) {
    const int8_t *row = (const int8_t *)a->table + at * a->run;
    for (long i = from; i < until; i++)
        y[i] = (float)row[i] * scale;
}
#endif

static float scale_at(const ek_gather_quantized_args *a, long at) {
#if SCALE_BITS == 0
    (void)a, (void)at;
    return 1;
#elif SCALE_BITS == 32
    return ((const float *)a->scale)[at];
#else
#if SCALE_BITS == 16
    const uint32_t bits = (uint32_t)((const uint16_t *)a->scale)[at] << 16;
#else
    const uint32_t byte = ((const uint8_t *)a->scale)[at];
    const uint32_t bits = ((byte & 128) << 24) + ((byte & 127) << 20) + a->least;
#endif
    return ek_float_of_bits(bits);
#endif
}

/* Task: one index. Reads stay inside the values whatever the index. */
void NAME(const void *args, long begin, long end) {
    const ek_gather_quantized_args *a = args;
    for (long t = begin; t < end; t++) {
        long at = (long)((const TI *)a->indices)[t];
        at = ek_max(0, ek_min(at < 0 ? at + a->size : at, a->size - 1));
        long scale = at * (a->run / a->group);
        for (long from = 0; from < a->run; from += a->group)
            widen(a, at, from, from + a->group, scale_at(a, scale++), a->y + t * a->run);
    }
}
