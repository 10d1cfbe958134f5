/* x86-64-v3: 16 registers of 256 bits. */
#define EK_VL 8
#define EK_FMA 1
#define EK_LANES 0
#define EK_OWN_MAX /* the generic form also tests for NaN */
#define EK_I8 EK_I8_PAIR16
#define EK_OWN_PARTIAL
#include "vector.h"
#include <immintrin.h>

EK_INLINE __m256i ek_mask(long n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
EK_INLINE vf vf_load_n(const float *p, long n) {
    return _mm256_maskload_ps(p, ek_mask(n));
}
EK_INLINE void vf_store_n(float *p, vf v, long n) {
    _mm256_maskstore_ps(p, ek_mask(n), v);
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
