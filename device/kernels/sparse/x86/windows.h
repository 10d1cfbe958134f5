/* Strips of kind WINDOWS: permutations select x from eight registers. */
#ifndef EK_SPARSE_WINDOWS_H
#define EK_SPARSE_WINDOWS_H
#include "../types.h"

#if defined __AVX512F__ && EK_STORED == 0
#define REGISTERS 8
#define WINDOW (REGISTERS * HEIGHT)
#define HALF (WINDOW / 2)
#define WINDOWS_PREFETCH_DISTANCE 2048 /* prefetch distance in bytes of values */

typedef struct {
    vsum x[REGISTERS];
} window;

/* Loads the half at x; elements beyond `left` are zero. */
EK_INLINE void load_half(vsum *to, const operand *x, long left) {
    EK_UNROLL for (int r = 0; r < REGISTERS / 2; r++, left -= HEIGHT) {
        uint32_t in = left >= HEIGHT ? 0xffff : (1u << ek_max(left, 0)) - 1;
        to[r] = _mm512_maskz_loadu_ps((__mmask16)in, x + r * HEIGHT);
    }
}

EK_INLINE vsum pick(const window *w, const uint8_t *columns) {
    __m512i at = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)columns));
    __mmask16 bit5 = _mm512_test_epi32_mask(at, _mm512_set1_epi32(32));
    __mmask16 bit6 = _mm512_test_epi32_mask(at, _mm512_set1_epi32(64));
    __m512 a = _mm512_permutex2var_ps(w->x[0], at, w->x[1]);
    __m512 b = _mm512_permutex2var_ps(w->x[2], at, w->x[3]);
    __m512 c = _mm512_permutex2var_ps(w->x[4], at, w->x[5]);
    __m512 d = _mm512_permutex2var_ps(w->x[6], at, w->x[7]);
    a = _mm512_mask_blend_ps(bit5, a, b);
    c = _mm512_mask_blend_ps(bit5, c, d);
    return _mm512_mask_blend_ps(bit6, a, c);
}

/* Adds slots [from, to) of a strip; x is at the strip's first column, with `left` elements. */
EK_INLINE vsum add_windows(const value *v, const ek_strip *strip, const uint8_t *head,
                           const operand *x, long left, long from, long to, vsum acc) {
    const uint8_t *slots = head + 4, *columns = head + ((4 + (long)strip->steps + 7) & ~7L);
    vsum odd = {0};
    window w = {0};
    /* The slots of an odd last step are followed by a zero. */
    for (long at = 0, i = 0; i < strip->steps && at < to; i += 2)
        EK_UNROLL for (int h = 0; h < 2; h++) {
            long s = ek_max(from, at), end = ek_min(to, at + slots[i + h]);
            at += slots[i + h];
            load_half(w.x + h * REGISTERS / 2, x, left);
            x += HALF, left -= HALF;
            for (; s + 1 < end; s += 2) {
                const uint8_t *c = columns + s * HEIGHT;
                const char *early = (const char *)(v + s * HEIGHT) + WINDOWS_PREFETCH_DISTANCE;
                __builtin_prefetch(early);
                __builtin_prefetch(early + sizeof(vsum));
                __builtin_prefetch(c + WINDOWS_PREFETCH_DISTANCE / sizeof(value));
                acc = vsum_fma(vsum_from_values(v + s * HEIGHT), pick(&w, c), acc);
                odd = vsum_fma(vsum_from_values(v + (s + 1) * HEIGHT), pick(&w, c + HEIGHT), odd);
            }
            if (s < end)
                acc =
                    vsum_fma(vsum_from_values(v + s * HEIGHT), pick(&w, columns + s * HEIGHT), acc);
        }
    return acc + odd;
}
#endif
#endif
