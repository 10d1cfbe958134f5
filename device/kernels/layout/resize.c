/* Bilinear resizing, f32. Compile-time parameters: NAME, EK_SIMD. */
#include <math.h>
#include "resize.h"

/* Where output index i falls: the two neighbors and the weight of the second. */
EK_INLINE float locate(long i, float scale, int half_pixel, int size, long *low, long *high) {
    float at = half_pixel ? ((float)i + 0.5f) * scale - 0.5f : (float)i * scale;
    float down = floorf(at);
    *low = ek_max((long)down, 0);
    *high = ek_min((long)ceilf(at), size - 1);
    return at - (float)*low;
}

/* Tasks: rows of the output. */
void NAME(const void *args, long begin, long end) {
    const ek_resize_args *a = args;
    for (long t = begin; t < end; t++) {
        long y0, y1, row = (long)a->w * a->c;
        float dy = locate(t % a->oh, a->y_scale, a->half_pixel, a->h, &y0, &y1);
        const float *image = a->x + t / a->oh * a->h * row;
        const float *top = image + y0 * row, *bottom = image + y1 * row;
        float *restrict y = a->y + t * a->ow * a->c;
        for (long ox = 0; ox < a->ow; ox++, y += a->c) {
            long x0, x1;
            float dx = locate(ox, a->x_scale, a->half_pixel, a->w, &x0, &x1);
            const float *tl = top + x0 * a->c, *tr = top + x1 * a->c;
            const float *bl = bottom + x0 * a->c, *br = bottom + x1 * a->c;
            float wtl = (1 - dy) * (1 - dx), wbl = dy * (1 - dx), wtr = (1 - dy) * dx,
                  wbr = dy * dx;
            for (long c = 0; c < a->c; c++)
                y[c] = tl[c] * wtl + bl[c] * wbl + tr[c] * wtr + br[c] * wbr;
        }
    }
}
