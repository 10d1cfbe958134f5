/* group_sums of grouped_row.c for 4, 3 and 2 bits and EK_I8_WIDE16 (RVV). */
#ifndef EK_OUTLIER_ROW_WIDE_H
#define EK_OUTLIER_ROW_WIDE_H

#define SUM_UNIT(j) 1.0f
#define PARTS (BITS == 4 ? 2 : 4)
#define RUN (GROUPS / PARTS) /* steps */
#define TWO ((NV + 1) / 2)
/* Steps whose sums fit 16 bits, by -127..127: of 0..15, or of four values, 0..3 and one of
 * them 0..12, or 0..7. */
#define MOST (BITS == 3 ? 8 : 16)

/* Keeps the compiler, which knows no latencies, from computing one value after the other. */
#ifdef __riscv
#define TOGETHER(a, b, c, d) __asm__ volatile("" : "+vr"(a), "+vr"(b), "+vr"(c), "+vr"(d))
#else
#define TOGETHER(a, b, c, d) ((void)0)
#endif

EK_INLINE i8_two16 products(pairs v, const int8_t *x) {
    return vcast((i8_signed8)v, i8_two16) * vcast(*x - (i8_signed8){0}, i8_two16);
}

#if BITS == 4
EK_INLINE pairs part_of(pairs all, const int part) {
    return part ? all >> 4 : all & 15;
}

EK_INLINE i8_two sum_of(i8_two16 s[PARTS][TWO], int j) {
    return vcast(s[0][j], i8_two) + vcast(s[1][j], i8_two);
}

/* Two steps of two vectors each; s: sums of low halves, of high ones. */
EK_INLINE void two_steps(i8_two16 s[PARTS][TWO], const int8_t *x, const uint8_t *w) {
    pairs low[4], high[4];
    EK_UNROLL
    for (int i = 0; i < 4; i++)
        low[i] = pairs_at(w + i * 2 * EK_VL);
    TOGETHER(low[0], low[1], low[2], low[3]);
    EK_UNROLL
    for (int i = 0; i < 4; i++)
        high[i] = part_of(low[i], 1), low[i] = part_of(low[i], 0);
    TOGETHER(low[0], low[1], low[2], low[3]);
    TOGETHER(high[0], high[1], high[2], high[3]);
    EK_UNROLL
    for (int i = 0; i < 4; i++) {
        s[0][i % 2] += products(low[i], x + i / 2);
        s[1][i % 2] += products(high[i], x + HALF + i / 2);
    }
}
#elif BITS == 3
EK_INLINE i8_two sum_of(i8_two16 s[PARTS][TWO], int j) {
    return vcast(s[0][j] + s[1][j] + s[2][j] + s[3][j], i8_two);
}

/* Two steps of two vectors each, values plus 4; s: sums of each quarter. */
EK_INLINE void two_steps(i8_two16 s[PARTS][TWO], const int8_t *x, const uint8_t *w) {
    const int step = (int)stream_step(4 * EK_VL, 3);
    pairs all[4], third[4], part[4];
    EK_UNROLL
    for (int i = 0; i < 4; i++) {
        all[i] = pairs_at(w + i / 2 * step + i % 2 * 2 * EK_VL);
        third[i] = pairs_at(w + i / 2 * step + 4 * EK_VL);
    }
    TOGETHER(all[0], all[1], all[2], all[3]);
    EK_UNROLL
    for (int odd = 0; odd < 2; odd++) {
        pairs two[4];
        EK_UNROLL
        for (int i = 0; i < 4; i++) {
            const pairs upper = i % 2 ? third[i] << (2 - odd) : third[i] >> odd;
            two[i] = ((odd ? all[i] >> 2 : all[i]) & 0x33) | (upper & 0x44);
        }
        TOGETHER(two[0], two[1], two[2], two[3]);
        EK_UNROLL
        for (int q = odd; q < 4; q += 2) {
            EK_UNROLL
            for (int i = 0; i < 4; i++)
                part[i] = q < 2 ? two[i] & 7 : two[i] >> 4;
            TOGETHER(part[0], part[1], part[2], part[3]);
            EK_UNROLL
            for (int i = 0; i < 4; i++)
                s[q][i % 2] += products(part[i], x + q * QUARTER + i / 2);
        }
    }
}
#else
/* Values plus 2; the second ones of their bytes times 4, which saves a shift. */
EK_INLINE pairs part_of(pairs all, const int part) {
    return part == 1 ? all & 0x0c : part == 3 ? all >> 6 : all >> 2 * part & 3;
}

EK_INLINE i8_two sum_of(i8_two16 s[PARTS][TWO], int j) {
    return vcast(s[0][j] + (s[1][j] >> 2) + s[2][j] + s[3][j], i8_two);
}

/* Two steps of two vectors each; s: sums of each quarter. */
EK_INLINE void two_steps(i8_two16 s[PARTS][TWO], const int8_t *x, const uint8_t *w) {
    pairs all[4], part[4];
    EK_UNROLL
    for (int i = 0; i < 4; i++)
        all[i] = pairs_at(w + i * 2 * EK_VL);
    TOGETHER(all[0], all[1], all[2], all[3]);
    EK_UNROLL
    for (int q = 0; q < 4; q++) {
        EK_UNROLL
        for (int i = 0; i < 4; i++)
            part[i] = part_of(all[i], q);
        TOGETHER(part[0], part[1], part[2], part[3]);
        EK_UNROLL
        for (int i = 0; i < 4; i++)
            s[q][i % 2] += products(part[i], x + q * QUARTER + i / 2);
    }
}
#endif

#if BITS == 3
/* The third bits of a pair's bytes, of the first quarter in their lowest bits. */
EK_INLINE pairs thirds_of(const int nv, const uint8_t *w, const int pair) {
    typedef uint8_t bytes __attribute__((vector_size(EK_VL)));
    bytes found[2] = {0};
    EK_UNROLL
    for (int v = 2 * pair; v < ek_min(2 * pair + 2, nv); v++) {
        int low;
        memcpy(&found[v % 2], stream_third_at(w, nv * EK_VL, v * EK_VL, &low), EK_VL);
        found[v % 2] >>= low;
    }
    return pairs_at((const uint8_t *)found);
}
#endif

EK_INLINE void one_step(const int nv, i8_two16 s[PARTS][TWO], const int8_t *x, const uint8_t *w) {
    EK_UNROLL
    for (int j = 0; j < (nv + 1) / 2; j++) {
        pairs all = {0}; /* the last vector of an odd number is alone */
        memcpy(&all, w + j * 2 * EK_VL, 2 * j + 1 < nv ? 2 * EK_VL : EK_VL);
#if BITS == 3
        const pairs thirds = thirds_of(nv, w, j);
        EK_UNROLL
        for (int q = 0; q < PARTS; q++) {
            const pairs upper = (pairs)(thirds >> (q / 2 * 4 + q % 2) & 1) << 2;
            s[q][j] += products((all >> 2 * q & 3) | upper, x + q * QUARTER);
        }
#else
        EK_UNROLL
        for (int part = 0; part < PARTS; part++)
            s[part][j] += products(part_of(all, part), x + part * RUN);
#endif
    }
}

EK_INLINE void group_sums(const int nv, const group_at at, kept_nothing *kept, vi *to) {
    (void)kept;
    const uint8_t *w = at.w, *ahead = at.ahead;
    const int step = (int)stream_step(nv * EK_VL, BITS);
    i8_two all[TWO] = {0};
    for (long from = 0; from < RUN; from += MOST) {
        const long until = ek_min(from + MOST, RUN);
        i8_two16 s[PARTS][TWO] = {0};
        long p = from;
        for (; nv == 4 && p + 4 <= until; p += 4, w += 4 * step, ahead += 4 * step) {
            prefetch(ahead, 0, 4 * step);
            two_steps(s, at.x + p, w);
            two_steps(s, at.x + p + 2, w + 2 * step);
        }
        for (; p < until; p++, w += step, ahead += step)
            one_step(nv, s, at.x + p, w);
        EK_UNROLL
        for (int j = 0; j < (nv + 1) / 2; j++)
            all[j] += sum_of(s, j);
    }
    EK_UNROLL
    for (int j = 0; j < nv; j++) {
        const i8_two both = all[j / 2];
        to[j] = j % 2 ? __builtin_shufflevector(both, both, 8, 9, 10, 11, 12, 13, 14, 15)
                      : __builtin_shufflevector(both, both, 0, 1, 2, 3, 4, 5, 6, 7);
        to[j] += vi_splat(*at.sum);
    }
}
#endif
