/* Baseline x86-64: 16 registers of 128 bits, no fused multiply-add. */
#define EK_VL 4
#define EK_FMA 0
#define EK_LANES 0
#define EK_OWN_MAX /* the generic form also tests for NaN */
#define EK_I8 EK_I8_FOUR16
#define EK_PAIRS
#include "vector.h"
#include <immintrin.h>

EK_INLINE vi vi_pair16(vi acc, vi a, vi b) {
    return acc + (vi)_mm_madd_epi16((__m128i)a, (__m128i)b);
}
EK_INLINE vf vf_max(vf a, vf b) {
    return _mm_max_ps(a, b);
}
EK_INLINE vf vf_min(vf a, vf b) {
    return _mm_min_ps(a, b);
}
