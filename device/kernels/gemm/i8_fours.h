/* Packing lines (columns of B, rows of A) that stand side by side in memory, 64 at a time: four
 * values of k of each become groups in registers, and their sums, for the corrections, are made on
 * the way. After i8_types.h, with EK_FOURS. */
#ifndef EK_GEMM_I8_FOURS_H
#define EK_GEMM_I8_FOURS_H

/* `count` rows of up to 64 bytes, of which `there` are in memory, as 4 * nv groups in order. */
EK_INLINE void load_fours(const uint8_t *from, long k_step, long there, long count, uint8_t flip,
                          vi groups[4]) {
    EK_UNROLL
    for (int i = 0; i < 4; i++) {
        groups[i] = (vi){0};
        if (i < count) {
            groups[i] = vi_before_fours(vi_load_bytes(from + i * k_step, there));
            if (flip)
                groups[i] ^= vi_splat(FLIP_WORD);
        }
    }
    vi_fours(groups);
}

/* nv vectors of a panel of `lines`; nv <= 4. Adds factor * sums over k to `corrections`. */
EK_INLINE void pack_vectors(const int nv, const uint8_t *from, long k_step, long there, long lines,
                            long k, i8_value *to, const uint8_t flip, const int factor,
                            int32_t *corrections) {
    const vi ones = vi_splat(0x01010101);
    vi groups[4], sums[4] = {{0}, {0}, {0}, {0}};
    for (long p = 0; p < k; p += 4, from += 4 * k_step, to += 4 * lines) {
        if (k - p >= 4)
            load_fours(from, k_step, there, 4, flip, groups);
        else
            load_fours(from, k_step, there, k - p, flip, groups);
        EK_UNROLL
        for (int j = 0; j < nv; j++) {
            memcpy(to + j * EK_VL * 4, &groups[j], sizeof groups[j]);
            if (factor)
                sums[j] = vi_dot4(sums[j], ones, groups[j]);
        }
    }
    EK_UNROLL
    for (int j = 0; j < nv && factor; j++) {
        int32_t *at = corrections + j * EK_VL;
        vi_store(at, vi_load(at) + sums[j] * factor);
    }
}

/* k rows of `count` lines of a panel of `lines`; `width` lines are in memory. */
EK_INLINE void pack_fours(const uint8_t *from, long k_step, long width, long count, long lines,
                          long k, i8_value *to, const uint8_t flip, const int factor,
                          int32_t *corrections) {
    for (long j = 0; j < count; j += 64, from += 64, to += 64 * 4) {
        const long left = count - j, there = ek_min(width - j, 64);
        int32_t *sums = factor ? corrections + j : NULL;
        if (left > 3 * EK_VL)
            pack_vectors(4, from, k_step, there, lines, k, to, flip, factor, sums);
        else if (left > 2 * EK_VL)
            pack_vectors(3, from, k_step, there, lines, k, to, flip, factor, sums);
        else if (left > EK_VL)
            pack_vectors(2, from, k_step, there, lines, k, to, flip, factor, sums);
        else
            pack_vectors(1, from, k_step, there, lines, k, to, flip, factor, sums);
    }
}

/* A matrix of k short rows that follow each other, `width` bytes each: a vector of them becomes a
 * vector of groups. 0: not of this width. Writes whole vectors, the last beyond its groups. */
EK_INLINE int pack_thin(const uint8_t *from, long width, long k, i8_value *to, const uint8_t flip) {
    /* Words of four rows of 1, 2, 3 or 4 words, those of a column of words together. */
    static const int8_t words[5][16] = {
        {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
        {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
        {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15},
        {0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, 12, 13, 14, 15},
        {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15},
    };
    static const uint8_t pairs[16] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};
    static const uint8_t fours[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    if (width != 2 && (width % 4 || width > 16))
        return 0;
    const long step = width == 12 ? 48 : 64, bytes = k * width;
    const vi order = vi_from_s8(words[width / 4]), flips = vi_splat(flip ? FLIP_WORD : 0);
    const uint8_t *const quarters = width == 2 ? pairs : fours;
    for (long p = 0; p < bytes; p += step, to += step) {
        const vi v = vi_load_bytes(from + p, ek_min(bytes - p, 64));
        const vi groups = vi_order_bytes(vi_order(v, order), quarters) ^ flips;
        memcpy(to, &groups, sizeof groups);
    }
    return 1;
}
#endif
