/* Depthwise convolution with stride 1, channels first, for output rows as wide as the input's.
 *
 * Compile-time parameters: NAME, EK_SIMD (of 4, 8 or 16 lanes), KH, KW (odd; the window's middle
 * column is the output's), CLAMP (0: low and high are infinite). Vectors run along rows and are
 * read in place; rows of padding read a zero line, columns of padding are shifted into a row's
 * first and last vector. Several output rows are computed at once and share each load. */
#include "../touch.h"
#include "dwconv_chw_taps.h"

#define ROWS EK_DWCONV_CHW_ROWS
#define INPUT_ROWS(rows) ((rows) - 1 + KH) /* rows of x read for `rows` rows of y */
#define SIDE (KW / 2)
#define LINE 16 /* floats per cache line */

/* Prefetch the next rows' lines while a row is computed, or all at once on RISC-V. In simulated
 * time on the A53, the pruned face detector takes 0.736 of its dense twin's time with spread
 * prefetches and 0.780 with all at once; on the X60, 0.765 and 0.725. */
#ifdef __riscv
#define AT_ONCE 1
#else
#define AT_ONCE 0
#endif

#if EK_VL == 4
#define LANES(from) from, from + 1, from + 2, from + 3
#elif EK_VL == 8
#define LANES(from) from, from + 1, from + 2, from + 3, from + 4, from + 5, from + 6, from + 7
#else
#define LANES(from)                                                                                \
    from, from + 1, from + 2, from + 3, from + 4, from + 5, from + 6, from + 7, from + 8,          \
        from + 9, from + 10, from + 11, from + 12, from + 13, from + 14, from + 15
#endif

static const float zeros[EK_DWCONV_CHW_WIDTH];

/* Copies, because stores to y might alias the originals. */
typedef struct {
    const float *line[INPUT_ROWS(ROWS)];
    long width;
    vf bias, low, high, tap[KH * KW];
} group;

/* The vector `by` columns to the right of x; `left`, `right`: whether the row continues there. */
EK_INLINE vf shifted(const float *x, const int by, const int left, const int right) {
    const vf none = {0};
    if (!left && by == -1)
        return __builtin_shufflevector(none, vf_load(x), LANES((EK_VL - 1)));
    if (!left && by == -2)
        return __builtin_shufflevector(none, vf_load(x), LANES((EK_VL - 2)));
    if (!right && by == 1)
        return __builtin_shufflevector(vf_load(x), none, LANES(1));
    if (!right && by == 2)
        return __builtin_shufflevector(vf_load(x), none, LANES(2));
    return vf_load(x + by);
}

/* One vector of each of `rows` rows, starting at column `at`. */
EK_INLINE void vectors(const group *g, long at, float *y, const int rows, const int left,
                       const int right) {
    vf sum[ROWS];
    EK_UNROLL for (int o = 0; o < rows; o++) sum[o] = g->bias;
    EK_UNROLL for (int r = 0; r < INPUT_ROWS(rows); r++) {
        EK_UNROLL for (int kx = 0; kx < KW; kx++) {
            vf v = shifted(g->line[r] + at, kx - SIDE, left, right);
            EK_UNROLL for (int o = 0; o < rows; o++) {
                if (r >= o && r - o < KH)
                    sum[o] = vf_fma(v, g->tap[(r - o) * KW + kx], sum[o]);
            }
        }
    }
    EK_UNROLL for (int o = 0; o < rows; o++) {
#if CLAMP
        sum[o] = vf_clamp(sum[o], g->low, g->high);
#endif
        vf_store(y + o * g->width + at, sum[o]);
    }
}

/* Output rows starting at `oy`. Prefetches the x lines that the next rows need: rows, and planes,
 * are contiguous up to `end`. */
EK_INLINE void some_rows(const ek_dwconv_chw_args *a, group g, const float *x, const float *end,
                         float *restrict y, long oy, const int rows) {
    const long iy = oy - a->win.top, height = a->win.h;
    EK_UNROLL for (int r = 0; r < INPUT_ROWS(rows); r++) {
        const int there = (unsigned long)(iy + r) < (unsigned long)height;
        g.line[r] = there ? x + (iy + r) * g.width : zeros;
    }
    y += oy * g.width;
    const int each = AT_ONCE ? 0 : rows * EK_VL > LINE ? rows * EK_VL / LINE : 1;
    const long inner = (g.width - SIDE - EK_VL - 1) / EK_VL,
               lines = (rows * g.width - 1) / LINE + 1;
    const float *ahead = x + (iy + INPUT_ROWS(rows)) * g.width;
    const long step = ahead + ROWS * g.width <= end ? LINE : 0;
    ahead = step ? ahead : zeros;
    for (long i = lines - inner * each; i > 0; i--, ahead += step)
        ek_touch(ahead);
    vectors(&g, 0, y, rows, 0, 1);
    long at = EK_VL;
    for (; at < g.width - EK_VL - SIDE; at += EK_VL) {
        EK_UNROLL for (int i = 0; i < each; i++, ahead += step) ek_touch(ahead);
        vectors(&g, at, y, rows, 1, 1);
    }
    if (at < g.width - EK_VL) /* overlaps the previous one */
        vectors(&g, g.width - EK_VL - SIDE, y, rows, 1, 1);
    vectors(&g, g.width - EK_VL, y, rows, 1, 0);
}

/* Rows `oy` to `end` of a plane. */
EK_INLINE void band(const ek_dwconv_chw_args *a, long plane, long channel, long oy, long end) {
    const ek_window *w = &a->win;
    group g = {.width = w->w};
    g.bias = vf_splat(a->bias[channel]), g.low = vf_splat(a->low), g.high = vf_splat(a->high);
    float held[KH * KW + EK_VL];
    const float *taps = taps_of(a, channel, KH * KW, held);
    EK_UNROLL for (int t = 0; t < KH * KW; t++) g.tap[t] = vf_splat(taps[t]);
    const float *x = a->x + plane * w->h * w->w, *last = a->x + (long)w->n * w->c * w->h * w->w;
    float *y = a->y + plane * w->oh * w->w;
    for (; oy + ROWS <= end; oy += ROWS)
        some_rows(a, g, x, last, y, oy, ROWS);
    for (; oy + 2 <= end; oy += 2)
        some_rows(a, g, x, last, y, oy, 2);
    if (oy < end)
        some_rows(a, g, x, last, y, oy, 1);
}

/* Task: one band of a plane. */
void NAME(const void *args, long begin, long end) {
    const ek_dwconv_chw_args *a = args;
    long plane = begin / a->bands, part = begin % a->bands, channel = plane % a->win.c;
    for (long t = begin; t < end; t++) {
        const long first = part * a->band;
        band(a, plane, channel, first, ek_min(first + a->band, a->win.oh));
        if (++part == a->bands) {
            part = 0, plane++;
            channel = channel + 1 == a->win.c ? 0 : channel + 1;
        }
    }
}
