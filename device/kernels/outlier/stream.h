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

/* Added to the bits of values that are looked up: a byte then has four values along k of a column,
 * and a step is a byte of each column. */
#define STREAM_TABLES 16

/* Whether the four values of a byte are of as many vectors of columns, all at one place along k:
 * plus 2, those of the last vector signed. A panel then has four vectors. */
#define STREAM_BY_COLUMNS(form) ((form) == 2 && (EK_I8 == EK_I8_DOT4_SS || EK_I8 == EK_I8_MADOT))

/* Of a stored value, without how it is stored. */
EK_INLINE int stream_bits(const int form) {
    return form & 15;
}

/* Bytes of a column in a step. */
EK_INLINE int stream_group(const int form) {
    return form & STREAM_TABLES ? 1 : I8_GROUP;
}

/* Vectors of `columns` columns, padded. */
EK_INLINE long stream_vectors(long columns, const int form) {
    const long unit = form & STREAM_TABLES ? 16 : STREAM_BY_COLUMNS(form) ? 4 * EK_VL : EK_VL;
    return (columns + unit - 1) / unit * (unit / EK_VL);
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

/* Bits of a value in its first byte: of 3, the third one is in another byte. */
EK_INLINE int stream_first_bits(const int bits) {
    return bits == 3 ? 2 : stream_bits(bits);
}

/* Bytes of a step whose third bits share bytes with those of as many bytes behind them; the third
 * bits follow both, so that a step is read in order. */
EK_INLINE long stream_shared(long columns) {
    return I8_GROUP > 1 ? 16 : (columns + EK_VL) / (2 * EK_VL) * EK_VL;
}

EK_INLINE long stream_step(long columns, const int bits) {
    const long bytes = columns * stream_group(bits), run = stream_shared(columns);
    if (STREAM_BY_COLUMNS(bits))
        return bytes / 4;
    return bits == 3 ? bytes + (bytes + 2 * run - 1) / (2 * run) * run : bytes;
}

/* Steps of a group of `depth` values. */
EK_INLINE long stream_steps(long depth, const int bits) {
    return STREAM_BY_COLUMNS(bits) ? depth / I8_GROUP
                                   : depth * stream_first_bits(bits) / 8 / stream_group(bits);
}

/* Where a first byte is in a step. */
EK_INLINE long stream_byte(long columns, long byte, const int bits) {
    const long run = stream_shared(columns);
    return bits == 3 ? byte / (2 * run) * 3 * run + byte % (2 * run) : byte;
}

/* Bytes of a group of `depth` values by `columns` columns: of its values, and with its scales. */
EK_INLINE long stream_values(long columns, long depth, const int bits) {
    return stream_steps(depth, bits) * stream_step(columns, bits);
}

EK_INLINE long stream_block(long columns, long depth, const int bits, const int kind) {
    return stream_values(columns, depth, bits) + columns * stream_scale_bytes(kind);
}

/* Bytes of a group in full panels with `columns` columns together. */
EK_INLINE long stream_full(long columns, long depth, const int bits, const int kind) {
    return columns * (depth * stream_bits(bits) / 8 + stream_scale_bytes(kind));
}

/* Whether values are stored plus 2, 4 (3 bits) or 8 (4 bits), and not signed. */
EK_INLINE int stream_is_raised(const int bits) {
    return stream_bits(bits) < 4 || (bits == 4 && EK_I8 != EK_I8_DOT4_SS);
}

/* Where a value along k is in a group: the step, its place in the step, and the number of lower
 * bits in its byte, unless these depend on the column. */
typedef struct {
    int32_t step, part, shift;
} stream_place;

EK_INLINE stream_place stream_place_of(long at, long depth, const int bits) {
    if (bits & STREAM_TABLES)
        return (stream_place){(int32_t)(at / 4), 0, (int32_t)(at % 4) * 2};
    if (STREAM_BY_COLUMNS(bits))
        return (stream_place){(int32_t)(at / I8_GROUP), (int32_t)(at % I8_GROUP), 0};
    const long run = depth * stream_first_bits(bits) / 8, p = at % run;
    return (stream_place){(int32_t)(p / I8_GROUP), (int32_t)(p % I8_GROUP),
                          (int32_t)(at / run * stream_first_bits(bits))};
}

/* Where the third bits of a byte of a step with `columns` columns are, and the lowest one's place:
 * those of the second value are one, of the third four and of the last five bits higher. */
EK_INLINE const uint8_t *stream_third_at(const uint8_t *step, long columns, long byte, int *low) {
    const long run = stream_shared(columns), pair = byte / (2 * run), in = byte % (2 * run);
    const long before = ek_min(2 * run, columns * I8_GROUP - pair * 2 * run);
    *low = in < run ? 2 : 0;
    return step + pair * 3 * run + before + in % run;
}

/* A value of a column, as stored. */
EK_INLINE uint32_t stream_code(const uint8_t *step, long columns, long column, const int bits,
                               const stream_place *of) {
    if (STREAM_BY_COLUMNS(bits)) {
        const uint32_t four = step[column % EK_VL * I8_GROUP + of->part] ^ 0x80u;
        return four >> column / EK_VL * 2 & 3;
    }
    const long byte = column * stream_group(bits) + of->part;
    const uint32_t first = (uint32_t)step[stream_byte(columns, byte, bits)] >> of->shift;
    if (bits != 3)
        return first & ((1u << stream_bits(bits)) - 1);
    int low;
    const uint32_t third = *stream_third_at(step, columns, byte, &low);
    return (first & 3) | (third >> (low + of->shift / 4 * 4 + of->shift / 2 % 2) & 1) << 2;
}

#if EK_VL > 1
/* EK_VL bytes, in the lowest bits. */
EK_INLINE vu stream_adjacent(const uint8_t *at) {
    typedef uint8_t bytes __attribute__((vector_size(EK_VL)));
    bytes of_step;
    memcpy(&of_step, at, sizeof of_step);
    return vcast(of_step, vu);
}
#endif

/* Byte `part` of EK_VL columns, the first one's at `at`, in the lowest bits. */
EK_INLINE vu stream_bytes(const uint8_t *at, int part) {
#if I8_GROUP == 4
    return (vu)i8_vector(at) >> 8 * part;
#elif I8_GROUP == 1 && EK_VL > 1
    return stream_adjacent(at);
#else
    int32_t t[EK_VL];
    for (int i = 0; i < EK_VL; i++)
        t[i] = at[part + i * I8_GROUP];
    return (vu)vi_load(t);
#endif
}

/* The 3-bit codes of EK_VL columns from `column` on. */
EK_INLINE vu stream_thirds(const uint8_t *step, long columns, long column, const stream_place *of) {
    const int up = of->shift / 4 * 4 + of->shift / 2 % 2;
    vu first, third;
#if I8_GROUP == 16
    const uint8_t *at = step + column / 2 * 48 + of->part; /* two columns, then their third bits */
    uint32_t found[2][EK_VL];
    for (int i = 0; i < EK_VL; i++) {
        found[0][i] = at[(i / 2 * 3 + i % 2) * 16];
        found[1][i] = (uint32_t)at[(i / 2 * 3 + 2) * 16] >> 2 * (1 - i % 2);
    }
    memcpy(&first, found[0], sizeof first);
    memcpy(&third, found[1], sizeof third);
    (void)columns;
#else
    int low;
    const long byte = column * I8_GROUP;
    third = stream_bytes(stream_third_at(step, columns, byte, &low), of->part);
    third >>= low;
    first = stream_bytes(step + stream_byte(columns, byte, 3), of->part);
#endif
    return (first >> of->shift & 3) | (third >> up & 1) << 2;
}

/* The values of EK_VL columns from `column` on in a step with `columns` ones. */
EK_INLINE vi stream_values_at(const uint8_t *step, long columns, long column, const int bits,
                              const stream_place *of) {
    if (bits == 3)
        return (vi)stream_thirds(step, columns, column, of) - 4;
    if (STREAM_BY_COLUMNS(bits)) {
        const vu four = stream_bytes(step, of->part) ^ 0x2a;
        return (vi)(four << (int)(30 - column / EK_VL * 2)) >> 30;
    }
#if EK_VL > 1
    vu found = bits & STREAM_TABLES ? stream_adjacent(step + column)
                                    : stream_bytes(step + column * I8_GROUP, of->part);
#else
    vu found = stream_bytes(step + column * I8_GROUP, of->part);
#endif
    found <<= 32 - stream_bits(bits) - of->shift; /* values become the upper bits */
    found ^= (uint32_t)stream_is_raised(bits) << 31;
    return (vi)found >> (32 - stream_bits(bits));
}
#endif
