/* Packs groups of four along k: adjacent lines (columns of B, rows of A) are interleaved into
 * groups in registers, 64 at a time, and their sums, for the corrections, are computed in the same
 * pass. Include after i8_types.h, with EK_GROUPS4. */
#ifndef EK_GEMM_I8_PACK_GROUPS_H
#define EK_GEMM_I8_PACK_GROUPS_H
#include "amx_warm.h"

/* Loads `count` rows of up to 64 bytes, of which `there` exist in memory, as 4 * nv groups in
 * order. */
EK_INLINE void load_groups(const uint8_t *from, long k_step, long there, long count, uint8_t flip,
                           vi groups[4]) {
    EK_UNROLL
    for (int i = 0; i < 4; i++) {
        groups[i] = (vi){0};
        if (i < count) {
            groups[i] = vi_before_groups4(vi_load_bytes(from + i * k_step, there));
            if (flip)
                groups[i] ^= vi_splat(FLIP_WORD);
        }
    }
    vi_groups4(groups);
}

/* Packs nv vectors of a panel of `lines` lines; nv <= 4. Adds factor * sums over k to
 * `corrections`. */
EK_INLINE void pack_vectors(const int nv, const uint8_t *from, long k_step, long there, long lines,
                            long k, i8_value *to, const uint8_t flip, const int factor,
                            int32_t *corrections) {
    const vi ones = vi_splat(0x01010101);
    vi groups[4], sums[4] = {{0}, {0}, {0}, {0}};
    for (long p = 0; p < k; p += 4, from += 4 * k_step, to += 4 * lines) {
        if (k - p >= 4)
            load_groups(from, k_step, there, 4, flip, groups);
        else
            load_groups(from, k_step, there, k - p, flip, groups);
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

/* Packs k rows of `count` lines of a panel of `lines` lines; `width` lines exist in memory. */
EK_INLINE void pack_groups(const uint8_t *from, long k_step, long width, long count, long lines,
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

#ifdef AMX_LEAST
/* Vectors of adjacent panels of B: where each starts and the stride of its groups. Four are packed
 * at a time, even across panels. */
enum { STRIP = 64 };
typedef struct {
    long vectors, step[STRIP];
    i8_value *to[STRIP];
    int32_t *corrections[STRIP];
} i8_strip;

EK_INLINE void add_to_strip(i8_strip *s, void *panel, long vectors, long k) {
    const i8_panel parts = i8_panel_of_b(vectors * EK_VL, k);
    for (long j = 0; j < vectors; j++, s->vectors++) {
        s->to[s->vectors] = (i8_value *)panel + j * EK_VL * 4;
        s->step[s->vectors] = vectors * EK_VL * 4;
        s->corrections[s->vectors] = (int32_t *)((char *)panel + parts.corrections) + j * EK_VL;
    }
}

/* Packs rows [p, p + rows) of `nv` vectors starting at j, of which `there` columns exist in memory.
 * If there is a factor, adds to the `sums` of each. */
EK_INLINE void pack_vectors_of_strip(const int nv, const i8_strip *s, long j, const uint8_t *from,
                                     long k_step, long there, long p, long rows, const int factor,
                                     vi *sums) {
    const vi ones = vi_splat(0x01010101);
    i8_value *to[4];
    long step[4];
    vi groups[4], added[4] = {{0}, {0}, {0}, {0}};
    EK_UNROLL
    for (int i = 0; i < nv; i++) {
        step[i] = s->step[j + i];
        to[i] = s->to[j + i] + p / 4 * step[i];
    }
    for (from += j * EK_VL; rows > 0; rows -= 4, from += 4 * k_step) {
        if (rows >= 4)
            load_groups(from, k_step, there, 4, 0, groups);
        else
            load_groups(from, k_step, there, rows, 0, groups);
        EK_UNROLL
        for (int i = 0; i < nv; i++) {
            memcpy(to[i], &groups[i], sizeof groups[i]);
            to[i] += step[i];
            if (factor)
                added[i] = vi_dot4(added[i], ones, groups[i]);
        }
    }
    EK_UNROLL
    for (int i = 0; i < nv && factor; i++)
        sums[j + i] += added[i];
}

/* Packs k rows of a strip, of which `width` columns exist in memory. */
EK_INLINE void pack_strip_by(const int factor, const int keep_warm, const i8_strip *s,
                             const uint8_t *from, long k_step, long width, long k) {
    vi sums[STRIP];
    long slice = 0;
    if (factor)
        memset(sums, 0, (size_t)s->vectors * sizeof *sums);
    for (long p = 0; p < k; p += ROWS_AT_ONCE, from += ROWS_AT_ONCE * k_step) {
        const long rows = ek_min(ROWS_AT_ONCE, k - p);
        long j = 0;
        for (; j + 4 <= s->vectors && (j + 4) * EK_VL <= width; j += 4) {
            if (keep_warm)
                amx_keep_warm(slice++, s->vectors);
            pack_vectors_of_strip(4, s, j, from, k_step, 64, p, rows, factor, sums);
        }
        const long left = s->vectors - j, there = ek_min(width - j * EK_VL, 64);
        if (keep_warm && left)
            amx_keep_warm(slice++, s->vectors);
        if (left == 4)
            pack_vectors_of_strip(4, s, j, from, k_step, there, p, rows, factor, sums);
        else if (left == 3)
            pack_vectors_of_strip(3, s, j, from, k_step, there, p, rows, factor, sums);
        else if (left == 2)
            pack_vectors_of_strip(2, s, j, from, k_step, there, p, rows, factor, sums);
        else if (left)
            pack_vectors_of_strip(1, s, j, from, k_step, there, p, rows, factor, sums);
    }
    for (long j = 0; j < s->vectors && factor; j++)
        vi_store(s->corrections[j], sums[j] * factor);
}

static void pack_strip(const i8_strip *s, const void *from, long k_step, long width, long k,
                       int factor, int keep_warm) {
    if (factor && keep_warm)
        pack_strip_by(COLUMN_FACTOR, 1, s, from, k_step, width, k);
    else if (factor)
        pack_strip_by(COLUMN_FACTOR, 0, s, from, k_step, width, k);
    else if (keep_warm)
        pack_strip_by(0, 1, s, from, k_step, width, k);
    else
        pack_strip_by(0, 0, s, from, k_step, width, k);
}
#endif

/* Packs a matrix of k short contiguous rows of `width` bytes: each vector of rows becomes a vector
 * of groups. Returns 0 if the width is not supported. Writes full vectors, the last one beyond its
 * groups. */
EK_INLINE int pack_narrow(const uint8_t *from, long width, long k, i8_value *to,
                          const uint8_t flip) {
    /* Shuffles that gather, for four rows of 1, 2, 3 or 4 words, the words of each column. */
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
