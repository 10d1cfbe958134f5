/* Convolutions in a chain: pointwise, depthwise, pointwise, the first or the last perhaps missing.
 *
 * Compile-time parameters: NAME, T (of the images), CHAIN and ARGS (types of the arguments, whole
 * and of a pointwise member), DEPTHWISE and DEPTHWISE_ROWS (its kernel, and the rows that it makes
 * at once), where there are such members FIRST and FIRST_ROWS, LAST and LAST_ROWS (their kernels,
 * and the pixels of a tile), and ADDS where these have residuals.
 * What is between members stays in a buffer small enough for a core's own cache. The members'
 * kernels are those that would run one after the other, on tiles of the same pixels: the results
 * are the same to the last bit, and no row is computed twice but where a thread begins. */
#include "chain.h"

void DEPTHWISE(const void *, long, long);
#ifdef FIRST
void FIRST(const void *, long, long);
#endif
#ifdef LAST
void LAST(const void *, long, long);
#endif

#if defined FIRST || defined LAST
/* Pixels of y, the first of which is number `at` of its image, by a pointwise convolution; x has
 * `there` of them. */
static void product(ek_task kernel, int mr, const ARGS *whole, const T *x, long there, T *y,
                    long pixels, long at) {
    ARGS part = *whole;
    part.win.h = part.win.oh = 1;
    part.win.w = (int)there;
    part.win.ow = (int)pixels;
    part.x = x;
    part.y = y;
#ifdef ADDS
    if (part.residual)
        part.residual = (const T *)part.residual + at * part.win.oc;
#else
    (void)at;
#endif
    kernel(&part, 0, (pixels + mr - 1) / mr * part.panels);
}
#endif

#ifdef FIRST
/* Pixels [from, until) of the image that the depthwise convolution reads, from y on. */
typedef struct {
    T *y;
    long from, until;
} band;

/* Sees to it that the band holds rows [top, end). */
static void advance(const CHAIN *a, band *b, long top, long end) {
    const ek_window *g = &a->depthwise.win;
    const long first = top * g->w, wanted = end * g->w;
    if (first >= b->from && wanted <= b->until)
        return;
    long made = first / FIRST_ROWS * FIRST_ROWS;
    if (first >= b->from && first < b->until) {
        memmove(b->y, b->y + (first - b->from) * g->c,
                (size_t)((b->until - first) * g->c) * sizeof(T));
        made = b->until;
        b->from = first;
    } else {
        b->from = b->until = made;
    }
    const long pixels = (long)g->h * g->w;
    const long until = ek_min((wanted + FIRST_ROWS - 1) / FIRST_ROWS * FIRST_ROWS, pixels);
    if (made < until) {
        product(FIRST, FIRST_ROWS, &a->first, (const T *)a->first.x + made * a->first.win.c,
                pixels - made, b->y + (made - b->from) * g->c, until - made, made);
        b->until = until;
    }
}
#endif

/* Tasks: groups of `rows` rows of the output. */
void NAME(const void *args, long begin, long end) {
    const CHAIN *a = args;
    const ek_window *g = &a->depthwise.win;
    T rows_between[EK_CHAIN_BYTES / sizeof(T)] __attribute__((aligned(64)));
#ifdef FIRST
    band held = {rows_between + a->held, 0, 0};
#endif
    for (long t = begin; t < end; t++) {
        const long oy = t * a->rows, rows = ek_min(a->rows, g->oh - oy), pixel = oy * g->ow;
        ek_dwconv_args depthwise = a->depthwise;
        depthwise.win.oh = (int)rows;
        depthwise.win.top = (int)(g->top - oy * g->sh);
#ifdef FIRST
        const long above = oy * g->sh - g->top, span = (rows - 1) * g->sh + (g->kh - 1) * g->dh + 1;
        const long top = ek_min(ek_max(above, 0), g->h);
        advance(a, &held, top, ek_max(ek_min(above + span, g->h), top));
        depthwise.x = held.y + (top * g->w - held.from) * g->c;
        depthwise.win.h = (int)(held.until / g->w - top);
        depthwise.win.top += (int)top;
#endif
#ifdef LAST
        depthwise.y = rows_between;
#else
        depthwise.y = (T *)a->depthwise.y + pixel * g->c;
#endif
        DEPTHWISE(&depthwise, 0, (rows + DEPTHWISE_ROWS - 1) / DEPTHWISE_ROWS);
#ifdef LAST
        product(LAST, LAST_ROWS, &a->last, rows_between, rows * g->ow,
                (T *)a->last.y + pixel * a->last.win.oc, rows * g->ow, pixel);
#endif
    }
}
