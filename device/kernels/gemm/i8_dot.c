/* A row of bytes times columns contiguous along k: dot products, AT columns at a time, so that they
 * share each load of A and accumulate independently.
 *
 * Compile-time parameters: EK_SIMD, TYPES. */
#define MR 1
#define NV 1
#include "i8_types.h"

#define AT 4

/* Bytes of either operand per vector of sums. */
#if I8_BYTES
#define CHUNK (4 * EK_VL)
#elif !I8_IN_PLACE
#define CHUNK (2 * EK_VL)
#else
#define CHUNK EK_VL
#endif

/* If one operand must be flipped, flip B, the larger: the correction needs only a sum of A. */
#if EK_I8 == EK_I8_DOT4_US
#define FLIP_A 0
#define FLIP_B (TYPES == 1 ? FLIP_WORD : 0)
#elif I8_BYTES
#define FLIP_A (A_UNSIGNED ? FLIP_WORD : 0)
#define FLIP_B (B_UNSIGNED ? FLIP_WORD : 0)
#else
#define FLIP_A 0
#define FLIP_B 0
#endif

#if I8_BYTES
typedef vi chunk;
EK_INLINE chunk load_a(const void *p) {
    return i8_vector(p) ^ vi_splat(FLIP_A);
}
EK_INLINE chunk load_b(const void *p) {
    return i8_vector(p) ^ vi_splat(FLIP_B);
}
#if EK_I8 == EK_I8_DOT4_US
EK_INLINE vi add_products(vi sum, chunk a, chunk b) {
    return A_UNSIGNED ? vi_dot4(sum, a, b) : vi_dot4(sum, b, a);
}
EK_INLINE vi add_sum(vi sum, chunk a) {
    return vi_dot4(sum, vi_splat(0x01010101), a);
}
#elif EK_I8_SIGNED_DOTS || EK_I8 == EK_I8_MADOT
EK_INLINE vi add_products(vi sum, chunk a, chunk b) {
    return vi_dot4(sum, a, b);
}
EK_INLINE vi add_sum(vi sum, chunk a) {
    return vi_dot4(sum, a, vi_splat(0x01010101));
}
#else
EK_INLINE vi add_products(vi sum, chunk a, chunk b) {
    return vi_mull16(sum, a, b, 0);
}
EK_INLINE vi add_sum(vi sum, chunk a) {
    return vi_mull16(sum, a, vi_splat(0x01010101), 1);
}
#endif
#elif !I8_IN_PLACE
typedef int8_t half_s8 __attribute__((vector_size(2 * EK_VL)));
typedef uint8_t half_u8 __attribute__((vector_size(2 * EK_VL)));
typedef int16_t chunk __attribute__((vector_size(4 * EK_VL)));
EK_INLINE chunk load_as(const void *p, int is_unsigned) {
    half_s8 v;
    memcpy(&v, p, sizeof v);
    return is_unsigned ? vcast((half_u8)v, chunk) : vcast(v, chunk);
}
EK_INLINE chunk load_a(const void *p) {
    return load_as(p, A_UNSIGNED);
}
EK_INLINE chunk load_b(const void *p) {
    return load_as(p, B_UNSIGNED);
}
EK_INLINE vi add_products(vi sum, chunk a, chunk b) {
    return vi_pair16(sum, (vi)a, (vi)b);
}
#else
typedef vi chunk;
EK_INLINE chunk load_a(const void *p) {
    return A_UNSIGNED ? vi_from_u8(p) : vi_from_s8(p);
}
EK_INLINE chunk load_b(const void *p) {
    return B_UNSIGNED ? vi_from_u8(p) : vi_from_s8(p);
}
EK_INLINE vi add_products(vi sum, chunk a, chunk b) {
    return vi_wrap_add(sum, a * b);
}
#endif

EK_INLINE int32_t sum_lanes(vi v) {
#if EK_VL > 1
    return __builtin_reduce_add(v);
#else
    return v;
#endif
}

/* Correction for the flipped operand: each value of B is off by +128 or -128 per value of A. */
static int32_t correction_of(const int8_t *a, long k) {
    uint32_t sum = 0;
#if I8_BYTES
    vi sums = {0};
    long p = 0;
    for (; p + CHUNK <= k; p += CHUNK)
        sums = add_sum(sums, load_a(a + p));
    sum = (uint32_t)sum_lanes(sums);
    for (; p < k; p++)
        sum += (uint32_t)a[p];
#else
    (void)a, (void)k;
#endif
    return (int32_t)(sum * (EK_I8 == EK_I8_DOT4_US ? -128u : 128u));
}

EK_INLINE void dots(const int count, const int8_t *a, const int8_t *b, long b_col, long k,
                    int32_t sums[AT]) {
    vi acc[AT];
    EK_UNROLL
    for (int j = 0; j < count; j++)
        acc[j] = (vi){0};
    long p = 0;
    for (; p + CHUNK <= k; p += CHUNK) {
        const chunk x = load_a(a + p);
        EK_UNROLL
        for (int j = 0; j < count; j++)
            acc[j] = add_products(acc[j], x, load_b(b + j * b_col + p));
    }
    if (p < k) {
        /* Pad beyond k with the value that flips to zero, which adds nothing. */
        int8_t end[CHUNK];
        memset(end, FLIP_A ? FLIP_BYTE : 0, sizeof end);
        ek_copy_short(end, a + p, k - p);
        const chunk x = load_a(end);
        memset(end, FLIP_B ? FLIP_BYTE : 0, sizeof end);
        EK_UNROLL
        for (int j = 0; j < count; j++) {
            ek_copy_short(end, b + j * b_col + p, k - p);
            acc[j] = add_products(acc[j], x, load_b(end));
        }
    }
    EK_UNROLL
    for (int j = 0; j < count; j++)
        sums[j] = sum_lanes(acc[j]);
}

/* u8 . s8 with signed products only: A was flipped, and the correction needs each column's sum. */
static int32_t column_correction(const int8_t *b, long k) {
    uint32_t sum = 0;
    for (long p = 0; p < k; p++)
        sum += (uint32_t)b[p];
    return (int32_t)(sum * 128u);
}

static int8_t quantized(const ek_gemm_epilogue *e, int32_t sum, long at) {
    const int32_t low = e->low, high = e->high, shifted = (int32_t)((uint32_t)sum << e->left[at]);
    const int64_t wide = (int64_t)shifted * e->multiplier[at] + (1LL << 30);
    const int32_t x = (int32_t)(wide >> 31), right = e->right[at];
    const int32_t mask = (int32_t)((1u << right) - 1), half = (mask >> 1) + (x < 0);
    const int32_t y = (x >> right) + ((x & mask) > half) + e->zero;
    return (int8_t)(y < low ? low : y > high ? high : y);
}

static void finish(const ek_gemm_job *job, int32_t sum, void *c, long at, long column) {
    const ek_gemm_epilogue *e = job->epilogue;
    column = e->per_row ? 0 : column;
    if (e->output == EK_GEMM_FLOAT) {
        const float *bias = e->bias;
        float v = (float)sum * (e->scale ? e->scale[column] : 1) + (bias ? bias[column] : 0);
        v = v > e->low_f32 ? v : e->low_f32;
        ((float *)c)[at] = v < e->high_f32 ? v : e->high_f32;
        return;
    }
    const int32_t *bias = e->bias;
    uint32_t total = (uint32_t)sum + (uint32_t)(bias ? bias[column] : 0);
    if (e->output == EK_GEMM_QUANTIZE) {
        ((int8_t *)c)[at] = quantized(e, (int32_t)total, column);
        return;
    }
    if (job->load)
        total += (uint32_t)((int32_t *)c)[at];
    ((int32_t *)c)[at] = (int32_t)total;
}

void I8_FAMILY(_dot)(const ek_gemm_job *job, const void *a, const void *b, long b_col, void *c,
                     long count, long column) {
    const int8_t *from = b;
    const int32_t correction = FLIP_B ? correction_of(a, job->k) : 0;
    int32_t sums[AT];
    for (long j = 0; j < count;) {
        const int many = j + AT <= count, now = many ? AT : 1;
        if (many)
            dots(AT, a, from, b_col, job->k, sums);
        else
            dots(1, a, from, b_col, job->k, sums);
        for (int i = 0; i < now; i++, j++, from += b_col) {
            uint32_t sum = (uint32_t)sums[i] + (uint32_t)correction;
            if (FLIP_A)
                sum += (uint32_t)column_correction(from, job->k);
            finish(job, (int32_t)sum, c, j * job->c_col, column + j);
        }
    }
}
