/* group_sums of grouped_row.c for 4 bits by SpacemiT's matrix unit. Of its four rows the
 * first is x, and the others, whose sums nothing reads, are what follows x. */
#ifndef EK_OUTLIER_MADOT_ROW_H
#define EK_OUTLIER_MADOT_ROW_H

#define SUM_UNIT(j) 1.0f
#define BATCH 4 /* vectors of four columns whose values are unpacked together */

typedef struct {
    pairs w[BATCH]; /* the next batch */
} kept_vectors;
#define KEEPS

EK_INLINE void load_first(const int nv, const group_at at, kept_vectors *kept) {
    EK_UNROLL
    for (int i = 0; i < ek_min(BATCH, 2 * nv); i++)
        kept->w[i] = pairs_at(at.w + i * sizeof(pairs));
}

/* In the order of the source: four vectors are unpacked one after the other, as each can be
 * multiplied only four cycles later, with loads and addresses beside them. The unit takes its shape
 * from vtype, which the compiler sets anew behind the statement. */
#define UNPACK(i, beside) "vsrl.vi %[p" #i "], %[w" #i "], %[down]\n" beside
#define MASK(i, from, beside) "vand.vi %[p" #i "], %[" from #i "], %[mask]\n" beside
#define MULTIPLY(row)                                                                              \
    "smt.vmadot %[s0], %[" row "], %[p0]\nsmt.vmadot %[s1], %[" row "], %[p1]\n"                   \
    "smt.vmadot %[s2], %[" row "], %[p2]\nsmt.vmadot %[s3], %[" row "], %[p3]\n"
#define ROW(row, q) "addi %[at], %[x], " q "*%[run]\nvle8.v %[" row "], (%[at])\n"
#define FIRST_PART                                                                                 \
    "vsetvli zero, %[bytes], e8, m1, ta, ma\nvle8.v %[even], (%[x])\n" MASK(                       \
        0, "w", ROW("odd", "1")) MASK(1, "w", "lbu zero, 0(%[ahead])\n")                           \
        MASK(2, "w", "lbu zero, 64(%[ahead])\n") MASK(3, "w", "") MULTIPLY("even")
#define LOAD(i) "vle8.v %[w" #i "], (%[at])\naddi %[at], %[at], 32\n"
#define LAST_PART                                                                                  \
    UNPACK(0, "vle8.v %[w0], (%[next])\naddi %[at], %[next], 32\n")                                \
    UNPACK(1, LOAD(1)) UNPACK(2, LOAD(2)) UNPACK(3, LOAD(3)) MULTIPLY("odd")

/* The batch in `kept`, which then has the one at `next`, by x; fetches two lines at `ahead`. */
EK_INLINE void add_batch(const int8_t *x, const uint8_t *next, const uint8_t *ahead, i8_block *s,
                         kept_vectors *kept) {
    pairs part[BATCH], even, odd, *w = kept->w;
    const void *at;
    __asm__ volatile(".option push\n.option arch, +xsmtvdot\n" FIRST_PART LAST_PART ".option pop"
                     : [s0] "+vr"(s[0]), [s1] "+vr"(s[1]), [s2] "+vr"(s[2]), [s3] "+vr"(s[3]),
                       [w0] "+vr"(w[0]), [w1] "+vr"(w[1]), [w2] "+vr"(w[2]), [w3] "+vr"(w[3]),
                       [p0] "=&vr"(part[0]), [p1] "=&vr"(part[1]), [p2] "=&vr"(part[2]),
                       [p3] "=&vr"(part[3]), [even] "=&vr"(even), [odd] "=&vr"(odd), [at] "=&r"(at)
                     : [x] "r"(x), [next] "r"(next), [ahead] "r"(ahead), [bytes] "r"(32L),
                       [run] "i"(HALF), [mask] "i"(15), [down] "i"(4)
                     : "memory");
}

/* Likewise two vectors. */
EK_INLINE void add_two(const int8_t *x, const uint8_t *next, i8_block s[2], kept_vectors *kept) {
    pairs *w = kept->w;
    EK_UNROLL
    for (int q = 0; q < 2; q++) {
        pairs part[2];
        EK_UNROLL
        for (int i = 0; i < 2; i++) {
            part[i] = q ? w[i] >> 4 * q : w[i];
            part[i] &= 15;
        }
        i8_madot(s, i8_vector(x + q * HALF), (vi)part[0], (vi)part[1]);
    }
    w[0] = pairs_at(next), w[1] = pairs_at(next + sizeof(pairs));
}

EK_INLINE void group_sums(const int nv, const group_at at, kept_vectors *kept, vi *to) {
    const int count = nv % 2 ? 2 : BATCH, bytes = count * (int)sizeof(pairs);
    const uint8_t *w = at.w, *ahead = at.ahead, *const end = at.w + VALUES(nv);
    i8_block s[2 * NV];
    EK_UNROLL
    for (int j = 0; j < 2 * nv; j++)
        s[j] = (i8_block){0};
    for (long p = 0; p < HALF; p += I8_STEP, ahead += 2 * nv * 32) {
        EK_UNROLL
        for (int j = 0; j < 2 * nv; j += count) {
            w += bytes;
            const uint8_t *const next = w == end ? at.next_w : w;
            if (count == BATCH)
                add_batch(at.x + p, next, ahead + j * 32, s + j, kept);
            else
                add_two(at.x + p, next, s + j, kept);
        }
        if (count == 2)
            prefetch(ahead, 0, 2 * nv * 32);
    }
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        to[j] = __builtin_shufflevector(s[2 * j], s[2 * j + 1], 0, 1, 2, 3, 16, 17, 18, 19);
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        __asm__ volatile("" : "+vr"(to[j])); /* all before what waits for one */
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        to[j] += vi_splat(*at.sum);
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        __asm__ volatile("" : "+vr"(to[j]));
}
#endif
