/* Average and maximum pooling.
 *
 * Compile-time parameters: NAME, EK_SIMD, TX (float, int8_t, uint8_t, int16_t), OP_AVERAGE or
 * OP_MAX. 8-bit averages round half away from zero, like TFLite; OP_EVEN: averages of real values
 * round half to even, like ONNX Runtime, which computes them in this order in f32. */
#include "pool.h"

#define BLOCK 64 /* channels accumulated at once: in registers or L1 */

#if defined FLOAT_X && defined OP_MAX
typedef ek_real sum_t;
#elif defined FLOAT_X || defined OP_EVEN
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
#define COMBINE(s, v) ((s) > (v) ? (s) : (v))
#else
#define START 0
#define COMBINE(s, v) ((s) + (v))
#endif
#ifdef OP_EVEN
#define REAL(a, v) ((float)((v) - (a)->x_zero) * (a)->x_scale)
#else
#define REAL(a, v) (v)
#endif

EK_INLINE TX finish(const ek_pool2d_args *a, sum_t s, long count) {
    (void)count;
#ifdef FLOAT_X
#ifdef OP_AVERAGE
    s = s / (float)count;
#endif
    const sum_t low = (sum_t)a->low_f32, high = (sum_t)a->high_f32;
    s = EK_AT_LEAST(s, low);
    return (TX)EK_AT_MOST(s, high);
#else
#ifdef OP_EVEN
    const float low = (float)(a->low + a->shift), high = (float)(a->high + a->shift);
    const float mean = s / (float)count;
    float y = mean / a->y_scale + (float)a->y_zero;
    y = EK_AT_MOST(EK_AT_LEAST(y, low), high);
    y = (y + 12582912.0f) - 12582912.0f; /* 1.5 * 2^23 leaves no bits for a fraction */
    return (TX)((int32_t)y - a->shift);
#else
#ifdef OP_AVERAGE
    int32_t n = (int32_t)count;
    s = s > 0 ? (s + n / 2) / n : (s - n / 2) / n;
#endif
    s = s > a->low ? s : a->low;
    return (TX)(s < a->high ? s : a->high);
#endif
#endif
}

/* Accumulates `block` channels over the window [y0, y1) x [x0, x1). */
EK_INLINE void take(const ek_pool2d_args *a, const TX *image, long y0, long y1, long x0, long x1,
                    sum_t *restrict sum, const long block) {
    EK_VECTOR_LOOP
    for (long i = 0; i < block; i++)
        sum[i] = START;
    for (long yy = y0; yy < y1; yy++)
        for (long xx = x0; xx < x1; xx++) {
            const TX *from = image + (yy * a->win.w + xx) * a->win.c;
            EK_VECTOR_LOOP
            for (long i = 0; i < block; i++) {
                const sum_t value = REAL(a, from[i]); /* rounded: not to be fused with the sum */
                sum[i] = COMBINE(sum[i], value);
            }
        }
}

/* One output pixel. */
EK_INLINE void pixel(const ek_pool2d_args *a, const TX *image, long y0, long y1, long x0, long x1,
                     TX *restrict to, const long block) {
    sum_t sum[BLOCK];
    const long count = (y1 - y0) * (x1 - x0);
#if defined FLOAT_X && defined OP_AVERAGE
    if (count > EK_POOL_RUN) { /* large sums lose their low bits */
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

/* All channels of a pixel that has at least `block`; the last block overlaps its predecessor. */
EK_INLINE void overlapping(const ek_pool2d_args *a, const TX *image, long y0, long y1, long x0,
                           long x1, TX *y, const long block) {
    const long last = a->win.c - block;
    for (long c = 0; c < last; c += block)
        pixel(a, image + c, y0, y1, x0, x1, y + c, block);
    pixel(a, image + last, y0, y1, x0, x1, y + last, block);
}

#ifdef OP_MAX
#define LINE (8192 / (long)sizeof(TX))

/* The maximum of three values each, some of which may coincide. */
EK_INLINE void largest(const ek_pool2d_args *a, const int ends, TX *restrict to, const TX *p,
                       const TX *q, const TX *r, const long block) {
    EK_VECTOR_LOOP
    for (long i = 0; i < block; i++) {
        const TX most = COMBINE(COMBINE(p[i], q[i]), r[i]);
        to[i] = ends ? finish(a, most, 1) : most;
    }
}

EK_INLINE void largest_of_run(const ek_pool2d_args *a, const int ends, TX *to, const TX *p,
                              const TX *q, const TX *r, long n) {
    long i = 0;
    for (; i + BLOCK <= n; i += BLOCK)
        largest(a, ends, to + i, p + i, q + i, r + i, BLOCK);
    for (; i + 16 <= n; i += 16)
        largest(a, ends, to + i, p + i, q + i, r + i, 16);
    for (; i + 8 <= n; i += 8)
        largest(a, ends, to + i, p + i, q + i, r + i, 8);
    for (; i < n; i++)
        largest(a, ends, to + i, p + i, q + i, r + i, 1);
}

/* Number of output pixels per line buffer; 0: windows are too large or extend beyond the image. */
EK_INLINE long pixels_of_line(const ek_window *g) {
    const long columns = LINE / g->c;
    const int inside = g->top < g->kh && g->left < g->kw && (g->oh - 1) * g->sh - g->top < g->h &&
                       (g->ow - 1) * g->sw - g->left < g->w;
    return inside && g->kh <= 3 && g->kw <= 3 && columns >= 16 ? (columns - g->kw) / g->sw + 1 : 0;
}

/* An output row from rows [y0, y1) of x, with windows of at most three columns: first the vertical
 * maximum, into a line buffer, then the horizontal one. Memory is read left to right, each pixel
 * once. */
EK_INLINE void row_by_lines(const ek_pool2d_args *a, const TX *image, long y0, long y1, TX *y,
                            long pixels) {
    const ek_window *g = &a->win;
    const TX *top = image + y0 * g->w * g->c, *bottom = image + (y1 - 1) * g->w * g->c;
    const TX *middle = y1 - y0 > 2 ? top + (long)g->w * g->c : top;
    TX line[LINE];
    for (long first = 0; first < g->ow; first += pixels) {
        const long end = ek_min(first + pixels, g->ow);
        const long begin = ek_max(first * g->sw - g->left, 0), c = g->c, at = begin * c;
        const long until = ek_min((end - 1) * g->sw - g->left + g->kw, g->w);
        largest_of_run(a, 0, line, top + at, middle + at, bottom + at, (until - begin) * c);
        for (long ox = first; ox < end; ox++) {
            const long ix = ox * g->sw - g->left, x0 = ek_max(ix, 0), x1 = ek_min(ix + g->kw, g->w);
            const TX *from = line + (x0 - begin) * c, *last = line + (x1 - 1 - begin) * c;
            largest_of_run(a, 1, y + ox * a->pitch, from, x1 - x0 > 2 ? from + c : from, last, c);
        }
    }
}
#endif

/* Task: one output row. */
void NAME(const void *task, long begin, long end) {
    const ek_pool2d_args *args = task;
    const ek_pool2d_args a = *args; /* a copy, because stores to y might alias it */
    const ek_window *g = &a.win;
#ifdef OP_MAX
    const long pixels = pixels_of_line(g);
#endif
    for (long t = begin; t < end; t++) {
        const TX *image = (const TX *)a.x + t / g->oh * g->h * g->w * g->c;
        TX *y = (TX *)a.y + t * g->ow * a.pitch;
        long iy = t % g->oh * g->sh - g->top;
        long y0 = ek_max(iy, 0), y1 = ek_min(iy + g->kh, g->h);
#ifdef OP_MAX
        if (pixels) {
            row_by_lines(&a, image, y0, y1, y, pixels);
            continue;
        }
#endif
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
