/* Depthwise convolution, channel-major, vectors along a row.
 *
 * Compile-time parameters: NAME, EK_SIMD, KH, KW, SW (0: any window, taken from the arguments),
 * CLAMP (0: low and high are infinite).
 * The input rows of a band are copied to scratch with their padding, columns sorted by what the
 * stride leaves of them, so that every tap of consecutive outputs is one plain load. Several rows
 * of outputs are made at once: each load serves all of them. */
#include "planar.h"

#define ROWS 4
#if KH
#define PHASES SW
#else
#define PHASES g->sw
#endif
#define MAX_TAPS 1024 /* the host refuses larger windows */

typedef struct {
    const ek_planar_args *a;
    const float *weights;
    float bias;
    long phases, pitch; /* rows of a copied line, and floats of each */
} plane;

static long pitch_of(const ek_window *g) {
    long reach = g->ow + (long)(g->kw - 1) * g->dw / g->sw + 1;
    long held = (g->left + g->w + g->sw - 1) / g->sw;
    return (ek_max(reach, held) + 2 * EK_VL - 1) / EK_VL * EK_VL;
}

/* n floats; at least a vector of them goes vector by vector, the last one overlapping. */
EK_INLINE void copy_floats(float *to, const float *from, long n) {
    if (n < EK_VL) {
        for (long i = 0; i < n; i++)
            to[i] = from[i];
        return;
    }
    long i = 0;
    for (; i + 2 * EK_VL <= n; i += 2 * EK_VL) {
        vf a = vf_load(from + i), b = vf_load(from + i + EK_VL);
        vf_store(to + i, a), vf_store(to + i + EK_VL, b);
    }
    if (i + EK_VL <= n)
        vf_store(to + i, vf_load(from + i));
    if (n % EK_VL)
        vf_store(to + n - EK_VL, vf_load(from + n - EK_VL));
}

#if EK_VL == 4
#define EVEN 0, 2, 4, 6
#define ODD 1, 3, 5, 7
#elif EK_VL == 8
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define ODD 1, 3, 5, 7, 9, 11, 13, 15
#elif EK_VL == 16
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#endif

/* Columns of a line, apart by the stride's phases. */
EK_INLINE void sort_columns(const plane *p, float *to, const float *line) {
    const ek_window *g = &p->a->win;
    const long sw = p->phases;
    if (sw != 2) {
        for (long i = 0; i < g->w; i++)
            to[(i + g->left) % sw * p->pitch + (i + g->left) / sw] = line[i];
        return;
    }
    float *even = to + g->left % 2 * p->pitch + g->left / 2;
    float *odd = to + (g->left + 1) % 2 * p->pitch + (g->left + 1) / 2;
    long i = 0;
#ifdef EVEN
    for (; i + 2 * EK_VL <= g->w; i += 2 * EK_VL) {
        vf a = vf_load(line + i), b = vf_load(line + i + EK_VL);
        vf_store(even + i / 2, __builtin_shufflevector(a, b, EVEN));
        vf_store(odd + i / 2, __builtin_shufflevector(a, b, ODD));
    }
#endif
    for (; i + 2 <= g->w; i += 2)
        even[i / 2] = line[i], odd[i / 2] = line[i + 1];
    if (i < g->w)
        even[i / 2] = line[i];
}

/* Input row iy into scratch, where its padding is zero already: planes of a call have it at the
 * same places. */
EK_INLINE void copy_line(const plane *p, float *to, const float *image, long iy) {
    const ek_window *g = &p->a->win;
    if (iy < 0 || iy >= g->h)
        memset(to, 0, (size_t)(p->phases * p->pitch) * sizeof *to);
    else if (p->phases == 1)
        copy_floats(to + g->left, image + iy * g->w, g->w);
    else
        sort_columns(p, to, image + iy * g->w);
}

EK_INLINE vf clamped(const plane *p, vf sum) {
#if CLAMP
    return vf_min(vf_max(sum, vf_splat(p->a->low)), vf_splat(p->a->high));
#else
    (void)p;
    return sum;
#endif
}

#if KH
/* A vector of each of `rows` rows of outputs; lines: of the first one's first tap. */
EK_INLINE void some_vectors(const vf *w, const float *lines, long line, long pitch, vf *sum,
                            const int rows) {
    EK_UNROLL for (int r = 0; r < (rows - 1) * SW + KH; r++) {
        EK_UNROLL for (int kx = 0; kx < KW; kx++) {
            vf v = vf_load(lines + r * line + kx % SW * pitch + kx / SW);
            EK_UNROLL for (int o = 0; o < rows; o++) {
                if (r - o * SW >= 0 && r - o * SW < KH)
                    sum[o] = vf_fma(v, w[(r - o * SW) * KW + kx], sum[o]);
            }
        }
    }
}

EK_INLINE void some_rows(const plane *p, const float *lines, float *restrict y, const int rows) {
    const long width = p->a->win.ow, pitch = p->pitch, line = SW * pitch;
    const plane own = *p; /* what stores to y cannot change */
    const vf bias = vf_splat(p->bias);
    vf w[KH * KW], sum[ROWS];
    EK_UNROLL for (int t = 0; t < KH * KW; t++) w[t] = vf_splat(p->weights[t]);
    if (width < EK_VL) {
        float whole[EK_VL];
        EK_UNROLL for (int o = 0; o < rows; o++) sum[o] = bias;
        some_vectors(w, lines, line, pitch, sum, rows);
        EK_UNROLL for (int o = 0; o < rows; o++) {
            vf_store(whole, clamped(&own, sum[o]));
            ek_copy_short(y + o * width, whole, width * (long)sizeof *y);
        }
        return;
    }
    long x = 0;
    for (; x + EK_VL <= width; x += EK_VL) {
        EK_UNROLL for (int o = 0; o < rows; o++) sum[o] = bias;
        some_vectors(w, lines + x, line, pitch, sum, rows);
        EK_UNROLL for (int o = 0; o < rows; o++) vf_store(y + o * width + x, clamped(&own, sum[o]));
    }
    if (x < width) { /* the last vector overlaps the one before it */
        x = width - EK_VL;
        EK_UNROLL for (int o = 0; o < rows; o++) sum[o] = bias;
        some_vectors(w, lines + x, line, pitch, sum, rows);
        EK_UNROLL for (int o = 0; o < rows; o++) vf_store(y + o * width + x, clamped(&own, sum[o]));
    }
}
#else
/* Where the vector after the one at x starts; the last one overlaps the one before it. */
EK_INLINE long next_vector(long x, long width) {
    return x + EK_VL < width ? ek_max(ek_min(x + EK_VL, width - EK_VL), 0) : width;
}

static void one_row(const plane *p, const float *lines, float *y) {
    const ek_window *g = &p->a->win;
    const long line = p->phases * p->pitch;
    for (long x = 0; x < g->ow; x = next_vector(x, g->ow)) {
        vf sum = vf_splat(p->bias);
        for (int ky = 0; ky < g->kh; ky++)
            for (int kx = 0; kx < g->kw; kx++) {
                long at = (long)kx * g->dw;
                vf v = vf_load(lines + (long)ky * g->dh * line + at % g->sw * p->pitch +
                               at / g->sw + x);
                sum = vf_fma(v, vf_splat(p->weights[ky * g->kw + kx]), sum);
            }
        sum = clamped(p, sum);
        if (EK_VL == 1 || g->ow >= EK_VL)
            vf_store(y + x, sum);
        else
            vf_store_n(y + x, sum, g->ow);
    }
}
#endif

/* Tasks: bands of planes. */
void NAME(const void *args, long begin, long end) {
    const ek_planar_args *a = args;
    const ek_window *g = &a->win;
    _Alignas(64) float scratch[EK_PLANAR_SCRATCH];
    plane p = {.a = a, .phases = PHASES, .pitch = pitch_of(g)};
    const long line = p.phases * p.pitch, below = (long)(g->kh - 1) * g->dh + 1;
    const long size = (long)g->h * g->w, taps = (long)g->kh * g->kw;
    memset(scratch, 0, (size_t)(((a->band - 1) * g->sh + below) * line) * sizeof *scratch);
    for (long t = begin; t < end; t++) {
        long at = t / a->bands, first = t % a->bands * a->band;
        long last = ek_min(first + a->band, g->oh), lines = (last - first - 1) * g->sh + below;
        const float *image = a->x + at * size, *from = scratch;
        float *y = a->y + (at * g->oh + first) * g->ow;
        p.weights = a->weights + at % g->c * taps, p.bias = a->bias[at % g->c];
        for (long i = 0; i < lines; i++)
            copy_line(&p, scratch + i * line, image, first * g->sh - g->top + i);
        long oy = first;
#if KH
        for (; oy + ROWS <= last; oy += ROWS, from += ROWS * SW * line, y += ROWS * g->ow)
            some_rows(&p, from, y, ROWS);
        for (; oy < last; oy++, from += SW * line, y += g->ow)
            some_rows(&p, from, y, 1);
#else
        for (; oy < last; oy++, from += g->sh * line, y += g->ow)
            one_row(&p, from, y);
#endif
    }
}
