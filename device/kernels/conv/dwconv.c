/* Depthwise convolution, NHWC, vectors along channels.
 *
 * Compile-time parameters: NAME, EK_SIMD, TX (float, int8_t or uint8_t), KH, KW, SW (0: any
 * window, taken from the arguments). With a window known at compile time, TW output pixels are
 * made at once inside the image, so that each pixel and each weight is loaded once for several
 * products. Pixels near the border go through a table of pointers, one per tap. */
#include "dwconv.h"

#define MAX_TAPS 1024 /* the host refuses larger windows */

#ifdef FLOAT_X
typedef vf sum_t;
typedef float weight_t;
EK_INLINE sum_t weight_at(const float *p) {
    return vf_load(p);
}
EK_INLINE sum_t bias_at(const ek_dwconv_args *a, long c) {
    return vf_load((const float *)a->bias + c);
}
EK_INLINE sum_t x_at(const TX *p) {
    return vf_load(p);
}
EK_INLINE sum_t x_at_n(const TX *p, long n) {
    return vf_load_n(p, n);
}
EK_INLINE sum_t multiply_add(sum_t acc, sum_t x, sum_t w) {
    return vf_fma(x, w, acc);
}
#else
typedef vi sum_t;
typedef int16_t weight_t;
EK_INLINE sum_t weight_at(const int16_t *p) {
    vs v;
    memcpy(&v, p, sizeof v);
    return vcast(v, vi);
}
EK_INLINE sum_t bias_at(const ek_dwconv_args *a, long c) {
    return vi_load((const int32_t *)a->bias + c);
}
EK_INLINE sum_t x_at(const TX *p) {
    return (TX)-1 > 0 ? vi_from_u8((const uint8_t *)p) : vi_from_s8((const int8_t *)p);
}
EK_INLINE sum_t x_at_n(const TX *p, long n) {
    return (TX)-1 > 0 ? vi_from_u8_n((const uint8_t *)p, n) : vi_from_s8_n((const int8_t *)p, n);
}
EK_INLINE sum_t multiply_add(sum_t acc, sum_t x, sum_t w) {
    return acc + x * w;
}
#endif

/* y[0 .. n) = clamp(sum), requantized for 8-bit types; n >= EK_VL stores a whole vector. */
#ifdef FLOAT_X
typedef int output; /* nothing depends on the channel */
EK_INLINE output output_at(const ek_dwconv_args *a, long c) {
    (void)a, (void)c;
    return 0;
}
EK_INLINE void finish(const ek_dwconv_args *a, const output *o, sum_t sum, TX *y, long n) {
    (void)o;
    vf v = vf_min(vf_max(sum, vf_splat(a->low_f32)), vf_splat(a->high_f32));
    if (EK_VL == 1 || n >= EK_VL)
        vf_store(y, v);
    else
        vf_store_n(y, v, n);
}
#else
typedef vi_factor output;
EK_INLINE output output_at(const ek_dwconv_args *a, long c) {
    return vi_factor_at(a->multiplier, a->left, a->right, c);
}
EK_INLINE void finish(const ek_dwconv_args *a, const output *o, sum_t sum, TX *y, long n) {
    vi v = vi_requantize(sum, *o) + a->y_zero;
    v = vi_min(vi_max(v, vi_splat(a->low)), vi_splat(a->high));
    if (EK_VL == 1 || n >= EK_VL)
        vi_to_bytes(y, v);
    else
        vi_to_bytes_n(y, v, n);
}
#endif

/* Where the block after the one at c starts. The last block of many channels overlaps the one
 * before it instead of being partial; fewer channels than a vector are one partial block. */
EK_INLINE long next_block(long c, long channels) {
    return c + EK_VL < channels ? ek_max(ek_min(c + EK_VL, channels - EK_VL), 0) : channels;
}

/* One output pixel from the pointers of its taps. */
static void pixel(const ek_dwconv_args *a, const TX *const *tap, int taps, TX *y) {
    long channels = a->win.c;
#if KH
    taps = KH * KW; /* what it is, but known to the compiler */
#endif
    for (long c = 0; c < channels; c = next_block(c, channels)) {
        const weight_t *w = (const weight_t *)a->weights + c;
        sum_t acc = bias_at(a, c);
        if (EK_VL == 1 || channels >= EK_VL)
            for (int t = 0; t < taps; t++)
                acc = multiply_add(acc, x_at(tap[t] + c), weight_at(w + t * a->c_padded));
        else
            for (int t = 0; t < taps; t++)
                acc = multiply_add(acc, x_at_n(tap[t], channels), weight_at(w + t * a->c_padded));
        const output o = output_at(a, c);
        finish(a, &o, acc, y + c, channels);
    }
}

#if KH
#define TW 4
#define SPAN ((TW - 1) * SW + KW)

EK_INLINE void tile_at(const ek_dwconv_args *a, const TX *const *line, const long *pitch, TX *y,
                       long c, const int whole) {
    const long n = a->win.c;
    const weight_t *w = (const weight_t *)a->weights + c;
    sum_t acc[TW];
    EK_UNROLL
    for (int o = 0; o < TW; o++)
        acc[o] = bias_at(a, c);
    EK_UNROLL
    for (int ky = 0; ky < KH; ky++) {
        sum_t wv[KW];
        EK_UNROLL
        for (int kx = 0; kx < KW; kx++)
            wv[kx] = weight_at(w + (ky * KW + kx) * a->c_padded);
        EK_UNROLL
        for (int s = 0; s < SPAN; s++) {
            const TX *p = line[ky] + s * pitch[ky] + c;
            sum_t x = whole ? x_at(p) : x_at_n(p, n);
            EK_UNROLL
            for (int o = 0; o < TW; o++)
                if (s - o * SW >= 0 && s - o * SW < KW)
                    acc[o] = multiply_add(acc[o], x, wv[s - o * SW]);
        }
    }
    const output out = output_at(a, c);
    EK_UNROLL
    for (int o = 0; o < TW; o++)
        finish(a, &out, acc[o], y + o * n + c, whole ? EK_VL : n);
}

/* TW output pixels whose columns all lie inside the image; pitch 0 repeats a border row. */
static void tile(const ek_dwconv_args *a, const TX *const *line, const long *pitch, TX *y) {
    if (EK_VL > 1 && a->win.c < EK_VL)
        tile_at(a, line, pitch, y, 0, 0);
    else
        for (long c = 0; c < a->win.c; c = next_block(c, a->win.c))
            tile_at(a, line, pitch, y, c, 1);
}
#endif

/* Tasks: rows of the output. */
void NAME(const void *args, long begin, long end) {
    const ek_dwconv_args *a = args;
    const ek_window *g = &a->win;
    const TX *border = (const TX *)a->border, *tap[MAX_TAPS];
    for (long t = begin; t < end; t++) {
        const TX *image = (const TX *)a->x + t / g->oh * g->h * g->w * g->c;
        TX *y = (TX *)a->y + t * g->ow * g->c;
        long iy = t % g->oh * g->sh - g->top;
        for (long ox = 0; ox < g->ow;) {
            long ix = ox * g->sw - g->left;
#if KH
            if (ix >= 0 && ox + TW <= g->ow && ix + SPAN <= g->w) {
                const TX *line[KH];
                long pitch[KH];
                for (int ky = 0; ky < KH; ky++) {
                    int inside = iy + ky >= 0 && iy + ky < g->h;
                    line[ky] = inside ? image + ((iy + ky) * g->w + ix) * g->c : border;
                    pitch[ky] = inside ? g->c : 0;
                }
                tile(a, line, pitch, y + ox * g->c);
                ox += TW;
                continue;
            }
#endif
            int taps = 0;
            for (int ky = 0; ky < g->kh; ky++)
                for (int kx = 0; kx < g->kw; kx++) {
                    long yy = iy + ky * g->dh, xx = ix + kx * g->dw;
                    int inside = yy >= 0 && yy < g->h && xx >= 0 && xx < g->w;
                    tap[taps++] = inside ? image + (yy * g->w + xx) * g->c : border;
                }
            pixel(a, tap, taps, y + ox * g->c);
            ox++;
        }
    }
}
