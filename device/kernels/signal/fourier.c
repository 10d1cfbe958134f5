/* Fixed-point Fourier transforms of rows.
 *
 * Compile-time parameters: NAME, EK_SIMD, TX (int16_t or int32_t), TW (twice as wide), BITS
 * (fraction bits), and INVERSE for the transform from frequencies to samples. Values are fractions;
 * each step divides its inputs by the number of terms it adds. During the steps, real and imaginary
 * parts are in separate arrays. */
#include "../kernel.h"

typedef struct {
    long half;            /* complex points: half the number of real ones */
    long length;          /* values per row of x */
    const int32_t *place; /* [half]: where a pair of samples goes before the first step */
    const void *twiddles; /* for each step [radix - 1, 2, length], consecutively */
    const void *last;     /* [2, half / 2] */
    const void *x;
    void *y;
    void *work; /* [rows, 2, half] */
} ek_fourier_args;

#define LARGEST (((TW)1 << BITS) - 1)
#define ADD(a, b) ((TX)((uint32_t)(a) + (uint32_t)(b)))
#define SUB(a, b) ((TX)((uint32_t)(a) - (uint32_t)(b)))
#define HALF(sum) ((TX)((int32_t)(sum) >> 1))

static inline TX rounded(TW product) {
    return (TX)((product + ((TW)1 << (BITS - 1))) >> BITS);
}

static inline TX share(TX x, int terms) {
    return rounded(x * (LARGEST / terms));
}

static inline TX real(TX re, TX im, TX wr, TX wi) {
    return rounded((TW)re * wr - (TW)im * wi);
}

static inline TX imaginary(TX re, TX im, TX wr, TX wi) {
    return rounded((TW)re * wi + (TW)im * wr);
}

/* Radix-2 step: joins two adjacent transforms of n points; w: [2, n]. */
static void radix2(TX *restrict re, TX *restrict im, const TX *restrict w, long n) {
    EK_VECTOR_LOOP
    for (long k = 0; k < n; k++) {
        const TX ar = share(re[k], 2), ai = share(im[k], 2);
        const TX br = share(re[k + n], 2), bi = share(im[k + n], 2);
        const TX cr = real(br, bi, w[k], w[k + n]), ci = imaginary(br, bi, w[k], w[k + n]);
        re[k] = ADD(ar, cr), im[k] = ADD(ai, ci);
        re[k + n] = SUB(ar, cr), im[k + n] = SUB(ai, ci);
    }
}

/* Radix-4 step; w: [3, 2, n]. */
static void radix4(TX *restrict re, TX *restrict im, const TX *restrict w, long n) {
    EK_VECTOR_LOOP
    for (long k = 0; k < n; k++) {
        const TX ar = share(re[k], 4), ai = share(im[k], 4);
        const TX br = share(re[k + n], 4), bi = share(im[k + n], 4);
        const TX cr = share(re[k + 2 * n], 4), ci = share(im[k + 2 * n], 4);
        const TX dr = share(re[k + 3 * n], 4), di = share(im[k + 3 * n], 4);
        const TX *u = w + k, *v = u + 2 * n, *z = v + 2 * n;
        const TX er = real(br, bi, u[0], u[n]), ei = imaginary(br, bi, u[0], u[n]);
        const TX fr = real(cr, ci, v[0], v[n]), fi = imaginary(cr, ci, v[0], v[n]);
        const TX gr = real(dr, di, z[0], z[n]), gi = imaginary(dr, di, z[0], z[n]);
        const TX first_r = ADD(ar, fr), first_i = ADD(ai, fi);
        const TX rest_r = SUB(ar, fr), rest_i = SUB(ai, fi);
        const TX sum_r = ADD(er, gr), sum_i = ADD(ei, gi);
        const TX apart_r = SUB(er, gr), apart_i = SUB(ei, gi);
        re[k] = ADD(first_r, sum_r), im[k] = ADD(first_i, sum_i);
        re[k + 2 * n] = SUB(first_r, sum_r), im[k + 2 * n] = SUB(first_i, sum_i);
#ifdef INVERSE
        const long rotated = k + 3 * n, other = k + n;
#else
        const long rotated = k + n, other = k + 3 * n;
#endif
        re[rotated] = ADD(rest_r, apart_i), im[rotated] = SUB(rest_i, apart_r);
        re[other] = SUB(rest_r, apart_i), im[other] = ADD(rest_i, apart_r);
    }
}

static void steps(TX *re, TX *im, const TX *w, long half) {
    /* Radix 4 from the last step backward; an odd power of two leaves a radix-2 step for the
     * first. */
    long n = 1;
    if (__builtin_ctzl(half) % 2) {
        for (long at = 0; at < half; at += 2)
            radix2(re + at, im + at, w, 1);
        n = 2, w += 2;
    }
    for (; n < half; w += 6 * n, n *= 4)
        for (long at = 0; at < half; at += 4 * n)
            radix4(re + at, im + at, w, n);
}

typedef struct {
    TX sum_r, sum_i, rotated_r, rotated_i;
} mixed;

/* Combines frequency k and the conjugate of its mirror image half - k. */
static inline mixed mix(TX kr, TX ki, TX mr, TX mi, TX wr, TX wi) {
    const TX ar = share(kr, 2), ai = share(ki, 2);
    const TX br = share(mr, 2), bi = share(SUB(0, mi), 2);
    const TX dr = SUB(ar, br), di = SUB(ai, bi);
    return (mixed){ADD(ar, br), ADD(ai, bi), real(dr, di, wr, wi), imaginary(dr, di, wr, wi)};
}

#ifdef INVERSE
static void transform(const ek_fourier_args *g, const TX *x, TX *y, TX *re, TX *im) {
    const long half = g->half;
    const TX *last = g->last;
    re[0] = share(ADD(x[0], x[2 * half]), 2), im[0] = share(SUB(x[0], x[2 * half]), 2);
    for (long k = 1; k <= half / 2; k++) {
        const TX *a = x + 2 * k, *b = x + 2 * (half - k);
        const mixed m = mix(a[0], a[1], b[0], b[1], last[k - 1], last[k - 1 + half / 2]);
        const long low = g->place[k], high = g->place[half - k];
        re[low] = ADD(m.sum_r, m.rotated_r), im[low] = ADD(m.sum_i, m.rotated_i);
        re[high] = SUB(m.sum_r, m.rotated_r), im[high] = SUB(m.rotated_i, m.sum_i);
    }
    steps(re, im, g->twiddles, half);
    for (long i = 0; i < half; i++)
        y[2 * i] = re[i], y[2 * i + 1] = im[i];
}
#else
static void transform(const ek_fourier_args *g, const TX *x, TX *y, TX *re, TX *im) {
    const long half = g->half;
    const TX *last = g->last;
    for (long i = 0; i < half; i++) {
        const long at = g->place[i];
        re[at] = 2 * i < g->length ? x[2 * i] : 0;
        im[at] = 2 * i + 1 < g->length ? x[2 * i + 1] : 0;
    }
    steps(re, im, g->twiddles, half);
    const TX first = share(re[0], 2), second = share(im[0], 2);
    y[0] = ADD(first, second), y[2 * half] = SUB(first, second);
    y[1] = y[2 * half + 1] = 0;
    for (long k = 1; k <= half / 2; k++) {
        const long high = half - k;
        const mixed m = mix(re[k], im[k], re[high], im[high], last[k - 1], last[k - 1 + half / 2]);
        y[2 * k] = HALF((uint32_t)m.sum_r + (uint32_t)m.rotated_r);
        y[2 * k + 1] = HALF((uint32_t)m.sum_i + (uint32_t)m.rotated_i);
        y[2 * high] = HALF((uint32_t)m.sum_r - (uint32_t)m.rotated_r);
        y[2 * high + 1] = HALF((uint32_t)m.rotated_i - (uint32_t)m.sum_i);
    }
}
#endif

/* Task: one row. */
void NAME(const void *args, long begin, long end) {
    const ek_fourier_args *g = args;
    const long pairs = 2 * g->half + 2;
#ifdef INVERSE
    const long out = 2 * g->half;
    (void)pairs;
#else
    const long out = pairs;
#endif
    for (long t = begin; t < end; t++) {
        TX *re = (TX *)g->work + t * 2 * g->half;
        transform(g, (const TX *)g->x + t * g->length, (TX *)g->y + t * out, re, re + g->half);
    }
}
