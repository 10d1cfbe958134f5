/* Strips of kind PACKED: non-zeros row after row. */
#ifndef EK_SPARSE_PACKED_H
#define EK_SPARSE_PACKED_H
#include "types.h"

/* Column i, of `bytes`. Compilers must know that columns are aligned: some cores load unaligned
 * words byte by byte. */
EK_INLINE uint32_t column_at(const uint8_t *columns, long i, const int bytes) {
    uint32_t four;
    uint16_t two;
    if (bytes == 1)
        return columns[i];
    if (bytes == 2) {
        memcpy(&two, __builtin_assume_aligned(columns + 2 * i, 2), 2);
        return two;
    }
    memcpy(&four, __builtin_assume_aligned(columns + 4 * i, 4), 4);
    return four;
}

/* Adds slots [from, to) to the rows' sums; columns of `bytes`. */
EK_INLINE vsum add_packed_of(const value *v, const ek_strip *strip, const uint8_t *head,
                             const operand *x, long from, long to, vsum acc, const int bytes) {
    const uint8_t *columns = head + ((2 * strip->rows + 7) & ~7);
    sum own[HEIGHT];
    memcpy(own, &acc, sizeof own);
    long at = from * HEIGHT;
    for (int l = 0; l < strip->rows; l++) {
        const long end = ek_min((long)column_at(head, l, 2), to * HEIGHT);
        for (; at < end; at++)
            own[l] += sum_from_value(v[at]) * (sum)x[column_at(columns, at, bytes)];
    }
    memcpy(&acc, own, sizeof acc);
    return acc;
}

EK_INLINE vsum add_packed(const value *v, const ek_strip *strip, const uint8_t *head,
                          const operand *x, long from, long to, vsum acc) {
    if (strip->index_bytes == 1)
        return add_packed_of(v, strip, head, x, from, to, acc, 1);
    if (strip->index_bytes == 2)
        return add_packed_of(v, strip, head, x, from, to, acc, 2);
    return add_packed_of(v, strip, head, x, from, to, acc, 4);
}
#endif
