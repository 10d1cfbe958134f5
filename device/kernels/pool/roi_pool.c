/* Maximum of each bin of regions with whole corners. Compile-time parameters: NAME, EK_SIMD. */
#include <math.h>
#include "../kernel.h"

typedef struct {
    long n, h, w, c;
    long oh, ow;          /* bins of a region */
    float scale;          /* of corners */
    const float *x;       /* [n, h, w, c] */
    const float *regions; /* [regions, 5]: image, x, y, x, y */
    float *y;             /* [regions, oh, ow, c] */
} ek_roi_pool_args;

#define FAR 536870912.0f /* sums of such corners fit into a long of 32 bits */

/* The nearest whole number; 0 for NaN. */
EK_INLINE long whole(float value, float low, float high) {
    return value == value ? (long)roundf(fminf(fmaxf(value, low), high)) : 0;
}

/* Bin `index` of `bins` between two corners: the pixels from *first to *end (excluded). */
EK_INLINE void span(float from, float to, long index, long bins, long length, long *first,
                    long *end) {
    const long start = whole(from, -FAR, FAR), last = whole(to, -FAR, FAR);
    const float size = (float)ek_max(last - start + 1, 1) / (float)bins;
    *first = ek_max(0, ek_min((long)floorf((float)index * size) + start, length));
    *end = ek_max(0, ek_min((long)ceilf((float)(index + 1) * size) + start, length));
}

/* Task: a row of bins. Reads stay inside x whatever the region and its image. */
void NAME(const void *args, long begin, long end) {
    const ek_roi_pool_args *a = args;
    for (long t = begin; t < end; t++) {
        const float *region = a->regions + t / a->oh * 5;
        const long at = whole(floorf(region[0]), 0.0f, (float)(a->n - 1));
        const float *image = a->x + at * a->h * a->w * a->c;
        long y0, y1, x0, x1;
        span(region[2] * a->scale, region[4] * a->scale, t % a->oh, a->oh, a->h, &y0, &y1);
        for (long ox = 0; ox < a->ow; ox++) {
            span(region[1] * a->scale, region[3] * a->scale, ox, a->ow, a->w, &x0, &x1);
            float *restrict y = a->y + (t * a->ow + ox) * a->c;
            for (long i = 0; i < a->c; i++)
                y[i] = y0 < y1 && x0 < x1 ? -INFINITY : 0.0f;
            for (long iy = y0; iy < y1; iy++)
                for (long ix = x0; ix < x1; ix++) {
                    const float *from = image + (iy * a->w + ix) * a->c;
                    EK_VECTOR_LOOP
                    for (long i = 0; i < a->c; i++)
                        y[i] = from[i] > y[i] ? from[i] : y[i];
                }
        }
    }
}
