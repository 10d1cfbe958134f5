/* Task: a group of x. Entry c0 + 4 * c1 of a table is the rounded sum of x[0] times the weight that
 * is stored as c0 and x[1] times that of c1. The largest sum of a group is 127 units.
 *
 * Weights are -2 to 1; half of x, which is taken off at the end, makes them -1.5 to 1.5, whose
 * largest sum is smaller. Those of three values (TERNARY) are -1 to 1.
 *
 * Compile-time parameters: NAME, EK_SIMD, TERNARY. */
#include "row_tables.h"

#define LARGEST                                                                                    \
    (127 * 256.0f / (TERNARY ? 2 : 3)) /* of two values that twice the weights multiply */
#define LEAST 1e-30f                   /* its reciprocal must not overflow */
#define MOST_GROUP 256

typedef int16_t eight __attribute__((vector_size(16)));

/* Index of the first outlier from a channel on. */
static long first_from(const ek_row_tables_args *a, long channel) {
    long low = 0, high = *a->count;
    while (low < high) {
        const long middle = (low + high) / 2;
        if (a->channel[middle] < channel)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* A group of x without outliers. */
static void inliers(const ek_row_tables_args *a, long start, float *to) {
    memcpy(to, a->x + start, (size_t)a->group * sizeof *to);
    for (long i = first_from(a, start); i < *a->count && a->channel[i] < start + a->group; i++)
        to[a->channel[i] - start] = 0;
}

/* Twice the weights of codes 0 to 3. TERNARY has no code 0. */
#define WEIGHTS                                                                                    \
    (TERNARY ? (eight){-2, -2, 0, 2, -2, -2, 0, 2} : (eight){-3, -1, 1, 3, -3, -1, 1, 3})

/* The table of two values. */
EK_INLINE void make_table(const int16_t *x, int8_t *to) {
    const eight one = WEIGHTS * x[0], two = WEIGHTS * x[1];
    const eight low = __builtin_shufflevector(two, two, 0, 0, 0, 0, 1, 1, 1, 1);
    const eight high = __builtin_shufflevector(two, two, 2, 2, 2, 2, 3, 3, 3, 3);
    const int8x8_t lower = vrshrn_n_s16((int16x8_t)(one + low), 8);
    vst1q_s8(to, vcombine_s8(lower, vrshrn_n_s16((int16x8_t)(one + high), 8)));
}

/* The factor of x [count] in 16 bits. */
static float factor_of(const float *x, long count) {
    float32x4_t largest = vdupq_n_f32(LEAST);
    for (long i = 0; i < count; i += 8) {
        const float32x4_t one = vabsq_f32(vld1q_f32(x + i) * 0.5f); /* no overflow */
        const float32x4_t two = vabsq_f32(vld1q_f32(x + i + 4) * 0.5f);
        largest = vmaxq_f32(largest, vpaddq_f32(one, two));
    }
    return LARGEST / 2 / vmaxvq_f32(largest);
}

void NAME(const void *args, long begin, long end) {
    const ek_row_tables_args *a = args;
    const long group = a->group;
    for (long g = begin; g < end; g++) {
        float x[MOST_GROUP];
        inliers(a, g * group, x);
        const float factor = factor_of(x, group);
        int8_t *to = a->to + g * group / 2 * EK_ROW_TABLE;
        int32x4_t total = vdupq_n_s32(0);
        for (long i = 0; i < group; i += 4, to += 2 * EK_ROW_TABLE) {
            const int32x4_t whole = vcvtnq_s32_f32(vld1q_f32(x + i) * factor);
            int16_t narrow[4];
            vst1_s16(narrow, vmovn_s32(whole));
            total += whole;
            make_table(narrow, to);
            make_table(narrow + 2, to + EK_ROW_TABLE);
        }
        a->scale[g] = 128 / factor;
        a->sum[g] = TERNARY ? 0 : (128 - vaddvq_s32(total)) >> 8;
    }
}
