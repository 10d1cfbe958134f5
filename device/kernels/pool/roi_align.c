/* Mean or maximum of interpolated samples in the bins of regions, in ONNX Runtime's order of
 * operations. Compile-time parameters: NAME, EK_SIMD, OP_AVERAGE or OP_MAX. */
#include <math.h>
#include "../kernel.h"

typedef struct {
    long n, h, w, c;
    long oh, ow;           /* bins of a region */
    long samples;          /* along each axis of a bin; 0: about one for each pixel */
    long half_pixel;       /* the center of pixel 0 is at 0.5, and regions may be empty */
    float scale;           /* of corners */
    const float *x;        /* [n, h, w, c] */
    const float *regions;  /* [regions, 4]: x, y, x, y */
    const int32_t *images; /* [regions] */
    float *y;              /* [regions, oh, ow, c] */
} ek_roi_align_args;

/* The samples of a bin along one axis: those from `first` to `end` (excluded) are in the image. */
typedef struct {
    float start, size;
    long count, length, first, end;
} axis;

/* Two pixels and their weights. */
typedef struct {
    long low, high;
    float first, second;
} taps;

#define LARGER(a, b) ((a) > (b) ? (a) : (b))

EK_INLINE float place(const axis *s, long i) {
/* Whether a place is in the image depends on its rounding. */
#pragma STDC FP_CONTRACT OFF
    return s->start + ((float)i + 0.5f) * s->size / (float)s->count;
}

EK_INLINE int inside(const axis *s, long i) {
    const float at = place(s, i);
    return at >= -1.0f && at <= (float)s->length;
}

EK_INLINE taps taps_at(const axis *s, long i) {
    const float at = fminf(fmaxf(place(s, i), 0.0f), (float)(s->length - 1));
    const long low = (long)at;
    const float second = at - (float)low;
    return (taps){low, ek_min(low + 1, s->length - 1), 1.0f - second, second};
}

/* Bin `index` of `bins` between two corners. */
EK_INLINE axis axis_of(const ek_roi_align_args *a, float from, float to, long index, long bins,
                       long length) {
#pragma STDC FP_CONTRACT OFF
    const float offset = a->half_pixel ? 0.5f : 0.0f;
    const float start = from * a->scale - offset;
    float extent = (to * a->scale - offset) - start;
    if (!a->half_pixel)
        extent = extent > 1.0f ? extent : 1.0f;
    const float size = extent / (float)bins;
    axis s = {start + (float)index * size, size, a->samples, length, 0, a->samples};
    if (!a->samples) {
        /* fmaxf drops a NaN */
        s.count = (long)fminf(fmaxf(ceilf(size), 0.0f), (float)EK_ROI_SAMPLES);
        /* About one sample per pixel: only those near the image are looked at, because a region
         * may be much larger. */
        const float rate = (float)s.count / size, most = (float)s.count;
        s.first = (long)fminf(fmaxf((-1.0f - s.start) * rate - 8.0f, 0.0f), most);
        s.end = (long)fminf(fmaxf(((float)length - s.start) * rate + 8.0f, 0.0f), most);
    }
    while (s.first < s.end && !inside(&s, s.first))
        s.first++;
    while (s.first < s.end && !inside(&s, s.end - 1))
        s.end--;
    return s;
}

EK_INLINE void bin(const ek_roi_align_args *a, const float *image, const axis *rows,
                   const axis *columns, float *restrict y) {
    const long c = a->c, seen = (rows->end - rows->first) * (columns->end - columns->first);
    const float count = (float)rows->count * (float)columns->count;
#ifdef OP_MAX
    const float start = seen && (float)seen == count ? -INFINITY : 0.0f;
#else
    const float start = 0.0f;
#endif
    for (long i = 0; i < c; i++)
        y[i] = start;
    for (long r = rows->first; r < rows->end; r++) {
        const taps v = taps_at(rows, r);
        const float *top = image + v.low * a->w * c, *bottom = image + v.high * a->w * c;
        for (long k = columns->first; k < columns->end; k++) {
            const taps u = taps_at(columns, k);
            const float *tl = top + u.low * c, *tr = top + u.high * c;
            const float *bl = bottom + u.low * c, *br = bottom + u.high * c;
            const float wtl = v.first * u.first, wtr = v.first * u.second;
            const float wbl = v.second * u.first, wbr = v.second * u.second;
            EK_VECTOR_LOOP
            for (long i = 0; i < c; i++) {
#ifdef OP_MAX
                const float left = LARGER(wtl * tl[i], wbl * bl[i]);
                y[i] = LARGER(y[i], LARGER(left, LARGER(wtr * tr[i], wbr * br[i])));
#else
                y[i] += wtl * tl[i] + wtr * tr[i] + wbl * bl[i] + wbr * br[i];
#endif
            }
        }
    }
#ifdef OP_AVERAGE
    for (long i = 0; i < c; i++)
        y[i] /= count > 1.0f ? count : 1.0f;
#endif
}

/* Task: a row of bins. Reads stay inside x whatever the region and its image. */
void NAME(const void *args, long begin, long end) {
    const ek_roi_align_args *a = args;
    for (long t = begin; t < end; t++) {
        const float *region = a->regions + t / a->oh * 4;
        const long at = ek_max(0, ek_min(a->images[t / a->oh], a->n - 1));
        const float *image = a->x + at * a->h * a->w * a->c;
        const axis rows = axis_of(a, region[1], region[3], t % a->oh, a->oh, a->h);
        for (long ox = 0; ox < a->ow; ox++) {
            const axis columns = axis_of(a, region[0], region[2], ox, a->ow, a->w);
            bin(a, image, &rows, &columns, a->y + (t * a->ow + ox) * a->c);
        }
    }
}
