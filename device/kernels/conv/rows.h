/* Convolution windows read in place: a tile of output pixels becomes a table of pointers, one per
 * window row and pixel. Rows that cross the image border are copied to scratch with their padding.
 *
 * Before inclusion: MR (pixels per tile), SEGMENTS (rows of the table), the type `elem`, and
 * optionally KEPT_TILES (number of tiles whose window sums are kept) and INSIDE_FIRST (1: products
 * are so fast that a separate path for tiles inside the image pays off). */
#ifndef EK_CONV_ROWS_H
#define EK_CONV_ROWS_H
#include "../kernel.h"

#ifndef INSIDE_FIRST
#define INSIDE_FIRST 0
#endif

typedef struct {
    const elem *ptr[SEGMENTS * MR]; /* [segment][pixel] */
    long count, length;             /* segments, elements per segment */
    int32_t sum[MR];                /* 8-bit with row sums: sums of the windows (i8_row_sums.h) */
    long ahead; /* READ_AHEAD: where panel 0 of the tile would begin in the bytes ahead */
    long next;  /* the pixel of y at (n, oy, ox); -1: none yet */
    int n, oy, ox;
#ifdef STEPS
    int32_t strip_sum[STRIP_TILES * MR]; /* of the windows of a strip (i8_strips.h) */
#endif
#ifdef KEPT_TILES
    long kept[KEPT_TILES]; /* tiles whose sums and flipped bytes are kept; -1: empty */
    int32_t kept_sum[KEPT_TILES][MR];
#endif
#if INSIDE_FIRST
    ek_window padded;   /* of images copied with their padding (i8_border.h) */
    const elem *last;   /* last position at which a tile's first window may start; NULL: unknown */
    long step, pitch;   /* elements between windows, between window rows */
    long right, bottom; /* last position at which a tile's windows lie inside the image */
#endif
} rows_t;

/* Position of a pixel of y: known if the previous tile ended there, otherwise found by divisions,
 * which stall everything after them. */
EK_INLINE void find_place(const ek_window *g, rows_t *rows, long pixel) {
    if (rows->next == pixel)
        return;
    const int row = (int)pixel / g->ow;
    rows->next = pixel;
    rows->ox = (int)pixel - row * g->ow;
    rows->n = row / g->oh;
    rows->oy = row - rows->n * g->oh;
}
/* Advances by `count` pixels, within the row or to the start of the next. */
EK_INLINE void advance(const ek_window *g, rows_t *rows, int count) {
    rows->next += count;
    rows->ox += count;
    if (rows->ox < g->ow)
        return;
    rows->ox = 0;
    if (++rows->oy == g->oh) {
        rows->oy = 0;
        rows->n++;
    }
}

/* Appends padding (or bytes of x) 16 bytes at a time; the excess is overwritten by the next write
 * or never read. Cores without vectors use the C library. Returns the end. */
EK_INLINE char *append_padding(char *to, int pad_byte, long bytes) {
    if (EK_VL == 1)
        memset(to, pad_byte, (size_t)bytes);
    for (long i = 0; i < bytes && EK_VL > 1; i += 16) {
        memset(to + i, pad_byte, 16);
        EK_IN_ORDER_HERE; /* keeps the compiler from emitting a call */
    }
    return to + bytes;
}
EK_INLINE char *append_bytes(char *to, const char *x, long bytes, const char *x_end) {
    if (EK_VL == 1 || bytes + 15 > x_end - x) {
        memcpy(to, x, (size_t)bytes);
        return to + bytes;
    }
    for (long i = 0; i < bytes; i += 16) {
        memcpy(to + i, x + i, 16);
        EK_IN_ORDER_HERE;
    }
    return to + bytes;
}

/* Copies the window rows of `count` consecutive pixels, starting at image column ix, into adjacent
 * scratch with padding. Returns the next free position. */
EK_INLINE elem *border_side(const ek_window *g, const elem *line, const elem **to, elem *scratch,
                            long ix, int count, int rows, int pad_byte, const elem *x_end) {
    const long step = (long)g->sw * g->c, pixel = g->c * (long)sizeof *scratch;
    const long pitch = (long)g->w * g->c * g->dh, width = (long)(count - 1) * g->sw + g->kw;
    const long left = ek_min(ek_max(-ix, 0), width), right = ek_max(ek_min(g->w - ix, width), left);
    line += (ix + left) * g->c;
    for (; rows > 0; rows--, to += MR, line += pitch) {
        char *at = append_padding((char *)scratch, pad_byte, left * pixel);
        if (right > left)
            at = append_bytes(at, (const char *)line, (right - left) * pixel, (const char *)x_end);
        at = append_padding(at, pad_byte, (width - right) * pixel);
        for (int i = 0; i < count; i++)
            to[i] = scratch + i * step;
        scratch = (elem *)at;
    }
    return scratch;
}

/* Redirects the table of `part` pixels of one output row, whose first window is at (iy, ix), where
 * windows cross the border: rows above or below the image point to a row of padding, and the first
 * and last pixels that cross on the left and right point to copies. Returns the next free
 * position. */
static elem *__attribute__((noinline)) border_rows(const ek_window *g, const elem *image,
                                                   const elem **to, elem *scratch, long iy, long ix,
                                                   int part, const int crossing[2], int pad_byte,
                                                   const elem *x_end) {
    int from = 0, until = g->kh;
    while (from < until && iy + (long)from * g->dh < 0)
        from++;
    while (until > from && iy + (long)(until - 1) * g->dh >= g->h)
        until--;
    if (until - from < g->kh) {
        for (int ky = 0; ky < g->kh; ky++)
            for (int i = 0; i < part && (ky < from || ky >= until); i++)
                to[ky * MR + i] = scratch;
        scratch = (elem *)append_padding((char *)scratch, pad_byte,
                                         (long)g->kw * g->c * (long)sizeof *scratch);
    }
    const elem *line = image + (iy + (long)from * g->dh) * g->w * g->c;
    const int last = part - crossing[1], rows = until - from;
    to += from * MR;
    if (crossing[0])
        scratch = border_side(g, line, to, scratch, ix, crossing[0], rows, pad_byte, x_end);
    if (crossing[1])
        scratch = border_side(g, line, to + last, scratch, ix + last * (long)g->sw, crossing[1],
                              rows, pad_byte, x_end);
    return scratch;
}

/* The table of a tile whose windows all lie inside and are `step` apart: rows need no tests. */
static void __attribute__((noinline)) inside_segments(rows_t *rows, const elem *first, long count,
                                                      long pitch, long step) {
    const elem **to = rows->ptr;
    for (; count > 0; count--, to += MR, first += pitch) {
        const elem *at = first;
        EK_UNROLL
        for (int i = 0; i < MR; i++, at += step)
            to[i] = at;
        EK_IN_ORDER_HERE; /* otherwise the compiler unrolls by two rows, which costs more than it
                             saves */
    }
}

/* Fills the table of `part` pixels as if all their windows were inside. */
EK_INLINE void point_to_rows(const ek_window *g, rows_t *rows, const elem **to, const elem *first,
                             int part) {
    const long step = (long)g->sw * g->c, pitch = (long)g->w * g->c * g->dh;
    if (part == MR) {
        inside_segments(rows, first, g->kh, pitch, step);
        return;
    }
    for (int ky = 0; ky < g->kh; ky++, to += MR, first += pitch)
        for (int i = 0; i < part; i++)
            to[i] = first + i * step;
}

/* Counts how many of the first and last of `part` pixels have windows that cross the left and right
 * image border or read beyond x, where `end` is the last valid start. If a window reads beyond x or
 * none is inside, all count as the first. */
EK_INLINE void find_crossing(const ek_window *g, const elem *image, const elem *end, long iy,
                             long ix, int part, int crossing[2]) {
    const long bottom = ek_min(iy + (g->kh - 1) * g->dh, g->h - 1);
    int first = 0, last = part;
    while (first < part && ix + (long)first * g->sw < 0)
        first++;
    while (last > first && ix + (long)(last - 1) * g->sw + g->kw > g->w)
        last--;
    const long furthest = (bottom * g->w + ix + (long)(last - 1) * g->sw) * g->c;
    const int beyond = last > first && image + furthest > end;
    crossing[0] = beyond || first == last ? part : first;
    crossing[1] = beyond || first == last ? 0 : part - last;
}

#if INSIDE_FIRST
/* Precomputes find_inside's bounds once for all tiles; not worthwhile for a single tile. */
static void __attribute__((noinline, unused)) prepare_inside(const ek_window *g, const elem *x,
                                                             rows_t *rows, long length) {
    rows->step = (long)g->sw * g->c;
    rows->pitch = (long)g->w * g->c * g->dh;
    rows->right = g->w - g->kw - (MR - 1) * (long)g->sw;
    rows->bottom = g->h - 1 - (g->kh - 1) * (long)g->dh;
    rows->last = x + (long)g->n * g->h * g->w * g->c - length - (MR - 1) * rows->step -
                 (g->kh - 1) * rows->pitch;
}

/* Fills the table of a complete tile within one row of y if all its windows are inside the image,
 * as most are; returns 0 otherwise. */
EK_INLINE int find_inside(const ek_window *g, const elem *x, rows_t *rows) {
    const long ix = (long)rows->ox * g->sw - g->left, iy = (long)rows->oy * g->sh - g->top;
    const elem *first = x + (((long)rows->n * g->h + iy) * g->w + ix) * g->c;
    if (rows->ox + MR > g->ow || (ix | iy | (rows->right - ix) | (rows->bottom - iy)) < 0 ||
        first > rows->last)
        return 0;
    advance(g, rows, MR);
    inside_segments(rows, first, rows->count, rows->pitch, rows->step);
    return 1;
}
#endif

/* Complete window rows (dilation 1 along x): segments of kw * c elements, read up to `length`.
 * Elements read beyond a row meet zero weights but must lie inside x. */
#if INSIDE_FIRST
static void __attribute__((noinline)) /* otherwise its registers are saved for every tile */
#else
EK_INLINE void
#endif
find_parts(const ek_window *g, const elem *x, rows_t *rows, elem *scratch, int count, long length,
           int pad_byte) {
    const elem *end = x + (long)g->n * g->h * g->w * g->c - length;
    const long pitch = (long)g->w * g->c;
    for (int done = 0; done < count;) {
        /* this tile's pixels within one output row */
        const int part = (int)ek_min(count - done, g->ow - rows->ox);
        const long ix = (long)rows->ox * g->sw - g->left, iy = (long)rows->oy * g->sh - g->top;
        const long below = (g->kh - 1) * g->dh, right = (long)(part - 1) * g->sw;
        const elem *image = x + (long)rows->n * g->h * pitch,
                   *first = image + iy * pitch + ix * g->c;
        const elem **to = rows->ptr + done;
        point_to_rows(g, rows, to, first, part);
        if (ix < 0 || iy < 0 || ix + right + g->kw > g->w || iy + below >= g->h ||
            first + below * pitch + right * g->c > end) {
            int crossing[2];
            find_crossing(g, image, end, iy, ix, part, crossing);
            scratch =
                border_rows(g, image, to, scratch, iy, ix, part, crossing, pad_byte, end + length);
        }
        done += part;
        advance(g, rows, part);
    }
}

static void __attribute__((noinline, unused)) find_segments(const ek_window *g, const elem *x,
                                                            rows_t *rows, elem *scratch, long pixel,
                                                            int count, long length, int pad_byte) {
#if INSIDE_FIRST
    const int first = rows->next < 0;
#endif
    find_place(g, rows, pixel);
    rows->count = g->kh;
    rows->length = length;
#if INSIDE_FIRST
    if (first)
        rows->last = NULL;
    else if (!rows->last)
        prepare_inside(g, x, rows, length);
    if (!first && count == MR && find_inside(g, x, rows))
        return;
#endif
    find_parts(g, x, rows, scratch, count, length, pad_byte);
}
#endif
