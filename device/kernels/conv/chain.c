/* Fused pointwise -> depthwise -> pointwise convolutions; the first or the last may be absent.
 *
 * Compile-time parameters: NAME, T (element type of the images), CHAIN and ARGS (argument types of
 * the chain and of a pointwise member), DEPTHWISE and DEPTHWISE_ROWS (the depthwise kernel and the
 * rows it computes per tile), FIRST and FIRST_ROWS, LAST and LAST_ROWS (the pointwise kernels
 * present and the pixels per tile of each), ADDS if they have residuals, and COLUMNS if strips have
 * some of the columns; then LAST is present.
 * Intermediate rows stay in a buffer that fits the core's private cache. The members' kernels are
 * the unfused ones: with tiles of the same pixels, results are bit-identical; the last pixels of
 * strips of some columns may be summed in another order. Only rows at the ends of pieces, and
 * columns that two strips read, are computed twice. */
#include "chain.h"

void DEPTHWISE(const void *, long, long);
#ifdef FIRST
void FIRST(const void *, long, long);
#endif
#ifdef LAST
void LAST(const void *, long, long);
#endif

#if defined FIRST || defined LAST
/* Computes `pixels` pixels of y, starting at pixel `at` of its image, by a pointwise convolution;
 * `there` pixels of x are readable. */
static void product(ek_task kernel, int mr, const ARGS *layer, const T *x, long there, T *y,
                    long pixels, long at) {
    ARGS part = *layer;
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
/* Pixels [from, until) of the depthwise convolution's input, stored at y. */
typedef struct {
    T *y;
    long from, until;
} band;

#ifdef COLUMNS
/* Computes whatever the band lacks of columns [left, left + width) of rows [top, end); its pixels
 * are counted from the first of these columns. */
static void advance_columns(const CHAIN *a, band *b, long top, long end, long left, long width) {
    const ek_window *g = &a->depthwise.win;
    const long first = top * width, wanted = end * width, pixels = (long)g->h * g->w;
    if (first >= b->until || first < b->from)
        b->from = b->until = first;
    memmove(b->y, b->y + (first - b->from) * g->c, (size_t)((b->until - first) * g->c) * sizeof(T));
    for (b->from = first; b->until < wanted; b->until += width) {
        const long at = b->until / width * g->w + left;
        product(FIRST, FIRST_ROWS, &a->first, (const T *)a->first.x + at * a->first.win.c,
                pixels - at, b->y + (b->until - first) * g->c, width, at);
    }
}
#else
/* Computes whatever the band lacks of rows [top, end). */
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
#endif

/* The depthwise convolution of `rows` rows of its result, starting at row oy. */
EK_INLINE ek_dwconv_args depthwise_rows(const CHAIN *a, long oy, long rows) {
    const ek_window *g = &a->depthwise.win;
    ek_dwconv_args depthwise = a->depthwise;
    depthwise.win.oh = (int)rows;
    depthwise.win.top = (int)(g->top - oy * g->sh);
    return depthwise;
}

#ifdef FIRST
/* Rows [top, end) of its input that these read. */
EK_INLINE void find_input_rows(const ek_window *g, long oy, long rows, long *top, long *end) {
    const long above = oy * g->sh - g->top, span = (rows - 1) * g->sh + (g->kh - 1) * g->dh + 1;
    *top = ek_min(ek_max(above, 0), g->h);
    *end = ek_max(ek_min(above + span, g->h), *top);
}
#endif

#ifdef COLUMNS
/* Task: `rows` rows of `columns` columns of the output; those below each other are consecutive. */
void NAME(const void *args, long begin, long end) {
    const CHAIN *a = args;
    const ek_window *g = &a->depthwise.win;
    T between[EK_CHAIN_BYTES / sizeof(T)] __attribute__((aligned(64)));
#ifdef FIRST
    band held = {between + a->held, 0, 0};
#endif
    const long strips = (g->oh + a->rows - 1) / a->rows;
    for (long t = begin; t < end; t++) {
        const long oy = t % strips * a->rows, rows = ek_min(a->rows, g->oh - oy);
        const long ox = t / strips * a->columns, columns = ek_min(a->columns, g->ow - ox);
        const long left = ox * g->sw - g->left;
        ek_dwconv_args depthwise = depthwise_rows(a, oy, rows);
        depthwise.win.ow = (int)columns;
        depthwise.win.left = (int)-left;
#ifdef FIRST
        long top, end_row;
        find_input_rows(g, oy, rows, &top, &end_row);
        const long wide = (columns - 1) * g->sw + (g->kw - 1) * g->dw + 1;
        const long from = ek_min(ek_max(left, 0), g->w);
        const long width = ek_max(ek_min(left + wide, g->w) - from, 0);
        if (t == begin || oy == 0)
            held.from = held.until = 0;
        advance_columns(a, &held, top, end_row, from, width);
        depthwise.x = held.y + (top * width - held.from) * g->c;
        depthwise.win.h = width ? (int)(held.until / width - top) : 0;
        depthwise.win.w = (int)width;
        depthwise.win.top += (int)top;
        depthwise.win.left += (int)from;
#endif
        depthwise.y = between;
        DEPTHWISE(&depthwise, 0, (rows + DEPTHWISE_ROWS - 1) / DEPTHWISE_ROWS);
        for (long r = 0; r < rows; r++) {
            const long pixel = (oy + r) * g->ow + ox;
            product(LAST, LAST_ROWS, &a->last, between + r * columns * g->c, columns,
                    (T *)a->last.y + pixel * a->last.win.oc, columns, pixel);
        }
    }
}
#else
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
        ek_dwconv_args depthwise = depthwise_rows(a, oy, rows);
#ifdef FIRST
        long top, end_row;
        find_input_rows(g, oy, rows, &top, &end_row);
        advance(a, &held, top, end_row);
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
#endif
