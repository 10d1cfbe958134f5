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

/* Whether values are stored plus 2 (2 bits) or plus 8 (4 bits), and not signed. */
EK_INLINE int stream_is_raised(const int bits) {
    return bits == 2 || (bits == 4 && EK_I8 == EK_I8_MULL16);
}

/* Where a value along k is in a group: the step, its place in the step, and the number of lower
 * bits in its byte. */
typedef struct {
    int32_t step, part, shift;
} stream_place;

EK_INLINE stream_place stream_place_of(long at, long depth, const int bits) {
    const long run = depth * bits / 8, p = at % run;
    return (stream_place){(int32_t)(p / I8_GROUP), (int32_t)(p % I8_GROUP),
                          (int32_t)(at / run * bits)};
}

/* The values of EK_VL columns in a step, whose first bytes are at w. */
EK_INLINE vi stream_values_at(const uint8_t *w, const int bits, const stream_place *of) {
    const int lower = of->shift + (I8_GROUP == 4 ? 8 * of->part : 0);
#if I8_GROUP == 4
    vu found = (vu)i8_vector(w);
#elif I8_GROUP == 1 && EK_VL > 1
    typedef uint8_t bytes __attribute__((vector_size(EK_VL)));
    bytes of_step;
    memcpy(&of_step, w, sizeof of_step);
    vu found = vcast(of_step, vu);
#else
    int32_t t[EK_VL];
    for (int i = 0; i < EK_VL; i++)
        t[i] = w[of->part + i * I8_GROUP];
    vu found = (vu)vi_load(t);
#endif
    found <<= 32 - bits - lower; /* values become the upper bits */
    found ^= (uint32_t)stream_is_raised(bits) << 31;
    return (vi)found >> (32 - bits);
}
#endif
