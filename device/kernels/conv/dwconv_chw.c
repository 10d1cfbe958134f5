/* Depthwise convolution, channels first, vectorized along rows.
 *
 * Compile-time parameters: NAME, EK_SIMD, KH, KW, SW (0: any window, taken from the arguments),
 * CLAMP (0: low and high are infinite). The input rows of a band are copied to scratch with their
 * padding and their columns deinterleaved by stride phase, so that every tap of consecutive outputs
 * is one contiguous load. Several output rows are computed at once and share each load. */
#include "dwconv_chw_taps.h"

#define ROWS 4
#if KH
#define PHASES SW
#else
#define PHASES g->sw
#endif

typedef struct {
    const ek_dwconv_chw_args *a;
    const float *weights;
    float *held, bias;
    long phases, pitch; /* phases per copied line, and floats of each */
} plane;

static long pitch_of(const ek_window *g) {
    long reach = g->ow + (long)(g->kw - 1) * g->dw / g->sw + 1;
    long held = (g->left + g->w + g->sw - 1) / g->sw;
    return (ek_max(reach, held) + 2 * EK_VL - 1) / EK_VL * EK_VL;
}

/* Copies `count` lines of `width` floats, `pitch` apart in scratch. The space after a line is
 * padding and may be overwritten with zeros. */
EK_INLINE void copy_lines(float *to, long pitch, const float *from, long width, long count) {
    for (; count > 0; count--, to += pitch, from += width) {
        if (width < EK_VL) {
#ifdef EK_OWN_PARTIAL
            vf_store(to, vf_load_n(from, width));
#else
            ek_copy_short(to, from, width * (long)sizeof *to);
#endif
            continue;
        }
        long i = 0;
        for (; i + 2 * EK_VL <= width; i += 2 * EK_VL) {
            vf a = vf_load(from + i), b = vf_load(from + i + EK_VL);
            vf_store(to + i, a), vf_store(to + i + EK_VL, b);
        }
        if (i + EK_VL <= width)
            vf_store(to + i, vf_load(from + i)), i += EK_VL;
        if (i < width) /* the last vector overlaps the previous one */
            vf_store(to + width - EK_VL, vf_load(from + width - EK_VL));
    }
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

/* Deinterleaves a line's columns into the stride's phases. */
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
    typedef float f32x4 __attribute__((vector_size(16)));
    for (; i + 8 <= g->w; i += 8) {
        f32x4 a, b;
        memcpy(&a, line + i, sizeof a), memcpy(&b, line + i + 4, sizeof b);
        f32x4 first = __builtin_shufflevector(a, b, 0, 2, 4, 6);
        f32x4 second = __builtin_shufflevector(a, b, 1, 3, 5, 7);
        memcpy(even + i / 2, &first, sizeof first), memcpy(odd + i / 2, &second, sizeof second);
    }
    for (; i + 2 <= g->w; i += 2)
        even[i / 2] = line[i], odd[i / 2] = line[i + 1];
    if (i < g->w)
        even[i / 2] = line[i];
}

EK_INLINE vf clamped(const plane *p, vf sum) {
#if CLAMP
    return vf_clamp(sum, vf_splat(p->a->low), vf_splat(p->a->high));
#else
    (void)p;
    return sum;
#endif
}

/* Stores less than a vector. */
EK_INLINE void store_part(float *y, vf v, long n) {
#ifdef EK_OWN_PARTIAL
    vf_store_n(y, v, n);
#else
    float lanes[EK_VL];
    vf_store(lanes, v);
    ek_copy_short(y, lanes, n * (long)sizeof *y);
#endif
}

#if KH
/* Computes one vector of each of `rows` output rows; lines: address of the first row's first
 * tap. */
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

EK_INLINE void some_rows(const plane *p, const vf *w, vf bias, const float *lines,
                         float *restrict y, const int rows) {
    const long width = p->a->win.ow, pitch = p->pitch, line = SW * pitch;
    vf sum[ROWS];
    if (width < EK_VL) {
        EK_UNROLL for (int o = 0; o < rows; o++) sum[o] = bias;
        some_vectors(w, lines, line, pitch, sum, rows);
        EK_UNROLL for (int o = 0; o < rows; o++)
            store_part(y + o * width, clamped(p, sum[o]), width);
        return;
    }
    long x = 0;
    for (; x + EK_VL <= width; x += EK_VL) {
        EK_UNROLL for (int o = 0; o < rows; o++) sum[o] = bias;
        some_vectors(w, lines + x, line, pitch, sum, rows);
        EK_UNROLL for (int o = 0; o < rows; o++) vf_store(y + o * width + x, clamped(p, sum[o]));
    }
    if (x < width) { /* the last vector overlaps the previous one */
        x = width - EK_VL;
        EK_UNROLL for (int o = 0; o < rows; o++) sum[o] = bias;
        some_vectors(w, lines + x, line, pitch, sum, rows);
        EK_UNROLL for (int o = 0; o < rows; o++) vf_store(y + o * width + x, clamped(p, sum[o]));
    }
}

EK_INLINE void make_rows(const plane *p, const float *from, float *y, long rows) {
    const plane own = *p; /* a copy, because stores to y might alias it */
    const long width = p->a->win.ow, line = SW * p->pitch;
    const vf bias = vf_splat(p->bias);
    vf w[KH * KW];
    EK_UNROLL for (int t = 0; t < KH * KW; t++) w[t] = vf_splat(p->weights[t]);
    for (; rows >= ROWS; rows -= ROWS, from += ROWS * SW * line, y += ROWS * width)
        some_rows(&own, w, bias, from, y, ROWS);
    for (; rows >= 2; rows -= 2, from += 2 * SW * line, y += 2 * width)
        some_rows(&own, w, bias, from, y, 2);
    if (rows)
        some_rows(&own, w, bias, from, y, 1);
}
#else
/* Start of the vector after the one at x; the last one overlaps its predecessor. */
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

EK_INLINE void make_rows(const plane *p, const float *from, float *y, long rows) {
    const ek_window *g = &p->a->win;
    for (; rows > 0; rows--, from += g->sh * p->phases * p->pitch, y += g->ow)
        one_row(p, from, y);
}
#endif

/* A task's band: plane, channel and output rows. */
typedef struct {
    long plane, channel, first, last;
} band;

EK_INLINE band band_at(const ek_dwconv_chw_args *a, long task) {
    long first = task % a->bands * a->band, plane = task / a->bands;
    return (band){plane, plane % a->win.c, first, ek_min(first + a->band, a->win.oh)};
}

EK_INLINE band next_band(const ek_dwconv_chw_args *a, band b) {
    if (b.last < a->win.oh)
        return (band){b.plane, b.channel, b.last, ek_min(b.last + a->band, a->win.oh)};
    return (band){b.plane + 1, b.channel + 1 < a->win.c ? b.channel + 1 : 0, 0,
                  ek_min(a->band, a->win.oh)};
}

/* Copies a band's input rows to scratch. Its padding is already zero: within a call it is in the
 * same place for all planes, except for rows above and below if a plane has several bands. */
EK_INLINE void copy_band(const plane *p, band b, float *to) {
    const ek_window *g = &p->a->win;
    const long line = p->phases * p->pitch, top = b.first * g->sh - g->top;
    const long lines = (b.last - b.first - 1) * g->sh + (long)(g->kh - 1) * g->dh + 1;
    const long begin = ek_min(ek_max(-top, 0), lines),
               end = ek_max(ek_min(g->h - top, lines), begin);
    const float *from = p->a->x + (b.plane * g->h + top + begin) * g->w;
    if (p->a->bands > 1 && begin > 0)
        memset(to, 0, (size_t)(begin * line) * sizeof *to);
    if (p->a->bands > 1 && end < lines)
        memset(to + end * line, 0, (size_t)((lines - end) * line) * sizeof *to);
    if (p->phases == 1)
        copy_lines(to + begin * line + g->left, line, from, g->w, end - begin);
    else
        for (long i = begin; i < end; i++, from += g->w)
            sort_columns(p, to + i * line, from);
}

EK_INLINE void make_band(plane *p, band b, const float *from) {
    const ek_window *g = &p->a->win;
    p->weights = taps_of(p->a, b.channel, (long)g->kh * g->kw, p->held);
    p->bias = p->a->bias[b.channel];
    make_rows(p, from, p->a->y + (b.plane * g->oh + b.first) * g->ow, b.last - b.first);
}

/* Task: one band of a plane. Each band is copied while the previous one is computed, so that its
 * stores have reached the cache before they are read at other offsets. */
void NAME(const void *args, long begin, long end) {
    const ek_dwconv_chw_args *a = args;
    const ek_window *g = &a->win;
    _Alignas(64) float scratch[2][EK_DWCONV_CHW_SCRATCH];
    float held[EK_MOST_TAPS + EK_VL];
    plane p = {.a = a, .held = held, .phases = PHASES, .pitch = pitch_of(g)};
    const long below = (long)(g->kh - 1) * g->dh + 1;
    const size_t used = (size_t)(((a->band - 1) * g->sh + below) * p.phases * p.pitch);
    for (int i = 0; i < 2 && i < end - begin; i++)
        memset(scratch[i], 0, used * sizeof **scratch);
    band now = band_at(a, begin);
    copy_band(&p, now, scratch[0]);
    for (long t = begin; t < end; t++) {
        band next = next_band(a, now);
        if (t + 1 < end)
            copy_band(&p, next, scratch[(t + 1 - begin) % 2]);
        make_band(&p, now, scratch[(t - begin) % 2]);
        now = next;
    }
}
