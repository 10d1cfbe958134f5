/* x86-64-v4 with VNNI: 32 registers of 512 bits, dot products of four bytes. */
#define EK_VL 16
#define EK_FMA 1
#define EK_LANES 0
#define EK_OWN_MAX /* the generic form also tests for NaN */
#define EK_I8 EK_I8_DOT4_US
#define EK_PAIRS
#define EK_OWN_PARTIAL
#define EK_OWN_PARTIAL_BYTES
#define EK_OPAQUE(v) __asm__("" : "+v"(v))
#define EK_OPAQUE_ADDRESS(p) __asm__("" : "+r"(p))
#define EK_OWN_MULHI
#include <immintrin.h>
#include <stdint.h>
typedef int32_t ek_x86_vi __attribute__((vector_size(64)));
/* Computes even and odd lanes separately: the result is bits 31..62 of each 64-bit product. */
static inline __attribute__((always_inline, unused)) ek_x86_vi vi_mulhi(ek_x86_vi a, ek_x86_vi b) {
    const __m512i half = _mm512_set1_epi64(1 << 30);
    __m512i low = _mm512_mul_epi32((__m512i)a, (__m512i)b);
    __m512i high =
        _mm512_mul_epi32(_mm512_srli_epi64((__m512i)a, 32), _mm512_srli_epi64((__m512i)b, 32));
    low = _mm512_srli_epi64(_mm512_add_epi64(low, half), 31);
    high = _mm512_slli_epi64(_mm512_add_epi64(high, half), 1);
    return (ek_x86_vi)_mm512_mask_blend_epi32(0xAAAA, low, high);
}
#include "vector.h"

EK_INLINE vf vf_load_n(const float *p, long n) {
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
EK_INLINE void vf_store_n(float *p, vf v, long n) {
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), v);
}
/* Lanes whose mask bit is clear are zero, or not stored. */
EK_INLINE vf vf_load_masked(const float *p, uint16_t mask) {
    return _mm512_maskz_loadu_ps(mask, p);
}
/* Shifts all lanes up by one and inserts the last of `before`; or down by one with the first of
 * `after`. Compilers turn the intrinsics into a slower shuffle. */
EK_INLINE vf vf_later(vf before, vf v) {
    __asm__("valignd $15, %1, %2, %0" : "=v"(v) : "v"(before), "v"(v));
    return v;
}
EK_INLINE vf vf_earlier(vf v, vf after) {
    __asm__("valignd $1, %1, %2, %0" : "=v"(v) : "v"(v), "v"(after));
    return v;
}
EK_INLINE void vf_store_masked(float *p, vf v, uint16_t mask) {
    _mm512_mask_storeu_ps(p, mask, v);
}
EK_INLINE vi vi_load_n(const int32_t *p, long n) {
    return (vi)_mm512_maskz_loadu_epi32((__mmask16)((1u << n) - 1), p);
}
EK_INLINE void vi_store_n(int32_t *p, vi v, long n) {
    _mm512_mask_storeu_epi32(p, (__mmask16)((1u << n) - 1), (__m512i)v);
}
EK_INLINE vi vi_dot4(vi acc, vi a, vi b) {
    return (vi)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)a, (__m512i)b);
}
EK_INLINE vi vi_pair16(vi acc, vi a, vi b) {
    return (vi)_mm512_dpwssd_epi32((__m512i)acc, (__m512i)a, (__m512i)b);
}
/* vi_requantize_right for sums that are 2^31 too large (modulo 2^32): the upper half of an unsigned
 * product with twice the multiplier. The added constant contains all roundings; for negative sums
 * it must be half an ulp less, hence `signs`. */
#define EK_UNSIGNED_SUMS
typedef struct {
    vi even, odd, even_addend, odd_addend, right;
} vi_unsigned_factor;
EK_INLINE vi_unsigned_factor vi_unsigned_factor_of(vi_factor f) {
    const __m512i twice = (__m512i)vi_wrap_add(f.multiplier, f.multiplier),
                  half = _mm512_set1_epi64(1u << 31);
    const __m512i addend = (__m512i)((vi_splat(1) << (f.right - 1)) - 1 - f.multiplier);
    return (vi_unsigned_factor){(vi)twice, (vi)_mm512_srli_epi64(twice, 32),
                                (vi)_mm512_or_si512(_mm512_slli_epi64(addend, 32), half),
                                (vi)_mm512_mask_blend_epi32(0x5555, addend, half), f.right};
}
EK_INLINE vi vi_requantize_unsigned(vi x, vi_unsigned_factor f) {
    const __m512i odds = _mm512_srli_epi64((__m512i)x, 32);
    const __m512i even =
        _mm512_add_epi64(_mm512_mul_epu32((__m512i)x, (__m512i)f.even), (__m512i)f.even_addend);
    const __m512i odd =
        _mm512_add_epi64(_mm512_mul_epu32(odds, (__m512i)f.odd), (__m512i)f.odd_addend);
    const vi high = (vi)_mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_DDBB);
    return (high - (x >> 31)) >> f.right; /* x >> 31 is 0 if the sum is negative, else -1 */
}
#define EK_QUANTIZED64
/* Adds the zero point to four vectors and narrows them: 4 x 16 bytes within [low, high]. */
typedef struct {
    __m512i zero, low, high;
} vi_range;
EK_INLINE vi_range vi_range_of(int zero, int low, int high) {
    return (vi_range){_mm512_set1_epi16((short)zero), _mm512_set1_epi8((char)low),
                      _mm512_set1_epi8((char)high)};
}
EK_INLINE vi vi_quantized64(const vi v[4], const vi_range *c, const int is_unsigned) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i a = _mm512_adds_epi16(_mm512_packs_epi32((__m512i)v[0], (__m512i)v[1]), c->zero);
    const __m512i b = _mm512_adds_epi16(_mm512_packs_epi32((__m512i)v[2], (__m512i)v[3]), c->zero);
    __m512i narrow = is_unsigned ? _mm512_packus_epi16(a, b) : _mm512_packs_epi16(a, b);
    narrow = is_unsigned ? _mm512_min_epu8(_mm512_max_epu8(narrow, c->low), c->high)
                         : _mm512_min_epi8(_mm512_max_epi8(narrow, c->low), c->high);
    return (vi)_mm512_permutexvar_epi32(order, narrow);
}
#define EK_GROUPS4 1
/* The first n bytes (0 < n <= 64), zero-extended. */
EK_INLINE vi vi_load_bytes(const void *p, long n) {
    return (vi)_mm512_maskz_loadu_epi8(~0ull >> (64 - n), p);
}
/* Four rows of 64 bytes as 64 groups of four, in an order that vi_sort_groups4 corrects. */
EK_INLINE void vi_groups4(vi rows[4]) {
    const __m512i a = (__m512i)rows[0], b = (__m512i)rows[1], c = (__m512i)rows[2],
                  d = (__m512i)rows[3];
    const __m512i ab = _mm512_unpacklo_epi8(a, b), cd = _mm512_unpacklo_epi8(c, d);
    const __m512i ab_high = _mm512_unpackhi_epi8(a, b), cd_high = _mm512_unpackhi_epi8(c, d);
    rows[0] = (vi)_mm512_unpacklo_epi16(ab, cd);
    rows[1] = (vi)_mm512_unpackhi_epi16(ab, cd);
    rows[2] = (vi)_mm512_unpacklo_epi16(ab_high, cd_high);
    rows[3] = (vi)_mm512_unpackhi_epi16(ab_high, cd_high);
}
/* Permutes a row so that vi_groups4 yields ordered groups: transposes its 4 x 4 words. */
EK_INLINE vi vi_before_groups4(vi row) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return (vi)_mm512_permutexvar_epi32(order, (__m512i)row);
}
/* Permutes lanes by a vector of indices; permutes bytes within each quarter by common indices. */
EK_INLINE vi vi_order(vi v, vi order) {
    return (vi)_mm512_permutexvar_epi32((__m512i)order, (__m512i)v);
}
EK_INLINE vi vi_order_bytes(vi v, const uint8_t order[16]) {
    const __m128i each = _mm_loadu_si128((const __m128i *)order);
    return (vi)_mm512_shuffle_epi8((__m512i)v, _mm512_broadcast_i32x4(each));
}
EK_INLINE void vi_sort_groups4(vi v[4]) {
    const __m512i a = _mm512_shuffle_i32x4((__m512i)v[0], (__m512i)v[1], 0x44);
    const __m512i b = _mm512_shuffle_i32x4((__m512i)v[2], (__m512i)v[3], 0x44);
    const __m512i c = _mm512_shuffle_i32x4((__m512i)v[0], (__m512i)v[1], 0xEE);
    const __m512i d = _mm512_shuffle_i32x4((__m512i)v[2], (__m512i)v[3], 0xEE);
    v[0] = (vi)_mm512_shuffle_i32x4(a, b, 0x88);
    v[1] = (vi)_mm512_shuffle_i32x4(a, b, 0xDD);
    v[2] = (vi)_mm512_shuffle_i32x4(c, d, 0x88);
    v[3] = (vi)_mm512_shuffle_i32x4(c, d, 0xDD);
}
#define EK_TRANSPOSES
/* Transposes each 4 x 4 block of a quarter of four vectors. */
EK_INLINE void vf_transpose_quarters(vf v[4]) {
    const __m512d a = (__m512d)_mm512_unpacklo_ps(v[0], v[1]);
    const __m512d b = (__m512d)_mm512_unpackhi_ps(v[0], v[1]);
    const __m512d c = (__m512d)_mm512_unpacklo_ps(v[2], v[3]);
    const __m512d d = (__m512d)_mm512_unpackhi_ps(v[2], v[3]);
    v[0] = (vf)_mm512_unpacklo_pd(a, c), v[1] = (vf)_mm512_unpackhi_pd(a, c);
    v[2] = (vf)_mm512_unpacklo_pd(b, d), v[3] = (vf)_mm512_unpackhi_pd(b, d);
}
/* Transposes a 16 x 16 block. */
EK_INLINE void vf_transpose(vf v[16]) {
    vf_transpose_quarters(v), vf_transpose_quarters(v + 4);
    vf_transpose_quarters(v + 8), vf_transpose_quarters(v + 12);
    EK_UNROLL for (int i = 0; i < 4; i++) {
        const vf a = _mm512_shuffle_f32x4(v[i], v[i + 4], 0x44);
        const vf b = _mm512_shuffle_f32x4(v[i + 8], v[i + 12], 0x44);
        const vf c = _mm512_shuffle_f32x4(v[i], v[i + 4], 0xEE);
        const vf d = _mm512_shuffle_f32x4(v[i + 8], v[i + 12], 0xEE);
        v[i] = _mm512_shuffle_f32x4(a, b, 0x88), v[i + 4] = _mm512_shuffle_f32x4(a, b, 0xDD);
        v[i + 8] = _mm512_shuffle_f32x4(c, d, 0x88), v[i + 12] = _mm512_shuffle_f32x4(c, d, 0xDD);
    }
}
/* Transposes 16 rows of 4 values, `step` apart, into 4 rows. */
EK_INLINE void vf_transpose_rows4(const float *p, long step, vf v[4]) {
    EK_UNROLL for (int i = 0; i < 4; i++, p += step) {
        vf row = _mm512_castps128_ps512(_mm_loadu_ps(p));
        row = _mm512_insertf32x4(row, _mm_loadu_ps(p + 4 * step), 1);
        row = _mm512_insertf32x4(row, _mm_loadu_ps(p + 8 * step), 2);
        v[i] = _mm512_insertf32x4(row, _mm_loadu_ps(p + 12 * step), 3);
    }
    vf_transpose_quarters(v);
}
EK_INLINE vf vf_max(vf a, vf b) {
    return _mm512_max_ps(a, b);
}
EK_INLINE vf vf_min(vf a, vf b) {
    return _mm512_min_ps(a, b);
}
EK_INLINE vi vi_from_s8_n(const int8_t *p, long n) {
    return (vi)_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8((__mmask16)((1u << n) - 1), p));
}
EK_INLINE vi vi_from_u8_n(const uint8_t *p, long n) {
    return (vi)_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8((__mmask16)((1u << n) - 1), p));
}
EK_INLINE void vi_to_bytes_n(void *p, vi v, long n) {
    _mm_mask_storeu_epi8(p, (__mmask16)((1u << n) - 1), _mm512_cvtepi32_epi8((__m512i)v));
}
