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

/* The windows of `part` pixels of one output row, from (iy, ix) of an image on, which cross its
 * border: their rows side by side in scratch, with padding. Returns where the next may go. */
static elem *__attribute__((noinline)) border_rows(const ek_window *g, const elem *image,
                                                   const elem **to, elem *scratch, long iy, long ix,
                                                   int part, int pad_byte) {
    const long step = (long)g->sw * g->c, width = (long)(part - 1) * g->sw + g->kw;
    const long left = ek_min(ek_max(-ix, 0), width), right = ek_max(ek_min(g->w - ix, width), left);
    for (int ky = 0; ky < g->kh; ky++, to += MR, scratch += width * g->c) {
        const long y = iy + ky * g->dh;
        if (y < 0 || y >= g->h || left == right) {
            memset(scratch, pad_byte, (size_t)(width * g->c) * sizeof *scratch);
        } else {
            if (left)
                memset(scratch, pad_byte, (size_t)(left * g->c) * sizeof *scratch);
            memcpy(scratch + left * g->c, image + (y * g->w + ix + left) * g->c,
                   (size_t)((right - left) * g->c) * sizeof *scratch);
            if (width > right)
                memset(scratch + right * g->c, pad_byte,
                       (size_t)((width - right) * g->c) * sizeof *scratch);
        }
        for (int i = 0; i < part; i++)
            to[i] = scratch + i * step;
    }
    return scratch;
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
static void __attribute__((noinline, unused)) find_segments(const ek_window *g, const elem *x,
                                                            rows_t *rows, elem *scratch, long pixel,
                                                            int count, long length, int pad_byte) {
    const elem *end = x + (long)g->n * g->h * g->w * g->c - length;
    int ox = (int)pixel % g->ow, oy = (int)pixel / g->ow % g->oh, n = (int)pixel / g->ow / g->oh;
    const long step = (long)g->sw * g->c, pitch = (long)g->w * g->c;
    rows->count = g->kh;
    rows->length = length;
    for (int done = 0; done < count;) {
        /* the pixels of this tile that stand in one output row */
        const int part = (int)ek_min(count - done, g->ow - ox);
        const long ix = (long)ox * g->sw - g->left, iy = (long)oy * g->sh - g->top;
        const long below = (g->kh - 1) * g->dh, beside = (long)(part - 1) * g->sw;
        const elem *image = x + (long)n * g->h * pitch, *first = image + iy * pitch + ix * g->c;
        const elem **to = rows->ptr + done;
        if (ix < 0 || iy < 0 || ix + beside + g->kw > g->w || iy + below >= g->h ||
            first + below * pitch + beside * g->c > end) {
            scratch = border_rows(g, image, to, scratch, iy, ix, part, pad_byte);
        } else if (part == MR) {
            inside_segments(rows, first, g->kh, g->dh * pitch, step);
        } else {
            for (int ky = 0; ky < g->kh; ky++, to += MR, first += g->dh * pitch)
                for (int i = 0; i < part; i++)
                    to[i] = first + i * step;
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
