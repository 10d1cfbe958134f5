/* Depthwise convolution, channel-major, vectors along a row.
 *
 * Compile-time parameters: NAME, EK_SIMD, KH, KW, SW (0: any window, taken from the arguments).
 * The input rows of a band are copied to scratch with their padding, columns sorted by what the
 * stride leaves of them, so that every tap of consecutive outputs is one plain load. Several rows
 * of outputs are made at once: each load serves all of them. */
#include "planar.h"

#define ROWS 4
#define MAX_TAPS 1024 /* the host refuses larger windows */

typedef struct {
    const ek_planar_args *a;
    const float *weights;
    float bias;
    float *scratch;
    long phases, pitch; /* rows of a copied line, and floats of each */
} plane;

static long pitch_of(const ek_window *g) {
    long reach = g->ow + (long)(g->kw - 1) * g->dw / g->sw + 1;
    long held = (g->left + g->w + g->sw - 1) / g->sw;
    return (ek_max(reach, held) + 2 * EK_VL - 1) / EK_VL * EK_VL;
}

/* n floats, as whole vectors, none beyond the ends where n >= EK_VL. */
EK_INLINE void copy_floats(float *to, const float *from, long n) {
    if (n < EK_VL) {
        for (long i = 0; i < n; i++)
            to[i] = from[i];
        return;
    }
    for (long i = 0; i + EK_VL <= n; i += EK_VL)
        vf_store(to + i, vf_load(from + i));
    if (n % EK_VL)
        vf_store(to + n - EK_VL, vf_load(from + n - EK_VL));
}

EK_INLINE void zero_floats(float *to, long n) {
    for (long i = 0; i < n; i += EK_VL)
        vf_store(to + i, vf_splat(0));
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
    long i = 0;
#ifdef EVEN
    if (sw == 2) {
        float *even = to + g->left % 2 * p->pitch + g->left / 2;
        float *odd = to + (g->left + 1) % 2 * p->pitch + (g->left + 1) / 2;
        for (; i + 2 * EK_VL <= g->w; i += 2 * EK_VL) {
            vf a = vf_load(line + i), b = vf_load(line + i + EK_VL);
            vf_store(even + i / 2, __builtin_shufflevector(a, b, EVEN));
            vf_store(odd + i / 2, __builtin_shufflevector(a, b, ODD));
        }
    }
#endif
    for (; i < g->w; i++) {
        long at = i + g->left;
        to[at % sw * p->pitch + at / sw] = line[i];
    }
}

/* Input row iy, padded, into scratch. */
EK_INLINE void copy_line(const plane *p, float *to, const float *image, long iy) {
    const ek_window *g = &p->a->win;
    if (iy < 0 || iy >= g->h) {
        zero_floats(to, p->phases * p->pitch);
        return;
    }
    const float *line = image + iy * g->w;
    if (p->phases == 1) {
        zero_floats(to, g->left);
        copy_floats(to + g->left, line, g->w);
        for (long i = g->left + g->w; i + EK_VL <= p->pitch; i += EK_VL)
            vf_store(to + i, vf_splat(0));
    } else {
        zero_floats(to, p->phases * p->pitch);
        sort_columns(p, to, line);
    }
}

EK_INLINE void put(const plane *p, float *y, vf sum, long n) {
    vf v = vf_min(vf_max(sum, vf_splat(p->a->low)), vf_splat(p->a->high));
    if (EK_VL == 1 || n >= EK_VL)
        vf_store(y, v);
    else
        vf_store_n(y, v, n);
}

/* Where the vector after the one at x starts: the last one overlaps the one before it. */
EK_INLINE long next_vector(long x, long width) {
    return x + EK_VL < width ? ek_max(ek_min(x + EK_VL, width - EK_VL), 0) : width;
}

#if KH
/* `rows` rows of outputs; lines: of the first one's first tap. */
EK_INLINE void some_rows(const plane *p, const float *lines, float *y, const int rows) {
    const ek_window *g = &p->a->win;
    const long line = p->phases * p->pitch;
    vf w[KH * KW];
    EK_UNROLL for (int t = 0; t < KH * KW; t++) w[t] = vf_splat(p->weights[t]);
    for (long x = 0; x < g->ow; x = next_vector(x, g->ow)) {
        vf sum[ROWS];
        EK_UNROLL for (int o = 0; o < rows; o++) sum[o] = vf_splat(p->bias);
        EK_UNROLL for (int r = 0; r < (rows - 1) * SW + KH; r++) {
            EK_UNROLL for (int kx = 0; kx < KW; kx++) {
                vf v = vf_load(lines + r * line + kx % SW * p->pitch + kx / SW + x);
                EK_UNROLL for (int o = 0; o < rows; o++) {
                    if (r - o * SW >= 0 && r - o * SW < KH)
                        sum[o] = vf_fma(v, w[(r - o * SW) * KW + kx], sum[o]);
                }
            }
        }
        EK_UNROLL for (int o = 0; o < rows; o++) put(p, y + o * g->ow + x, sum[o], g->ow);
    }
}
#else
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
        put(p, y + x, sum, g->ow);
    }
}
#endif

/* Tasks: bands of planes. */
void NAME(const void *args, long begin, long end) {
    const ek_planar_args *a = args;
    const ek_window *g = &a->win;
    _Alignas(64) float scratch[EK_PLANAR_SCRATCH];
    plane p = {.a = a, .scratch = scratch, .phases = g->sw, .pitch = pitch_of(g)};
    for (long t = begin; t < end; t++) {
        long at = t / a->bands, first = t % a->bands * a->band;
        long last = ek_min(first + a->band, g->oh), taps = (long)g->kh * g->kw;
        const float *image = a->x + at * g->h * g->w;
        float *y = a->y + (at * g->oh + first) * g->ow;
        long lines = (last - first - 1) * g->sh + (long)(g->kh - 1) * g->dh + 1;
        const long line = p.phases * p.pitch;
        p.weights = a->weights + at % g->c * taps, p.bias = a->bias[at % g->c];
        for (long i = 0; i < lines; i++)
            copy_line(&p, scratch + i * line, image, first * g->sh - g->top + i);
        const float *from = scratch;
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
