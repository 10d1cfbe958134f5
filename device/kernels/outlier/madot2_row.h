/* group_sums of grouped_row.c for 2 bits by SpacemiT's matrix unit. Bytes have values of four
 * vectors of columns, of which int2_row.h makes sums; x is the first of the unit's four rows, and
 * the others, whose sums nothing reads, are what follows x. */
#ifndef EK_OUTLIER_MADOT2_ROW_H
#define EK_OUTLIER_MADOT2_ROW_H

#define SUM_UNIT(j) (1.0f / (1 << 2 * (j)))
#define BATCH (2 * I8_STEP) /* of k */
_Static_assert(NV == 4 && GROUPS % BATCH == 0, "whole batches");

typedef struct {
    pairs w[4]; /* the next batch: of each step, the first and the last four columns of vectors */
    pairs x[2]; /* of both steps */
} kept_vectors;
#define KEEPS

EK_INLINE void load_first(const int nv, const group_at at, kept_vectors *kept) {
    (void)nv;
    EK_UNROLL
    for (int i = 0; i < 4; i++)
        kept->w[i] = pairs_at(at.w + i * (int)sizeof(pairs));
    kept->x[0] = pairs_at((const uint8_t *)at.x);
    kept->x[1] = pairs_at((const uint8_t *)at.x + I8_STEP);
}

/* In the order of the source: the products of a step hide the time until the other one's masked
 * bytes and its sums are there. The unit takes its shape from vtype, which the compiler sets anew
 * behind the statement. */
#define SHAPE ".option push\n.option arch, +xsmtvdot\nvsetvli zero, %[bytes], e8, m1, ta, ma\n"
#define NEXT_X                                                                                     \
    "vle8.v %[first], (%[next_x])\naddi %[at], %[next_x], %[step]\nvle8.v %[second], (%[at])\n"
#define FETCH "lbu zero, 0(%[ahead])\nlbu zero, 64(%[ahead])\n"
#define MULTIPLY(j, x, a, b)                                                                       \
    "smt.vmadot %[s" #j "0], %[" x "], %[w" #a "]\nsmt.vmadot %[s" #j "1], %[" x "], %[w" #b "]\n"
#define FIRST(j) MULTIPLY(j, "first", 0, 1)
#define SECOND(j) MULTIPLY(j, "second", 2, 3)
#define MASK(i, kind, by) "vand." kind " %[w" #i "], %[w" #i "], " by "\n"
#define LOW6(a, b) MASK(a, "vx", "%[low6]") MASK(b, "vx", "%[low6]")
#define LOW4(a, b) MASK(a, "vi", "15") MASK(b, "vi", "15")
#define LOW2(a, b) MASK(a, "vi", "3") MASK(b, "vi", "3")
#define LOAD(i, from) "addi %[at], %[next], " from "\nvle8.v %[w" #i "], (%[at])\n"
#define WHOLE SHAPE FIRST(3) LOW6(0, 1) FETCH SECOND(3) LOW6(2, 3)
#define LOWER                                                                                      \
    FIRST(2)                                                                                       \
    LOW4(0, 1) SECOND(2) LOW4(2, 3) FIRST(1) LOW2(0, 1) SECOND(1) FIRST(0) LOW2(2, 3)
#define NEXT LOAD(0, "0") LOAD(1, "32") SECOND(0) LOAD(2, "64") LOAD(3, "96") NEXT_X ".option pop"

/* s[j]: sums of products of the lower 2, 4 and 6 bits and of whole bytes, of both halves. The
 * batch is in `kept`, which then has the one at `next` and `next_x`; fetches two lines at `ahead`.
 */
EK_INLINE void add_batch(const int8_t *next_x, const uint8_t *next, const uint8_t *ahead,
                         i8_block s[4][2], kept_vectors *kept) {
    pairs *w = kept->w, *x = kept->x;
    const void *at;
    __asm__ volatile(
        WHOLE LOWER NEXT
        : [s00] "+vr"(s[0][0]), [s01] "+vr"(s[0][1]), [s10] "+vr"(s[1][0]), [s11] "+vr"(s[1][1]),
          [s20] "+vr"(s[2][0]), [s21] "+vr"(s[2][1]), [s30] "+vr"(s[3][0]), [s31] "+vr"(s[3][1]),
          [w0] "+vr"(w[0]), [w1] "+vr"(w[1]), [w2] "+vr"(w[2]), [w3] "+vr"(w[3]),
          [first] "+vr"(x[0]), [second] "+vr"(x[1]), [at] "=&r"(at)
        : [next_x] "r"(next_x), [next] "r"(next), [ahead] "r"(ahead), [bytes] "r"(32L),
          [step] "i"(I8_STEP), [low6] "r"(63L)
        : "memory");
}

EK_INLINE void group_sums(const int nv, const group_at at, kept_vectors *kept, vi *to) {
    const int bytes = 4 * (int)sizeof(pairs);
    const uint8_t *w = at.w, *ahead = at.ahead, *const end = at.w + VALUES(4);
    i8_block s[4][2];
    (void)nv;
    EK_UNROLL
    for (int j = 0; j < 8; j++)
        s[j / 2][j % 2] = (i8_block){0};
    for (long p = 0; p < GROUPS; p += BATCH, ahead += bytes) {
        w += bytes;
        add_batch(w == end ? at.next_x : at.x + p + BATCH, w == end ? at.next_w : w, ahead, s,
                  kept);
    }
    vi all[4];
    EK_UNROLL
    for (int j = 0; j < 4; j++)
        all[j] = __builtin_shufflevector(s[j][0], s[j][1], 0, 1, 2, 3, 16, 17, 18, 19);
    EK_UNROLL
    for (int j = 0; j < 4; j++)
        __asm__ volatile("" : "+vr"(all[j])); /* all before what waits for one */
    EK_UNROLL
    for (int j = 3; j > 0; j--)
        to[j] = all[j] - all[j - 1];
    to[0] = all[0] + vi_splat(at.sum[0]);
    EK_UNROLL
    for (int j = 1; j < 3; j++)
        to[j] += vi_splat(at.sum[j] - at.sum[j - 1]);
    EK_UNROLL
    for (int j = 0; j < 4; j++)
        __asm__ volatile("" : "+vr"(to[j]));
}
#endif
