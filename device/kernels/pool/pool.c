/* Average and maximum pooling.
 *
 * Compile-time parameters: NAME, EK_SIMD, TX (float, int8_t, uint8_t, int16_t), OP_AVERAGE or
 * OP_MAX. 8-bit averages round halves away from zero, as TFLite does. */
#include "pool.h"

#define BLOCK 64 /* channels summed at once: they stay in registers or the first cache */

#if defined FLOAT_X && defined OP_MAX
typedef ek_real sum_t;
#elif defined FLOAT_X
typedef float sum_t;
#else
typedef int32_t sum_t;
#endif
#ifdef OP_MAX
#ifdef EK_HALF
#define START ((ek_real) - 65504)
#elif defined FLOAT_X
#define START (-3.402823466e+38f)
#else
#define START (-32768)
#endif
#define TAKE(s, v) ((s) > (v) ? (s) : (v))
#else
#define START 0
#define TAKE(s, v) ((s) + (v))
#endif

EK_INLINE TX finish(const ek_pool2d_args *a, sum_t s, long count) {
    (void)count;
#ifdef FLOAT_X
#ifdef OP_AVERAGE
    s = s / (float)count;
#endif
    const sum_t low = (sum_t)a->low_f32, high = (sum_t)a->high_f32;
    s = s > low ? s : low;
    return (TX)(s < high ? s : high);
#else
#ifdef OP_AVERAGE
    int32_t n = (int32_t)count;
    s = s > 0 ? (s + n / 2) / n : (s - n / 2) / n;
#endif
    s = s > a->low ? s : a->low;
    return (TX)(s < a->high ? s : a->high);
#endif
}

/* `block` channels of the window [y0, y1) x [x0, x1). */
EK_INLINE void take(const ek_pool2d_args *a, const TX *image, long y0, long y1, long x0, long x1,
                    sum_t *restrict sum, const long block) {
    EK_VECTOR_LOOP
    for (long i = 0; i < block; i++)
        sum[i] = START;
    for (long yy = y0; yy < y1; yy++)
        for (long xx = x0; xx < x1; xx++) {
            const TX *from = image + (yy * a->win.w + xx) * a->win.c;
            EK_VECTOR_LOOP
            for (long i = 0; i < block; i++)
                sum[i] = TAKE(sum[i], from[i]);
        }
}

/* One pixel of y. */
EK_INLINE void pixel(const ek_pool2d_args *a, const TX *image, long y0, long y1, long x0, long x1,
                     TX *restrict to, const long block) {
    sum_t sum[BLOCK];
    const long count = (y1 - y0) * (x1 - x0);
#if defined FLOAT_X && defined OP_AVERAGE
    if (count > EK_POOL_RUN) { /* large sums lose their last bits */
        EK_VECTOR_LOOP
        for (long i = 0; i < block; i++)
            sum[i] = 0.0f;
        for (long yy = y0; yy < y1; yy++) {
            sum_t row[BLOCK];
            take(a, image, yy, yy + 1, x0, x1, row, block);
            EK_VECTOR_LOOP
            for (long i = 0; i < block; i++)
                sum[i] += row[i];
        }
    } else
#endif
        take(a, image, y0, y1, x0, x1, sum, block);
    EK_VECTOR_LOOP
    for (long i = 0; i < block; i++)
        to[i] = finish(a, sum[i], count);
}

/* All channels of one pixel, where there are `block` of them at least; the last ones overlap. */
EK_INLINE void overlapping(const ek_pool2d_args *a, const TX *image, long y0, long y1, long x0,
                           long x1, TX *y, const long block) {
    const long last = a->win.c - block;
    for (long c = 0; c < last; c += block)
        pixel(a, image + c, y0, y1, x0, x1, y + c, block);
    pixel(a, image + last, y0, y1, x0, x1, y + last, block);
}

/* Tasks: rows of the output. */
void NAME(const void *task, long begin, long end) {
    const ek_pool2d_args *args = task;
    const ek_pool2d_args a = *args; /* a copy, so that stores to y cannot change it */
    const ek_window *g = &a.win;
    for (long t = begin; t < end; t++) {
        const TX *image = (const TX *)a.x + t / g->oh * g->h * g->w * g->c;
        TX *y = (TX *)a.y + t * g->ow * a.pitch;
        long iy = t % g->oh * g->sh - g->top;
        long y0 = ek_max(iy, 0), y1 = ek_min(iy + g->kh, g->h);
        for (long ox = 0; ox < g->ow; ox++, y += a.pitch) {
            long ix = ox * g->sw - g->left;
            long x0 = ek_max(ix, 0), x1 = ek_min(ix + g->kw, g->w), c = 0;
            for (; c + BLOCK <= g->c; c += BLOCK)
                pixel(&a, image + c, y0, y1, x0, x1, y + c, BLOCK);
            for (; c + EK_VL <= g->c; c += EK_VL)
                pixel(&a, image + c, y0, y1, x0, x1, y + c, EK_VL);
            if (c == g->c)
                continue;
            if (g->c >= EK_VL)
                pixel(&a, image + g->c - EK_VL, y0, y1, x0, x1, y + g->c - EK_VL, EK_VL);
            else if (g->c >= 8)
                overlapping(&a, image, y0, y1, x0, x1, y, 8);
            else if (g->c >= 4)
                overlapping(&a, image, y0, y1, x0, x1, y, 4);
            else
                overlapping(&a, image, y0, y1, x0, x1, y, 1);
        }
    }
}
