/* A convolution fused with its layout conversion and pooling, a few rows at a time: intermediate
 * rows never leave the core's private cache.
 *
 * Compile-time parameters: NAME, EK_SIMD, T (element type of the images), CONV and CONV_PIXELS (the
 * convolution kernel and its pixels per tile), and at least one of POOL (kernel of the pool that
 * follows) and CHW_CHANNELS (channels of a channels-first f32 image). With CHW_LINES, CONV is one
 * of chw_conv.c, and each row of a channel becomes a line with its padding. Convolution rows are
 * computed twice only at thread boundaries, and image rows are converted twice only where the
 * windows of two pieces overlap. */
#include "stem.h"

void CONV(const void *, long, long);
#ifdef POOL
void POOL(const void *, long, long);
#endif

#ifdef CHW_LINES
/* Makes the lines of rows [from, until), some of which may be outside the image. */
static void image_lines(const ek_stem_args *a, long from, long until, T *restrict to) {
    const ek_window *g = &a->conv.win;
    const long width = ek_min(g->w, a->line - g->left);
    for (long row = from; row < until; row++)
        for (int c = 0; c < CHW_CHANNELS; c++, to += a->line) {
            const long inside = row >= 0 && row < g->h ? width : 0;
            const float *restrict x = (const float *)a->x + c * (long)a->plane + row * g->w;
            memset(to, 0, (size_t)g->left * sizeof *to);
            EK_VECTOR_LOOP
            for (long i = 0; i < inside; i++)
                to[g->left + i] = (T)x[i];
            memset(to + g->left + inside, 0, (size_t)(a->line - g->left - inside) * sizeof *to);
        }
}

/* Computes rows [from, until) of the convolution's output at y. */
static void convolve(const ek_stem_args *a, long from, long until, T *image, T *y) {
    const ek_window *g = &a->conv.win;
    ek_f32_conv_args part = a->conv;
    const long top = from * g->sh - g->top;
    image_lines(a, top, top + (until - from - 1) * g->sh + g->kh, image);
    part.win.w = a->line;
    part.x = image;
    part.y = y;
    CONV(&part, 0, until - from);
}
#else
#ifdef CHW_CHANNELS
#define STAGE 2048 /* pixels */

/* Converts rows [from, until) of the image to channels last. One channel is read at a time, in long
 * runs: prefetchers of small cores follow at most two streams. */
static void image_rows(const ek_stem_args *a, long from, long until, T *restrict to) {
    const ek_window *g = &a->conv.win;
    const float *restrict x = (const float *)a->x;
    T stage[CHW_CHANNELS][STAGE] __attribute__((aligned(64)));
    for (long at = from * g->w; at < until * g->w; at += STAGE) {
        const long n = ek_min(STAGE, until * g->w - at);
        for (int c = 0; c < CHW_CHANNELS; c++) {
            EK_VECTOR_LOOP
            for (long i = 0; i < n; i++)
                stage[c][i] = (T)x[c * (long)a->plane + at + i];
        }
        EK_VECTOR_LOOP
        for (long i = 0; i < n; i++)
            for (int c = 0; c < CHW_CHANNELS; c++)
                to[i * CHW_CHANNELS + c] = stage[c][i];
        to += n * CHW_CHANNELS;
    }
}
#endif

/* Computes rows [from, until) of the convolution's output at y. */
static void convolve(const ek_stem_args *a, long from, long until, T *image, T *y) {
    const ek_window *g = &a->conv.win;
    ek_f32_conv_args part = a->conv;
    part.win.oh = (int)(until - from);
    part.win.top = (int)(g->top - from * g->sh);
    part.y = y;
    const long above = from * g->sh - g->top, span = (g->kh - 1) * g->dh + 1;
    const long top = ek_min(ek_max(above, 0), g->h);
    const long end = ek_max(ek_min(above + (until - from - 1) * g->sh + span, g->h), top);
    part.win.h = (int)(end - top);
    part.win.top += (int)top;
#ifdef CHW_CHANNELS
    image_rows(a, top, end, image);
    part.x = image;
#else
    (void)image;
    part.x = (const T *)part.x + top * g->w * g->c;
#endif
    CONV(&part, 0, ((until - from) * g->ow + CONV_PIXELS - 1) / CONV_PIXELS * part.panels);
}
#endif

#ifdef POOL
/* Rows [from, until) of the convolution's output. */
typedef struct {
    T *y;
    long from, until;
} band;

/* Computes whatever the band lacks of rows [top, end). */
static void advance(const ek_stem_args *a, band *b, long top, long end, T *image) {
    const long row = (long)a->conv.win.ow * a->conv.pitch;
    long made = top;
    if (top >= b->from && top < b->until) {
        memmove(b->y, b->y + (top - b->from) * row, (size_t)((b->until - top) * row) * sizeof(T));
        made = b->until;
    }
    if (made < end)
        convolve(a, made, end, image, b->y + (made - top) * row);
    b->from = top;
    b->until = ek_max(made, end);
}
#endif

/* Task: a group of `rows` output rows. */
void NAME(const void *args, long begin, long end) {
    const ek_stem_args *a = args;
    T buffer[EK_CHAIN_BYTES / sizeof(T)] __attribute__((aligned(64)));
    T *image = buffer + a->held;
#ifdef POOL
    const ek_window *g = &a->pool.win;
    band held = {buffer, 0, 0};
    for (long t = begin; t < end; t++) {
        const long oy = t * a->rows, rows = ek_min(a->rows, g->oh - oy),
                   above = oy * g->sh - g->top;
        const long top = ek_min(ek_max(above, 0), g->h);
        const long bottom = ek_max(ek_min(above + (rows - 1) * g->sh + g->kh, g->h), top);
        advance(a, &held, top, bottom, image);
        ek_pool2d_args pool = a->pool;
        pool.win.h = (int)(held.until - top);
        pool.win.oh = (int)rows;
        pool.win.top = (int)(top - above);
        pool.x = buffer;
        pool.y = (T *)a->pool.y + oy * g->ow * pool.pitch;
        POOL(&pool, 0, rows);
    }
#else
    const ek_window *g = &a->conv.win;
    for (long t = begin; t < end; t++) {
        const long oy = t * a->rows, until = ek_min(oy + a->rows, g->oh);
        convolve(a, oy, until, image, (T *)a->conv.y + oy * g->ow * a->conv.pitch);
    }
#endif
}
