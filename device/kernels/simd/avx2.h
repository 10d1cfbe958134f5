/* x86-64-v3: 16 registers of 256 bits. */
#define EK_VL 8
#define EK_FMA 1
#define EK_LANES 0
#define EK_OWN_MAX /* the generic form also tests for NaN */
#define EK_I8 EK_I8_PAIR16
#define EK_PAIRS
#define EK_OWN_PARTIAL
#define EK_OWN_MULHI
#include <immintrin.h>
#include <stdint.h>
typedef int32_t ek_x86_vi __attribute__((vector_size(32)));
/* Computes even and odd lanes separately: the result is bits 31..62 of each 64-bit product. */
static inline __attribute__((always_inline, unused)) ek_x86_vi vi_mulhi(ek_x86_vi a, ek_x86_vi b) {
    const __m256i half = _mm256_set1_epi64x(1 << 30);
    __m256i low = _mm256_mul_epi32((__m256i)a, (__m256i)b);
    __m256i high =
        _mm256_mul_epi32(_mm256_srli_epi64((__m256i)a, 32), _mm256_srli_epi64((__m256i)b, 32));
    low = _mm256_srli_epi64(_mm256_add_epi64(low, half), 31);
    high = _mm256_slli_epi64(_mm256_add_epi64(high, half), 1);
    return (ek_x86_vi)_mm256_blend_epi32(low, high, 0xAA);
}
#include "vector.h"

EK_INLINE __m256i ek_mask(long n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
EK_INLINE vf vf_load_n(const float *p, long n) {
    return _mm256_maskload_ps(p, ek_mask(n));
}
EK_INLINE void vf_store_n(float *p, vf v, long n) {
    _mm256_maskstore_ps(p, ek_mask(n), v);
}
EK_INLINE vi vi_load_n(const int32_t *p, long n) {
    return (vi)_mm256_maskload_epi32(p, ek_mask(n));
}
EK_INLINE void vi_store_n(int32_t *p, vi v, long n) {
    _mm256_maskstore_epi32(p, ek_mask(n), (__m256i)v);
}

EK_INLINE vi vi_pair16(vi acc, vi a, vi b) {
    return acc + (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
}
EK_INLINE vf vf_max(vf a, vf b) {
    return _mm256_max_ps(a, b);
}
EK_INLINE vf vf_min(vf a, vf b) {
    return _mm256_min_ps(a, b);
}
