/* Discrete Fourier transforms of f32 frames, which may overlap.
 *
 * Compile-time parameters: NAME, EK_SIMD, REAL if one side is an even number of real samples, which
 * are then transformed as half as many complex ones (even samples + i · odd ones), and INVERSE.
 * Complex points go through Stockham's steps, which need no reordering: a step of radix r joins
 * points that are 1/r of the length apart and multiplies by twiddles. An inverse transform is a
 * forward one with real and imaginary parts exchanged. */
#include "../kernel.h"

typedef struct {
    long frames;            /* per row of x */
    long step;              /* samples between starts of frames */
    long length;            /* samples per frame, or frequencies; zeros follow */
    long row;               /* samples per row of x */
    long pair;              /* numbers per sample of x: 1, or 2 for complex ones */
    long shown;             /* frequencies, or samples, per frame of y */
    long planar;            /* y: 0 [frame, shown, 2]; 1 [frame, 2, shown]; 2 real [frame, shown] */
    long points;            /* complex points */
    const int32_t *radices; /* [steps + 1], the last 0 */
    const float *twiddles;  /* for each step [radix - 1, 2, points of the step / radix] */
    const float *last;      /* REAL: `scale` times cosines and sines [2, points] */
    const float *window;    /* [length]; not if INVERSE */
    float scale;
    const float *x;
    float *y;
    float *work;   /* [tasks, 4, points] */
    long per_task; /* frames */
    long total;    /* frames of all rows */
} ek_f32_fourier_args;

typedef struct {
    float *re, *im;
} parts;

/* The places of points in a step: r inputs `far` apart give r consecutive outputs of `width`
 * points each. */
typedef struct {
    long count, width, far;
} joint;

#define LOOP_POINTS(q, width)                                                                      \
    _Pragma("clang loop vectorize(assume_safety)") for (long q = 0; q < (width); q++)

/* Point k of a step's results, multiplied by twiddle k of [radix - 1, 2, count]. */
#define STORE(at, r, i, wr, wi) (yr[at] = (r) * (wr) - (i) * (wi), yi[at] = (r) * (wi) + (i) * (wr))

EK_INLINE void join2(const float *restrict xr, const float *restrict xi, float *restrict yr,
                     float *restrict yi, const float *restrict w, joint g, long p, long q) {
    const long from = q + g.width * p, to = q + g.width * 2 * p;
    const float ar = xr[from], ai = xi[from], br = xr[from + g.far], bi = xi[from + g.far];
    yr[to] = ar + br, yi[to] = ai + bi;
    STORE(to + g.width, ar - br, ai - bi, w[p], w[p + g.count]);
}

EK_INLINE void join3(const float *restrict xr, const float *restrict xi, float *restrict yr,
                     float *restrict yi, const float *restrict w, joint g, long p, long q) {
    const long from = q + g.width * p, to = q + g.width * 3 * p, n = g.count;
    const float ar = xr[from], ai = xi[from], br = xr[from + g.far], bi = xi[from + g.far];
    const float cr = xr[from + 2 * g.far], ci = xi[from + 2 * g.far];
    const float sum_r = br + cr, sum_i = bi + ci;
    const float apart_r = 0.8660254f * (br - cr), apart_i = 0.8660254f * (bi - ci);
    const float mid_r = ar - 0.5f * sum_r, mid_i = ai - 0.5f * sum_i;
    yr[to] = ar + sum_r, yi[to] = ai + sum_i;
    STORE(to + g.width, mid_r + apart_i, mid_i - apart_r, w[p], w[p + n]);
    STORE(to + 2 * g.width, mid_r - apart_i, mid_i + apart_r, w[p + 2 * n], w[p + 3 * n]);
}

EK_INLINE void join4(const float *restrict xr, const float *restrict xi, float *restrict yr,
                     float *restrict yi, const float *restrict w, joint g, long p, long q) {
    const long from = q + g.width * p, to = q + g.width * 4 * p, n = g.count;
    const float ar = xr[from], ai = xi[from], br = xr[from + g.far], bi = xi[from + g.far];
    const float cr = xr[from + 2 * g.far], ci = xi[from + 2 * g.far];
    const float dr = xr[from + 3 * g.far], di = xi[from + 3 * g.far];
    const float even_r = ar + cr, even_i = ai + ci, odd_r = br + dr, odd_i = bi + di;
    const float first_r = ar - cr, first_i = ai - ci, second_r = br - dr, second_i = bi - di;
    yr[to] = even_r + odd_r, yi[to] = even_i + odd_i;
    STORE(to + g.width, first_r + second_i, first_i - second_r, w[p], w[p + n]);
    STORE(to + 2 * g.width, even_r - odd_r, even_i - odd_i, w[p + 2 * n], w[p + 3 * n]);
    STORE(to + 3 * g.width, first_r - second_i, first_i + second_r, w[p + 4 * n], w[p + 5 * n]);
}

/* Cosines and sines of a fifth of a turn and of two. */
#define C1 0.30901699f
#define S1 0.95105652f
#define C2 -0.80901699f
#define S2 0.58778525f

EK_INLINE void join5(const float *restrict xr, const float *restrict xi, float *restrict yr,
                     float *restrict yi, const float *restrict w, joint g, long p, long q) {
    const long from = q + g.width * p, to = q + g.width * 5 * p, n = g.count;
    const float ar = xr[from], ai = xi[from], br = xr[from + g.far], bi = xi[from + g.far];
    const float cr = xr[from + 2 * g.far], ci = xi[from + 2 * g.far];
    const float dr = xr[from + 3 * g.far], di = xi[from + 3 * g.far];
    const float er = xr[from + 4 * g.far], ei = xi[from + 4 * g.far];
    const float be_r = br + er, be_i = bi + ei, cd_r = cr + dr, cd_i = ci + di;
    const float b_e_r = br - er, b_e_i = bi - ei, c_d_r = cr - dr, c_d_i = ci - di;
    const float mid1_r = ar + C1 * be_r + C2 * cd_r, mid1_i = ai + C1 * be_i + C2 * cd_i;
    const float mid2_r = ar + C2 * be_r + C1 * cd_r, mid2_i = ai + C2 * be_i + C1 * cd_i;
    const float turn1_r = S1 * b_e_r + S2 * c_d_r, turn1_i = S1 * b_e_i + S2 * c_d_i;
    const float turn2_r = S2 * b_e_r - S1 * c_d_r, turn2_i = S2 * b_e_i - S1 * c_d_i;
    yr[to] = ar + be_r + cd_r, yi[to] = ai + be_i + cd_i;
    STORE(to + g.width, mid1_r + turn1_i, mid1_i - turn1_r, w[p], w[p + n]);
    STORE(to + 2 * g.width, mid2_r + turn2_i, mid2_i - turn2_r, w[p + 2 * n], w[p + 3 * n]);
    STORE(to + 3 * g.width, mid2_r - turn2_i, mid2_i + turn2_r, w[p + 4 * n], w[p + 5 * n]);
    STORE(to + 4 * g.width, mid1_r - turn1_i, mid1_i + turn1_r, w[p + 6 * n], w[p + 7 * n]);
}

/* Vectors run over the joined points, or over the width of each where they have one. */
#define STEP(radix)                                                                                \
    static __attribute__((noinline)) void step##radix(                                             \
        const float *restrict xr, const float *restrict xi, float *restrict yr,                    \
        float *restrict yi, const float *restrict w, joint g) {                                    \
        const joint first = {g.count, 1, g.far};                                                   \
        if (g.width == 1)                                                                          \
            LOOP_POINTS(p, g.count) join##radix(xr, xi, yr, yi, w, first, p, 0);                   \
        else                                                                                       \
            for (long p = 0; p < g.count; p++)                                                     \
                LOOP_POINTS(q, g.width) join##radix(xr, xi, yr, yi, w, g, p, q);                   \
    }
STEP(2)
STEP(3)
STEP(4)
STEP(5)

/* A step of any radix; its roots of unity are [2, radix] behind its twiddles. */
static void step_of_any(const float *restrict xr, const float *restrict xi, float *restrict yr,
                        float *restrict yi, const float *restrict w, joint g, long radix) {
    const float *cosines = w + 2 * (radix - 1) * g.count, *sines = cosines + radix;
    for (long p = 0; p < g.count; p++)
        for (long k = 0; k < radix; k++) {
            float *re = yr + g.width * (radix * p + k), *im = yi + g.width * (radix * p + k);
            memset(re, 0, g.width * sizeof *re), memset(im, 0, g.width * sizeof *im);
            for (long j = 0, turn = 0; j < radix; j++, turn = (turn + k) % radix) {
                const float c = cosines[turn], s = sines[turn];
                const float *a = xr + g.width * p + j * g.far, *b = xi + g.width * p + j * g.far;
                LOOP_POINTS(q, g.width) {
                    re[q] += a[q] * c - b[q] * s;
                    im[q] += a[q] * s + b[q] * c;
                }
            }
            if (k == 0)
                continue;
            const float c = w[2 * (k - 1) * g.count + p], s = w[(2 * k - 1) * g.count + p];
            LOOP_POINTS(q, g.width) {
                const float r = re[q] * c - im[q] * s;
                im[q] = re[q] * s + im[q] * c, re[q] = r;
            }
        }
}

/* Transforms x forward; returns x or y, whichever has the result. */
static parts transform(const ek_f32_fourier_args *g, parts x, parts y) {
    const float *w = g->twiddles;
    joint at = {g->points, 1, 0};
    for (const int32_t *radix = g->radices; *radix; radix++) {
        at.count /= *radix, at.far = g->points / *radix;
        if (*radix == 2)
            step2(x.re, x.im, y.re, y.im, w, at);
        else if (*radix == 3)
            step3(x.re, x.im, y.re, y.im, w, at);
        else if (*radix == 4)
            step4(x.re, x.im, y.re, y.im, w, at);
        else if (*radix == 5)
            step5(x.re, x.im, y.re, y.im, w, at);
        else
            step_of_any(x.re, x.im, y.re, y.im, w, at, *radix);
        w += 2 * (*radix - 1) * at.count + (*radix > 5 ? 2 * *radix : 0);
        at.width *= *radix;
        const parts made = y;
        y = x, x = made;
    }
    return x;
}

#if defined INVERSE && defined REAL
/* Spectrum [points + 1, 2] → half as many points, in exchanged parts; imaginary parts of the first
 * and the last frequency have no effect. */
static void load(const ek_f32_fourier_args *g, const float *restrict x, parts to) {
    const long n = g->points;
    const float *restrict cosines = g->last, *restrict sines = g->last + n;
    to.im[0] = g->scale * (x[0] + x[2 * n]), to.re[0] = g->scale * (x[0] - x[2 * n]);
    for (long k = 1; k < n; k++) {
        const float ar = x[2 * k], ai = x[2 * k + 1];
        const float br = x[2 * (n - k)], bi = x[2 * (n - k) + 1];
        const float dr = ar - br, di = ai + bi;
        to.im[k] = g->scale * (ar + br) - (dr * sines[k] + di * cosines[k]);
        to.re[k] = g->scale * (ai - bi) + (dr * cosines[k] - di * sines[k]);
    }
}

static void store(const ek_f32_fourier_args *g, parts from, float *restrict y) {
    LOOP_POINTS(i, g->points)
    y[2 * i] = from.im[i], y[2 * i + 1] = from.re[i];
}

#elif defined REAL
/* Samples [length] → pairs of them. */
static void load(const ek_f32_fourier_args *g, const float *restrict x, parts to) {
    const float *restrict window = g->window;
    const long pairs = g->length / 2;
    LOOP_POINTS(i, pairs)
    to.re[i] = x[2 * i] * window[2 * i], to.im[i] = x[2 * i + 1] * window[2 * i + 1];
    for (long i = pairs; i < g->points; i++)
        to.re[i] = to.im[i] = 0;
    if (g->length % 2)
        to.re[pairs] = x[2 * pairs] * window[2 * pairs];
}

/* Frequency k combines points k and `points - k`; pitch: from one to the next in y. */
EK_INLINE void separate(const ek_f32_fourier_args *g, parts from, float *restrict re,
                        float *restrict im, long pitch) {
    const long n = g->points;
    const float *restrict zr = from.re, *restrict zi = from.im;
    const float *restrict cosines = g->last, *restrict sines = g->last + n;
    re[0] = zr[0] + zi[0], re[pitch * n] = zr[0] - zi[0];
    im[0] = im[pitch * n] = 0;
    LOOP_POINTS(i, n - 1) {
        const long k = i + 1, m = n - k;
        const float odd_r = zi[k] + zi[m], odd_i = zr[m] - zr[k];
        re[pitch * k] = g->scale * (zr[k] + zr[m]) + (odd_r * cosines[k] + odd_i * sines[k]);
        im[pitch * k] = g->scale * (zi[k] - zi[m]) + (odd_i * cosines[k] - odd_r * sines[k]);
    }
    for (long k = n + 1; k < g->shown; k++) {
        re[pitch * k] = re[pitch * (2 * n - k)];
        im[pitch * k] = -im[pitch * (2 * n - k)];
    }
}

static void store(const ek_f32_fourier_args *g, parts from, float *restrict y) {
    if (g->planar)
        separate(g, from, y, y + g->shown, 1);
    else
        separate(g, from, y, y + 1, 2);
}

#else
/* INVERSE exchanges real and imaginary parts before and after the transform. */
static void load(const ek_f32_fourier_args *g, const float *restrict x, parts to) {
#ifdef INVERSE
    LOOP_POINTS(i, g->length)
    to.im[i] = x[2 * i] * g->scale, to.re[i] = x[2 * i + 1] * g->scale;
#else
    const float *restrict window = g->window;
    LOOP_POINTS(i, g->length) {
        to.re[i] = x[g->pair * i] * window[i];
        to.im[i] = g->pair == 2 ? x[g->pair * i + 1] * window[i] : 0;
    }
#endif
    for (long i = g->length; i < g->points; i++)
        to.re[i] = to.im[i] = 0;
#ifdef INVERSE
    if (g->planar == 2) /* an odd number of real samples: the upper half mirrors the lower one */
        for (long i = g->length; i < g->points; i++)
            to.im[i] = to.im[g->points - i], to.re[i] = -to.re[g->points - i];
#endif
}

static void store(const ek_f32_fourier_args *g, parts from, float *restrict y) {
#ifdef INVERSE
    const float *restrict re = from.im, *restrict im = from.re;
#else
    const float *restrict re = from.re, *restrict im = from.im;
#endif
    if (g->planar) {
        memcpy(y, re, g->shown * sizeof *y);
        if (g->planar == 1)
            memcpy(y + g->shown, im, g->shown * sizeof *y);
        return;
    }
    LOOP_POINTS(i, g->shown)
    y[2 * i] = re[i], y[2 * i + 1] = im[i];
}
#endif

/* Task: `per_task` frames. */
void NAME(const void *args, long begin, long end) {
    const ek_f32_fourier_args *g = args;
    const long out = g->shown * (g->planar == 2 ? 1 : 2);
    for (long t = begin; t < end; t++) {
        float *at = g->work + t * 4 * g->points;
        const parts one = {at, at + g->points}, other = {at + 2 * g->points, at + 3 * g->points};
        const long last = ek_min((t + 1) * g->per_task, g->total);
        for (long f = t * g->per_task; f < last; f++) {
            const long sample = f / g->frames * g->row + f % g->frames * g->step;
            load(g, g->x + sample * g->pair, one);
            store(g, transform(g, one, other), g->y + f * out);
        }
    }
}
