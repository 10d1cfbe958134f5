/* Values of 4 bits, two per byte. Before inclusion: i8_tile.h.
 *
 * A packed panel of `count` values has value i, plus 8, in the low half of byte i, and that of
 * i + ceil(count / 2) in the high half: each unpacks without a shuffle. */
#ifndef EK_GEMM_I4_UNPACK_H
#define EK_GEMM_I4_UNPACK_H

/* Values [at, at + count) of a packed panel, `half` of them in either half of the bytes. */
EK_INLINE void unpack_i4(const uint8_t *from, long half, long at, long count, i8_value *to) {
    const long low = ek_max(ek_min(half - at, count), 0);
    for (long i = 0; i < low; i++)
        to[i] = (i8_value)((from[at + i] & 15) - 8);
    for (long i = low; i < count; i++)
        to[i] = (i8_value)((from[at + i - half] >> 4) - 8);
}
#endif
