/* Bilinear resizing. Compile-time parameters: NAME, EK_SIMD, TX, and for integers ACC_T, where
 * weights are multiples of 1/1024, as in LiteRT, or ROUNDED, where they are floats: 1 rounds halves
 * up, as LiteRT does uint8_t, 2 to even, as ONNX does. */
#include <math.h>
#include "resize.h"

#ifdef ACC_T
typedef int32_t weight;
#define ONE (1 << EK_RESIZE_BITS)

/* Maps output index i to its two input neighbors and the weight of the second. */
EK_INLINE weight neighbors(long i, const ek_resize_axis *a, long *low, long *high) {
    const long at = i * a->step + a->offset;
    *low = ek_max(at >> EK_RESIZE_BITS, 0);
    *high = ek_min((at + ONE - 1) >> EK_RESIZE_BITS, a->size - 1);
    return (weight)(at - *low * ONE);
}

/* Rounds half away from zero. */
EK_INLINE TX finish(ACC_T total) {
    const ACC_T half = (ACC_T)1 << (2 * EK_RESIZE_BITS - 1);
    return (TX)((total > 0 ? total + half : total - half) / (2 * half));
}
#else
typedef float weight;
#define ONE 1.0f

EK_INLINE weight neighbors(long i, const ek_resize_axis *a, long *low, long *high) {
/* Weights are rounded as in LiteRT, too. */
#pragma STDC FP_CONTRACT OFF
    float at = a->half_pixel ? ((float)i + 0.5f) * a->scale - 0.5f : (float)i * a->scale;
    float down = floorf(at);
    *low = ek_max((long)down, 0);
    *high = ek_min((long)ceilf(at), a->size - 1);
    return at - (float)*low;
}
#endif

/* The same for the part of the image and of the result that is here. */
EK_INLINE weight locate(long i, const ek_resize_axis *a, long *low, long *high) {
    weight second = neighbors(i + a->begin, a, low, high);
    *low -= a->origin;
    *high -= a->origin;
    return second;
}

/* The `n` channels of a pixel. */
EK_INLINE void pixel(const TX *tl, const TX *tr, const TX *bl, const TX *br, weight dy, weight dx,
                     TX *restrict y, long n) {
#ifdef ACC_T
    const ACC_T wtl = (ACC_T)(ONE - dy) * (ONE - dx), wbl = (ACC_T)dy * (ONE - dx);
    const ACC_T wtr = (ACC_T)(ONE - dy) * dx, wbr = (ACC_T)dy * dx;
    EK_VECTOR_LOOP
    for (long c = 0; c < n; c++)
        y[c] = finish(tl[c] * wtl + bl[c] * wbl + tr[c] * wtr + br[c] * wbr);
#elif defined ROUNDED
    /* In LiteRT's order, rounding each product and sum: ties decide the quantized value. */
#pragma STDC FP_CONTRACT OFF
    const float up = ROUNDED == 1 ? 0.5f : 0x1.8p23f, down = ROUNDED == 1 ? 0 : 0x1.8p23f;
    EK_VECTOR_LOOP
    for (long c = 0; c < n; c++) {
        float left = (float)tl[c] * (1 - dy) * (1 - dx) + (float)bl[c] * dy * (1 - dx);
        float sum = left + (float)tr[c] * (1 - dy) * dx + (float)br[c] * dy * dx;
        /* through s32: QEMU 7.2 hits an assertion in RVV's narrowing conversion */
        y[c] = (TX)(int32_t)(sum + up - down);
    }
#else
    const float wtl = (1 - dy) * (1 - dx), wbl = dy * (1 - dx), wtr = (1 - dy) * dx, wbr = dy * dx;
    EK_VECTOR_LOOP
    for (long c = 0; c < n; c++)
        y[c] = (TX)(tl[c] * wtl + bl[c] * wbl + tr[c] * wtr + br[c] * wbr);
#endif
}

/* Task: one output row. */
void NAME(const void *args, long begin, long end) {
    const ek_resize_args *a = args;
    for (long t = begin; t < end; t++) {
        long y0, y1, row = a->columns.held * a->c;
        weight dy = locate(t % a->oh, &a->rows, &y0, &y1);
        const TX *image = (const TX *)a->x + t / a->oh * a->rows.held * row;
        const TX *top = image + y0 * row, *bottom = image + y1 * row;
        TX *y = (TX *)a->y + t * a->ow * a->pitch;
        for (long ox = 0; ox < a->ow; ox++, y += a->pitch) {
            long x0, x1;
            weight dx = locate(ox, &a->columns, &x0, &x1);
            pixel(top + x0 * a->c, top + x1 * a->c, bottom + x0 * a->c, bottom + x1 * a->c, dy, dx,
                  y, a->c);
        }
    }
}
