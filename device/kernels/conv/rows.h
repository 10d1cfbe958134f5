/* Windows of a convolution, read in place: a tile of output pixels becomes a table of pointers,
 * one per row of the window and pixel. Rows that cross the border of the image are copied to
 * scratch with their padding.
 *
 * Before inclusion: MR (pixels of a tile), SEGMENTS (rows of the table), and the type `elem`. */
#ifndef EK_CONV_ROWS_H
#define EK_CONV_ROWS_H
#include "../kernel.h"

typedef struct {
    const elem *ptr[SEGMENTS * MR]; /* [segment][pixel] */
    long count, length;             /* segments, elements in each */
    int32_t sum[MR];                /* 8-bit with row sums: of the window as the kernel sees it */
} rows_t;

/* One row of a window into scratch: pixels ix .. ix + kw of `line` (NULL: all padding). */
EK_INLINE void border_row(const ek_window *g, const elem *line, long ix, elem *to, int pad_byte) {
    long from = ek_max(ix, 0), until = ek_min(ix + g->kw, g->w);
    memset(to, pad_byte, (size_t)g->kw * g->c * sizeof *to);
    if (line && from < until)
        memcpy(to + (from - ix) * g->c, line + from * g->c, (until - from) * g->c * sizeof *to);
}

/* The table of a tile whose windows lie inside, one `step` after the other: nothing to ask for row
 * by row. */
static void __attribute__((noinline)) inside_segments(rows_t *rows, const elem *first, long count,
                                                      long pitch, long step) {
    const elem **to = rows->ptr;
    for (; count > 0; count--, to += MR, first += pitch) {
        const elem *at = first;
        EK_UNROLL
        for (int i = 0; i < MR; i++, at += step)
            to[i] = at;
        EK_IN_ORDER_HERE; /* or rows are taken two at a time, which costs more than it saves */
    }
}

/* Whole rows of the window (dilation 1 along x): segments of kw * c elements, read up to `length`
 * (what is read beyond a row meets zero weights, but must lie inside x). */
static void __attribute__((noinline)) find_segments(const ek_window *g, const elem *x, rows_t *rows,
                                                    elem *scratch, long pixel, int count,
                                                    long length, int pad_byte) {
    const elem *end = x + (long)g->n * g->h * g->w * g->c - length;
    int ox = (int)pixel % g->ow, oy = (int)pixel / g->ow % g->oh, n = (int)pixel / g->ow / g->oh;
    const long step = (long)g->sw * g->c, pitch = (long)g->w * g->c;
    rows->count = g->kh;
    rows->length = length;
    for (int done = 0; done < count;) {
        /* the pixels of this tile that stand in one output row */
        int part = (int)ek_min(count - done, g->ow - ox);
        long ix = (long)ox * g->sw - g->left, last = ix + (long)(part - 1) * g->sw + g->kw;
        int inside = ix >= 0 && last <= g->w;
        const long top = (long)oy * g->sh - g->top, bottom = top + (g->kh - 1) * g->dh;
        const elem *first = x + ((long)n * g->h + top) * pitch + ix * g->c;
        if (part == MR && inside && top >= 0 && bottom < g->h &&
            first + (bottom - top) * pitch + (MR - 1) * step <= end) {
            inside_segments(rows, first, g->kh, g->dh * pitch, step);
            return;
        }
        for (int ky = 0; ky < g->kh; ky++) {
            const elem **to = rows->ptr + ky * MR + done;
            long iy = (long)oy * g->sh - g->top + ky * g->dh;
            const elem *line = iy >= 0 && iy < g->h ? x + ((long)n * g->h + iy) * pitch : NULL;
            if (line && inside && line + (last - g->kw) * g->c <= end) {
                const elem *at = line + ix * g->c;
                for (int i = 0; i < part; i++, at += step)
                    to[i] = at;
                continue;
            }
            for (int i = 0; i < part; i++) {
                long xx = ix + (long)i * g->sw;
                if (line && xx >= 0 && xx + g->kw <= g->w && line + xx * g->c <= end) {
                    to[i] = line + xx * g->c;
                } else {
                    to[i] = scratch;
                    border_row(g, line, xx, scratch, pad_byte);
                    scratch += length;
                }
            }
        }
        done += part;
        ox = 0;
        if (++oy == g->oh) {
            oy = 0;
            n++;
        }
    }
}
#endif
