/* Strips of kind PACKED: non-zeros row after row. */
#ifndef EK_SPARSE_PACKED_H
#define EK_SPARSE_PACKED_H
#include "types.h"

/* Adds slots [from, to) to the rows' sums; columns of `bytes`. */
EK_INLINE vsum add_packed_of(const value *v, const ek_strip *strip, const uint8_t *head,
                             const operand *x, long from, long to, vsum acc, const int bytes) {
    const uint8_t *columns = head + ((2 * strip->rows + 7) & ~7);
    sum own[HEIGHT];
    memcpy(own, &acc, sizeof own);
    long at = from * HEIGHT;
    for (int l = 0; l < strip->rows; l++) {
        uint16_t end;
        memcpy(&end, head + 2 * l, sizeof end);
        for (; at < ek_min((long)end, to * HEIGHT); at++) {
            uint32_t column = 0;
            memcpy(&column, columns + at * bytes, (size_t)bytes);
            own[l] += sum_from_value(v[at]) * (sum)x[column];
        }
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
