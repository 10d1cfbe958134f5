/* Packs lines (columns of B, rows of A) that are adjacent in memory: 16 lines, one group of k deep,
 * are transposed in registers. Include after i8_types.h. */
#ifndef EK_GEMM_I8_PACK_TRANSPOSE_H
#define EK_GEMM_I8_PACK_TRANSPOSE_H

typedef uint8_t bytes16 __attribute__((vector_size(16)));

/* Interleaves the bytes of a and b: lower halves, upper halves. */
#define BYTES_LOW(a, b)                                                                            \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define BYTES_HIGH(a, b)                                                                           \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define PAIRS_LOW(a, b)                                                                            \
    __builtin_shufflevector(a, b, 0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23)
#define PAIRS_HIGH(a, b)                                                                           \
    __builtin_shufflevector(a, b, 8, 9, 24, 25, 10, 11, 26, 27, 12, 13, 28, 29, 14, 15, 30, 31)

/* Loads n bytes, 0 < n < 16, zero-extended, with overlapping loads that do not read beyond the
 * end. */
EK_INLINE bytes16 load_short(const uint8_t *p, long n) {
    uint64_t words[2] = {0, 0};
    if (n > 8) {
        memcpy(&words[0], p, 8);
        memcpy(&words[1], p + n - 8, 8);
        words[1] >>= 8 * (16 - n);
    } else if (n >= 4) {
        uint32_t first, last;
        memcpy(&first, p, 4);
        memcpy(&last, p + n - 4, 4);
        words[0] = first | (uint64_t)last << 8 * (n - 4);
    } else {
        words[0] = p[0] | (uint64_t)p[n / 2] << 8 * (n / 2) | (uint64_t)p[n - 1] << 8 * (n - 1);
    }
    bytes16 v;
    memcpy(&v, words, sizeof v);
    return v;
}

/* Loads `depth` rows of k of `lines` lines, of which `there` exist in memory; zero beyond these and
 * beyond k. */
EK_INLINE void load_block(const int depth, const int lines, bytes16 rows[depth],
                          const uint8_t *from, long k_step, long there, long k, uint8_t flip) {
    const bytes16 flips = (bytes16){0} + flip;
    EK_UNROLL
    for (int p = 0; p < depth; p++) {
        rows[p] = (bytes16){0};
        if (p >= k)
            continue;
        if (there >= lines) {
            memcpy(&rows[p], from + p * k_step, (size_t)lines);
            rows[p] ^= flip;
        } else if (there > 0) {
            rows[p] = load_short(from + p * k_step, there);
            if (flip)
                rows[p] ^= load_short((const uint8_t *)&flips, there);
        }
    }
}

/* Sixteen groups of two, four, eight or sixteen bytes, one per line; `swaps`: swap the middle bytes
 * (I8_PLACE). */
EK_INLINE void transpose_groups2(const bytes16 rows[2], uint8_t *to) {
    const bytes16 groups[2] = {BYTES_LOW(rows[0], rows[1]), BYTES_HIGH(rows[0], rows[1])};
    memcpy(to, groups, sizeof groups);
}

EK_INLINE void transpose_groups4(const bytes16 rows[4], uint8_t *to, const int swaps) {
    const bytes16 second = rows[swaps ? 2 : 1], third = rows[swaps ? 1 : 2];
    const bytes16 low[2] = {BYTES_LOW(rows[0], second), BYTES_LOW(third, rows[3])};
    const bytes16 high[2] = {BYTES_HIGH(rows[0], second), BYTES_HIGH(third, rows[3])};
    const bytes16 groups[4] = {PAIRS_LOW(low[0], low[1]), PAIRS_HIGH(low[0], low[1]),
                               PAIRS_LOW(high[0], high[1]), PAIRS_HIGH(high[0], high[1])};
    memcpy(to, groups, sizeof groups);
}

EK_INLINE void transpose_groups8(const bytes16 rows[8], uint8_t *to) {
    bytes16 from[8], next[8];
    memcpy(from, rows, sizeof from);
    EK_UNROLL
    for (int round = 0; round < 3; round++) {
        EK_UNROLL
        for (int i = 0; i < 4; i++) {
            next[2 * i] = BYTES_LOW(from[i], from[i + 4]);
            next[2 * i + 1] = BYTES_HIGH(from[i], from[i + 4]);
        }
        memcpy(from, next, sizeof from);
    }
    memcpy(to, from, sizeof from);
}

EK_INLINE void transpose_groups16(const bytes16 rows[16], uint8_t *to) {
    bytes16 from[16], next[16];
    memcpy(from, rows, sizeof from);
    EK_UNROLL
    for (int round = 0; round < 4; round++) {
        EK_UNROLL
        for (int i = 0; i < 8; i++) {
            next[2 * i] = BYTES_LOW(from[i], from[i + 8]);
            next[2 * i + 1] = BYTES_HIGH(from[i], from[i + 8]);
        }
        memcpy(from, next, sizeof from);
    }
    memcpy(to, from, sizeof from);
}

/* Representation of a panel's value: the byte, or 16 bits it is widened to. */
typedef enum { AS_BYTE, WIDE_SIGNED, WIDE_UNSIGNED } value_form;
#define VALUE_BYTES(form) ((form) == AS_BYTE ? 1 : 2)

EK_INLINE void store_values(const uint8_t *from, long count, char *to, const value_form form) {
    typedef int8_t signed16 __attribute__((vector_size(16)));
    typedef int16_t wide16 __attribute__((vector_size(32)));
    if (form == AS_BYTE) {
        memcpy(to, from, (size_t)count);
        return;
    }
    for (long i = 0; i < count; i += 16) {
        bytes16 v;
        memcpy(&v, from + i, sizeof v);
        const wide16 wide = form == WIDE_SIGNED ? vcast((signed16)v, wide16) : vcast(v, wide16);
        memcpy(to + 2 * i, &wide, (size_t)(2 * ek_min(count - i, 16)));
    }
}

/* Packs `lines` lines, of which `there` exist in memory, into a panel of `padded` lines in groups
 * of `group`. */
EK_INLINE void pack_block(const int group, const int lines, const uint8_t *from, long k_step,
                          long there, long padded, long k, char *to, const value_form form,
                          uint8_t flip) {
    const long next = group * padded * VALUE_BYTES(form);
    for (long p = 0; p < i8_padded(k); p += group, from += group * k_step, to += next) {
        bytes16 rows[16];
        uint8_t block[16 * 16];
        if (there >= lines && k - p >= group)
            load_block(group, lines, rows, from, k_step, lines, group, flip);
        else
            load_block(group, lines, rows, from, k_step, there, k - p, flip);
        if (group == 2)
            transpose_groups2(rows, block);
        else if (group == 4)
            transpose_groups4(rows, block, EK_I8 == EK_I8_FOUR16 && form == AS_BYTE);
        else if (group == 8)
            transpose_groups8(rows, block);
        else
            transpose_groups16(rows, block);
        store_values(block, lines * group, to, form);
    }
}

/* Packs `count` lines into a panel of `padded` lines in groups of `group`. */
EK_INLINE void pack_transposed(const int group, const uint8_t *from, long k_step, long width,
                               long count, long padded, long k, void *panel, const value_form form,
                               uint8_t flip) {
    char *to = panel;
    for (long j = 0, lines; j < count;
         j += lines, from += lines, to += lines * group * VALUE_BYTES(form)) {
        const long left = count - j, there = width - j;
        lines = left >= 16 ? 16 : left >= 8 ? 8 : left >= 4 ? 4 : 1;
        if (lines == 16)
            pack_block(group, 16, from, k_step, there, padded, k, to, form, flip);
        else if (lines == 8)
            pack_block(group, 8, from, k_step, there, padded, k, to, form, flip);
        else if (lines == 4)
            pack_block(group, 4, from, k_step, there, padded, k, to, form, flip);
        else
            pack_block(group, 1, from, k_step, there, padded, k, to, form, flip);
    }
}
#endif
