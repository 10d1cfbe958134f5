/* 4-bit values, two per byte. Before inclusion: i8_tile.h.
 *
 * In a packed panel of `count` values, the low half of byte i holds value i plus 8, the high half
 * value i + ceil(count / 2) plus 8: each half unpacks without a shuffle. */
#ifndef EK_GEMM_I4_UNPACK_H
#define EK_GEMM_I4_UNPACK_H

/* Unpacks values [at, at + count) of a panel with `half` values in either half of its bytes. */
EK_INLINE void unpack_i4(const uint8_t *from, long half, long at, long count, i8_value *to) {
    const long low = ek_max(ek_min(half - at, count), 0);
    for (long i = 0; i < low; i++)
        to[i] = (i8_value)((from[at + i] & 15) - 8);
    for (long i = low; i < count; i++)
        to[i] = (i8_value)((from[at + i - half] >> 4) - 8);
}

/* Unpacks an entire panel, reading each byte once. `distance`: prefetch distance in bytes, a
 * constant; 0: none. */
EK_INLINE void unpack_i4_panel(const uint8_t *from, long count, const long distance, i8_value *to) {
    typedef uint8_t bytes __attribute__((vector_size(16)));
    const long pairs = count / 2, half = (count + 1) / 2;
    long at = 0;
    for (; at + 64 <= pairs; at += 64) {
        if (distance)
            __builtin_prefetch(from + at + distance);
        EK_UNROLL
        for (int i = 0; i < 64; i += 16) {
            bytes both, low, high;
            memcpy(&both, from + at + i, sizeof both);
            low = (both & 15) - 8, high = (both >> 4) - 8;
            memcpy(to + at + i, &low, sizeof low);
            memcpy(to + half + at + i, &high, sizeof high);
        }
    }
    for (; at < pairs; at++) {
        to[at] = (i8_value)((from[at] & 15) - 8);
        to[half + at] = (i8_value)((from[at] >> 4) - 8);
    }
    if (half > pairs)
        to[pairs] = (i8_value)((from[pairs] & 15) - 8);
}
#endif
