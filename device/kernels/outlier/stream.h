/* Weights as a row streams them (grouped_row.h): values and scales of a group behind each other.
 * Before inclusion: gemm/i8_tile.h. */
#ifndef EK_OUTLIER_STREAM_H
#define EK_OUTLIER_STREAM_H

/* Types of scales. */
#define STREAM_F32 0
#define STREAM_BF16 1
#define STREAM_F16 2 /* no subnormal ones */

EK_INLINE long stream_scale_bytes(const int kind) {
    return kind == STREAM_F32 ? 4 : 2;
}

/* What scales_at has to be multiplied by. */
EK_INLINE float stream_unit(const int kind) {
    return kind == STREAM_F16 ? 0x1p112f : 1.0f;
}

/* EK_VL scales as floats; those of f16 are 2^112 times too small. */
EK_INLINE vf stream_scales(const int kind, const uint8_t *p) {
    if (kind == STREAM_F32)
        return vf_load((const float *)(const void *)p);
    if (kind == STREAM_BF16)
        return vf_from_bf16((const uint16_t *)(const void *)p);
    vs half;
    memcpy(&half, p, sizeof half);
    const vi bits = (vi)((vu)vcast(half, vi) << 13) & (int32_t)0x8fffe000;
    vf v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* Bytes of a group of `depth` values by `columns` columns: of its values, and with its scales. */
EK_INLINE long stream_values(long columns, long depth, long bits) {
    return columns * depth * bits / 8;
}

EK_INLINE long stream_block(long columns, long depth, long bits, const int kind) {
    return stream_values(columns, depth, bits) + columns * stream_scale_bytes(kind);
}

/* Where a value along k is in a group: the step, its place in the step, and whether it is in the
 * upper half of bytes. */
typedef struct {
    int32_t step, part, high;
} stream_place;

EK_INLINE stream_place stream_place_of(long at, long depth, const int bits) {
    const int high = bits == 4 && at >= depth / 2;
    const long p = at - high * (depth / 2);
    return (stream_place){(int32_t)(p / I8_GROUP), (int32_t)(p % I8_GROUP), high};
}

/* The values of EK_VL columns in a step, whose first bytes are at w. */
EK_INLINE vi stream_values_at(const uint8_t *w, const int bits, const stream_place *of) {
#if I8_GROUP == 4
    return (vi)((vu)i8_vector(w) << (32 - bits - 8 * of->part - 4 * of->high)) >> (32 - bits);
#else
    int32_t t[EK_VL];
    for (int i = 0; i < EK_VL; i++) {
        const int32_t both = w[of->part + i * I8_GROUP], value = both >> 4 * of->high & 15;
        t[i] = bits == 8 ? (both ^ 128) - 128 : EK_I8 == EK_I8_MULL16 ? value - 8 : (value ^ 8) - 8;
    }
    return vi_load(t);
#endif
}
#endif
