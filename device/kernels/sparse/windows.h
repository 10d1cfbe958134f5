/* Strips of kind WINDOWS: x is picked out of eight registers by permutations. */
#ifndef EK_SPARSE_WINDOWS_H
#define EK_SPARSE_WINDOWS_H
#include "types.h"

#if defined __AVX512F__ && EK_STORED == 0
#define REGISTERS 8
#define WINDOW (REGISTERS * HEIGHT)

typedef struct {
    vsum x[REGISTERS];
} window;

/* The last window may reach beyond x. */
EK_INLINE window load_window(const operand *x, long left) {
    window w;
    operand tail[WINDOW] = {0};
    if (left < WINDOW) {
        memcpy(tail, x, (size_t)left * sizeof *x);
        x = tail;
    }
    EK_UNROLL for (int r = 0; r < REGISTERS; r++) w.x[r] = vsum_from_x(x + r * HEIGHT);
    return w;
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

/* Slots from .. to of a strip; x begins at the strip's first column, `left` are in it. */
EK_INLINE vsum add_windows(const value *v, const ek_strip *strip, const uint8_t *head,
                           const operand *x, long left, long from, long to, vsum acc) {
    const uint8_t *slots = head + 4, *columns = head + ((4 + (long)strip->windows + 7) & ~7L);
    vsum odd = {0};
    long at = 0;
    for (long i = 0; i < strip->windows; i++) {
        long s = ek_max(from, at), end = ek_min(to, at + slots[i]);
        at += slots[i];
        if (s >= end)
            continue;
        window w = load_window(x + i * WINDOW, left - i * WINDOW);
        for (; s + 1 < end; s += 2) {
            const uint8_t *c = columns + s * HEIGHT;
            acc = vsum_fma(vsum_from_values(v + s * HEIGHT), pick(&w, c), acc);
            odd = vsum_fma(vsum_from_values(v + (s + 1) * HEIGHT), pick(&w, c + HEIGHT), odd);
        }
        if (s < end)
            acc = vsum_fma(vsum_from_values(v + s * HEIGHT), pick(&w, columns + s * HEIGHT), acc);
    }
    return acc + odd;
}
#endif
#endif
