/* Gathers HEIGHT elements of x at indices of 1, 2 or 4 bytes, relative to the strip's first
 * column. */
#ifndef EK_SPARSE_GATHER_H
#define EK_SPARSE_GATHER_H
#include "packed.h"

#if defined __riscv_v && __has_builtin(__builtin_masked_gather) && EK_STORED != 3
/* Cores with indexed loads. */
#define GATHER(BYTES, INDEX)                                                                       \
    EK_INLINE vsum gather_##BYTES(const operand *x, const uint8_t *ix) {                           \
        typedef INDEX narrow __attribute__((ext_vector_type(HEIGHT)));                             \
        typedef int64_t wide __attribute__((ext_vector_type(HEIGHT)));                             \
        typedef _Bool mask __attribute__((ext_vector_type(HEIGHT)));                               \
        narrow n;                                                                                  \
        memcpy(&n, ix, sizeof n);                                                                  \
        return (vsum)__builtin_masked_gather((mask)1, __builtin_convertvector(n, wide), x);        \
    }
#elif EK_VL == 1
#define GATHER(BYTES, INDEX)                                                                       \
    EK_INLINE vsum gather_##BYTES(const operand *x, const uint8_t *ix) {                           \
        vsum v;                                                                                    \
        EK_UNROLL for (int l = 0; l < HEIGHT; l++) v[l] = x[column_at(ix, l, BYTES)];              \
        return v;                                                                                  \
    }
#else
/* Loads indices as words, to leave the load units to x: on x86 this beats the gather
 * instructions. */
#define GATHER(BYTES, INDEX)                                                                       \
    EK_INLINE vsum gather_##BYTES(const operand *x, const uint8_t *ix) {                           \
        vsum v;                                                                                    \
        EK_UNROLL for (int l = 0; l < HEIGHT; l++) {                                               \
            size_t word;                                                                           \
            const int per = (int)sizeof word / BYTES;                                              \
            const int left = HEIGHT * BYTES - l / per * (int)sizeof word;                          \
            if (left >= (int)sizeof word) {                                                        \
                memcpy(&word, ix + l / per * sizeof word, sizeof word);                            \
                v[l] = x[(INDEX)(word >> (l % per * 8 * BYTES))];                                  \
            } else {                                                                               \
                INDEX one;                                                                         \
                memcpy(&one, ix + l * BYTES, BYTES);                                               \
                v[l] = x[one];                                                                     \
            }                                                                                      \
        }                                                                                          \
        return v;                                                                                  \
    }
#endif
GATHER(1, uint8_t)
GATHER(2, uint16_t)
GATHER(4, uint32_t)

/* 2-byte columns that are all below NEAR: the upper one in a word, scaled by the element size, is
 * then a single shift, which the addressing mode includes. */
#if defined __aarch64__ && (EK_STORED == 0 || EK_STORED == 2)
#define NEAR (1 << 14)
EK_INLINE vsum gather_near(const operand *x, const uint8_t *ix) {
    vsum v;
    EK_UNROLL for (int l = 0; l < HEIGHT; l += 2) {
        uint32_t two;
        memcpy(&two, ix + 2 * l, sizeof two);
        v[l] = x[(uint16_t)two];
        v[l + 1] = *(const operand *)((const char *)x + ((size_t)two >> 14));
    }
    return v;
}
#endif

/* For an x that exceeds L2: gather instructions keep more cache misses in flight than single loads,
 * whose values wait in the scheduler. Columns are below 2^31. */
#if defined __AVX512F__ && (EK_STORED == 0 || EK_STORED == 2)
EK_INLINE vsum gather_far(const operand *x, const uint8_t *ix) {
    return _mm512_i32gather_ps(_mm512_loadu_si512(ix), x, 4);
}
#elif defined __AVX512F__ && EK_STORED == 1
EK_INLINE vsum gather_far(const operand *x, const uint8_t *ix) {
    return _mm512_i32gather_pd(_mm256_loadu_si256((const __m256i *)ix), x, 8);
}
#elif defined __AVX2__ && (EK_STORED == 0 || EK_STORED == 2)
EK_INLINE vsum gather_far(const operand *x, const uint8_t *ix) {
    return _mm256_i32gather_ps(x, _mm256_loadu_si256((const __m256i *)ix), 4);
}
#elif defined __AVX2__ && EK_STORED == 1
EK_INLINE vsum gather_far(const operand *x, const uint8_t *ix) {
    return _mm256_i32gather_pd(x, _mm_loadu_si128((const __m128i *)ix), 8);
}
#else
#define gather_far gather_4
#endif
#endif
