/* y = scale * (q - zero) for s8 values q whose scale and zero point derive from the row's range,
 * extended to include 0: the asymmetric input quantization of TFLite's dynamic-range products.
 *
 * Compile-time parameters: NAME, EK_SIMD. Task: one row. */
#include "../kernel.h"
#include "range.h"

typedef struct {
    long n; /* values per row */
    const float *x;
    float *y;
} ek_fake_quantize_args;

/* like std::round: half away from zero */
static double rounded(double x) {
    return x < 0 ? -(double)(long)(0.5 - x) : (double)(long)(x + 0.5);
}

/* The steps of a row, and its least and greatest number of them. */
typedef struct {
    vf scale, inverse;
    vi least, most;
} row_steps;

EK_INLINE vf fake(vf x, const row_steps *s) {
    const vf scaled = vf_min(vf_max(x * s->inverse, vf_splat(-512.0f)), vf_splat(512.0f));
    return vcast(vi_min(vi_max(vi_nearest(scaled), s->least), s->most), vf) * s->scale;
}

static void row(const float *x, float *y, long n) {
    float low, high;
    range_of(x, n, &low, &high);
    if (low == high) {
        memset(y, 0, (size_t)n * sizeof *y);
        return;
    }
    /* LiteRT's precision: the span is rounded to f32, the zero point to f64, values to f32. */
    const double step = (double)(high - low) / 255.0;
    const double below = low / step, above = high / step;
    const double from = 128.0 - below < 127.0 + above ? -128.0 - below : 127.0 - above;
    double nearest = rounded(from);
    nearest = nearest < -128.0 ? -128.0 : nearest > 127.0 ? 127.0 : nearest;
    const float scale = (float)step;
    const row_steps s = {vf_splat(scale), vf_splat(scale > 0.0f ? 1.0f / scale : 0.0f),
                         vi_splat(-128 - (int)nearest), vi_splat(127 - (int)nearest)};
    long i = 0;
    for (; i + EK_VL <= n; i += EK_VL)
        vf_store(y + i, fake(vf_load(x + i), &s));
    if (i < n)
        vf_store_n(y + i, fake(vf_load_n(x + i, n - i), &s), n - i);
}

void NAME(const void *args, long begin, long end) {
    const ek_fake_quantize_args *g = args;
    for (long r = begin; r < end; r++)
        row(g->x + r * g->n, g->y + r * g->n, g->n);
}
