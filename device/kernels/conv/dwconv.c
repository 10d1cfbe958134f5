/* Depthwise convolution, NHWC, vectorized along channels.
 *
 * Compile-time parameters: NAME, EK_SIMD, TX (float, int8_t or uint8_t), KH, KW, SH, SW (KH 0: any
 * window, taken from the arguments), ROWS, PITCHED, and those of dwconv_values.h. With a
 * compile-time window, ROWS x TW output pixels are computed per tile: each input pixel is loaded
 * once for all its products, and small windows keep their weights in registers along the row. Other
 * windows use a table of pointers, one per tap, and process several channel blocks at once. */
#include "dwconv.h"
#ifndef W_ZERO
#define W_ZERO 0
#endif
#include "dwconv_values.h"

/* First channel of the block after the one at c. The last of several blocks overlaps its
 * predecessor instead of being partial; fewer channels than BLOCK form one partial block. */
EK_INLINE long next_block(long c, long channels) {
    return c + BLOCK < channels ? ek_max(ek_min(c + BLOCK, channels - BLOCK), 0) : channels;
}

#if KH
#define TW EK_DEPTHWISE_TILE
#define KEEP_WEIGHTS (KH * KW <= 9)
#define INPUT_ROWS(rows) (((rows) - 1) * SH + KH) /* rows of x read for `rows` rows of y */

/* State shared by the tiles of one channel block. It copies the arguments because y, being a byte
 * pointer, might alias them and force reloads. */
typedef struct {
    const weight_t *weights; /* [tap][BLOCK] */
    weight_v w[KH][KW];      /* the weights in registers, if they fit */
    sum_t bias;
    output out;
    long c, width;                   /* channels, columns of x */
    long row;                        /* elements per row of y */
    long column[(TW - 1) * SW + KW]; /* offsets of a tile's columns */
#ifdef PITCHED
    long step, y_step; /* elements per pixel of x and y; else c */
#endif
    const TX *border;
    int zero; /* zero point of the weights */
} block_t;

#ifdef PITCHED
#define STEP(b) ((b)->step)
#define Y_STEP(b) ((b)->y_step)
#else
#define STEP(b) ((b)->c)
#define Y_STEP(b) ((b)->c)
#endif

/* Addresses that a tile reads and writes, starting at its block's first channel. */
typedef struct {
    const TX *line[INPUT_ROWS(ROWS)]; /* at the first window's first column */
    TX *y;
    long ix; /* index of that column */
} place_t;

EK_INLINE void load_weights(int ky, weight_v w[KW], const weight_t *from, int zero) {
    EK_UNROLL
    for (int kx = 0; kx < KW; kx++)
        w[kx] = weight_at(from + (ky * KW + kx) * BLOCK, zero);
}

/* One column of `rows` output pixels; its window may extend beyond the image. */
EK_INLINE void edge(const int rows, const int full, const block_t *b, const place_t *at) {
    sum_t acc[ROWS];
    EK_UNROLL
    for (int i = 0; i < rows; i++)
        acc[i] = b->bias;
    EK_UNROLL
    for (int s = 0; s < KW; s++) {
        const int outside = at->ix + s < 0 || at->ix + s >= b->width;
        if (outside && PADS_WITH_ZERO)
            continue;
        EK_UNROLL
        for (int r = 0; r < INPUT_ROWS(rows); r++) {
            const TX *p = outside ? b->border : at->line[r] + b->column[s];
            const x_v x = full ? x_at(p) : x_at_n(p, b->c);
            EK_UNROLL
            for (int i = 0; i < rows; i++) {
                const int ky = r - i * SH;
                if (ky >= 0 && ky < KH)
                    acc[i] = multiply_add(
                        acc[i], x,
                        KEEP_WEIGHTS ? b->w[ky][s]
                                     : weight_at(b->weights + (ky * KW + s) * BLOCK, b->zero));
            }
        }
    }
    EK_UNROLL
    for (int i = 0; i < rows; i++)
        finish(&b->out, acc[i], at->y + i * b->row, full ? BLOCK : b->c);
}

/* rows x tw output pixels whose windows lie horizontally inside the image. */
EK_INLINE void tile(const int rows, const int tw, const int full, const block_t *b,
                    const place_t *at) {
    sum_t acc[ROWS][TW];
    weight_v w[KH][KW];
    if (KEEP_WEIGHTS)
        memcpy(w, b->w, sizeof w);
    EK_UNROLL
    for (int i = 0; i < rows; i++) {
        EK_UNROLL
        for (int o = 0; o < tw; o++)
            acc[i][o] = b->bias;
    }
    EK_UNROLL
    for (int r = 0; r < INPUT_ROWS(rows); r++) {
        EK_IN_ORDER_HERE;
        if (!KEEP_WEIGHTS && r < KH)
            load_weights(r, w[r], b->weights, b->zero);
#ifdef BYTES
        x_v x[(TW - 1) * SW + KW];
        EK_UNROLL
        for (int s = 0; s < (tw - 1) * SW + KW; s++) {
            const TX *p = at->line[r] + b->column[s];
            x[s] = full ? x_at(p) : x_at_n(p, b->c);
        }
        EK_UNROLL
        for (int i = 0; i < rows * tw; i++) {
            const int row = i / tw, o = i % tw, ky = r - row * SH;
            if (ky >= 0 && ky < KH)
                acc[row][o] = multiply_taps(KW, acc[row][o], x + o * SW, w[ky]);
        }
#else
        EK_UNROLL
        for (int s = 0; s < (tw - 1) * SW + KW; s++) {
            const TX *p = at->line[r] + b->column[s];
            const x_v x = full ? x_at(p) : x_at_n(p, b->c);
            EK_UNROLL
            for (int i = 0; i < rows; i++) {
                EK_UNROLL
                for (int o = 0; o < tw; o++) {
                    const int ky = r - i * SH, kx = s - o * SW;
                    if (ky >= 0 && ky < KH && kx >= 0 && kx < KW)
                        acc[i][o] = multiply_add(acc[i][o], x, w[ky][kx]);
                }
            }
        }
#endif
    }
    EK_UNROLL
    for (int i = 0; i < rows; i++) {
        EK_UNROLL
        for (int o = 0; o < tw; o++)
            finish(&b->out, acc[i][o], at->y + i * b->row + o * Y_STEP(b), full ? BLOCK : b->c);
    }
}

EK_INLINE void move(const int rows, const block_t *b, place_t *at, long columns) {
    EK_UNROLL
    for (int r = 0; r < INPUT_ROWS(rows); r++) {
        at->line[r] += columns * SW * STEP(b);
        EK_OPAQUE_INDEX(at->line[r]);
    }
    at->y += columns * Y_STEP(b);
    at->ix += columns * SW;
}

/* Output columns whose windows lie inside the image: [first, last). */
typedef struct {
    long first, last;
} inside_t;

/* Columns [from, until) of a channel block. The tile covering the last interior columns may
 * recompute some before `from`. */
EK_INLINE void block_columns(const int rows, const int full, const block_t *b, place_t at,
                             inside_t in, long from, long until) {
    const long end = ek_min(in.last, until);
    long ox = from;
    move(rows, b, &at, from);
    for (; ox < ek_min(in.first, until); ox++, move(rows, b, &at, 1))
        edge(rows, full, b, &at);
    for (; ox + TW <= end; ox += TW, move(rows, b, &at, TW))
        tile(rows, TW, full, b, &at);
    if (ox < end && end - in.first >= TW) {
        move(rows, b, &at, end - TW - ox);
        tile(rows, TW, full, b, &at);
        move(rows, b, &at, TW);
        ox = end;
    }
    for (; ox < until; ox++, move(rows, b, &at, 1))
        edge(rows, full, b, &at);
}

/* Columns [from, until) of `rows` output rows, starting at row oy, which is stored at y. */
EK_INLINE void strip_at(const int rows, const int full, const ek_dwconv_args *a, const TX *image,
                        long oy, TX *y, inside_t in, long from, long until) {
    const ek_window g = a->win;
    const weight_t *weights = a->weights;
    for (long c = 0; c < g.c; c = next_block(c, g.c), weights += KH * KW * BLOCK) {
        block_t b = {.bias = bias_at(a, c), .out = output_at(a, c), .c = g.c, .width = g.w};
#ifdef PITCHED
        b.step = a->x_pitch, b.y_step = a->pitch;
#endif
        b.weights = weights;
        b.zero = W_ZERO ? a->w_zero : 0;
        EK_UNROLL
        for (int ky = 0; KEEP_WEIGHTS && ky < KH; ky++)
            load_weights(ky, b.w[ky], weights, b.zero);
        EK_UNROLL
        for (int s = 0; s < (TW - 1) * SW + KW; s++) {
            b.column[s] = s * STEP(&b);
            EK_OPAQUE_INDEX(b.column[s]);
        }
        b.border = (const TX *)a->border + c;
        b.row = g.ow * Y_STEP(&b);
        place_t at = {.y = y + c, .ix = -g.left};
        EK_UNROLL
        for (int r = 0; r < INPUT_ROWS(rows); r++) {
            const long iy = oy * SH - g.top + r;
            const int inside = iy >= 0 && iy < g.h;
            at.line[r] = (inside ? image + iy * g.w * STEP(&b) + c : b.border) - g.left * STEP(&b);
        }
        block_columns(rows, full, &b, at, in, from, until);
    }
}

/* `rows` output rows from row oy on, tiled by strips of columns: each strip computes all channels
 * while its input lines are in L1. A strip's tiles are aligned to the first interior column. */
EK_INLINE void rows_at(const int rows, const int full, const ek_dwconv_args *a, const TX *image,
                       long oy, TX *y) {
    const ek_window *g = &a->win;
    const long ow = g->ow, fit = g->w + g->left - KW;
    /* `left` is negative for columns behind the first (chain.c) */
    inside_t in = {.first = ek_min(ek_max(g->left + SW - 1, 0) / SW, ow)};
    in.last = fit < 0 ? in.first : ek_max(in.first, ek_min(fit / SW + 1, ow));
    for (long from = 0, until; from < ow; from = until) {
        until = ek_max(from, in.first) + (long)a->strip * TW;
        until = until + TW > in.last ? ow : until;
        strip_at(rows, full, a, image, oy, y, in, from, until);
    }
    finish_rows(a, y, (long)rows * ow);
}

#define HAS_BLOCK(g) (BLOCK == 1 || (g)->c >= BLOCK)
#include "dwconv_rows.h"
#else

#define PIXELS 2
#define BLOCKS (sizeof(sum_t) > sizeof(x_v) ? 2 : 4)

/* Pointers to the taps of one output pixel. */
EK_INLINE void find_taps(const ek_dwconv_args *a, const TX *image, long iy, long ix,
                         const TX **tap) {
    const ek_window *g = &a->win;
    const TX *border = (const TX *)a->border;
    for (int ky = 0; ky < g->kh; ky++) {
        const long y = iy + ky * g->dh;
        const TX *line = y >= 0 && y < g->h ? image + y * g->w * X_PITCH(a) : 0;
        for (int kx = 0; kx < g->kw; kx++) {
            const long x = ix + kx * g->dw;
            *tap++ = line && x >= 0 && x < g->w ? line + x * X_PITCH(a) : border;
        }
    }
}

/* `blocks` channel blocks, starting at channel c, of `pixels` output pixels: independent
 * accumulators, and each weight is loaded once for all pixels. */
EK_INLINE void sums(const int pixels, const int blocks, const int full, const ek_dwconv_args *a,
                    const TX *tap[PIXELS][EK_MOST_TAPS], int taps, const weight_t *w, long c,
                    TX *y) {
    const long channels = a->win.c;
    const int zero = W_ZERO ? a->w_zero : 0;
    sum_t acc[PIXELS][BLOCKS];
    EK_UNROLL
    for (int i = 0; i < pixels * blocks; i++)
        acc[i / blocks][i % blocks] = bias_at(a, c + i % blocks * BLOCK);
    for (int t = 0; t < taps; t++) {
        EK_UNROLL
        for (int j = 0; j < blocks; j++) {
            const weight_v weight = weight_at(w + (j * taps + t) * BLOCK, zero);
            EK_UNROLL
            for (int i = 0; i < pixels; i++) {
                const TX *p = tap[i][t] + c + j * BLOCK;
                acc[i][j] = multiply_add(acc[i][j], full ? x_at(p) : x_at_n(p, channels), weight);
            }
        }
    }
    EK_UNROLL
    for (int j = 0; j < blocks; j++) {
        const output o = output_at(a, c + j * BLOCK);
        EK_UNROLL
        for (int i = 0; i < pixels; i++)
            finish(&o, acc[i][j], y + i * PITCH(a) + c + j * BLOCK, channels);
    }
}

/* All channels of `pixels` output pixels. */
EK_INLINE void channels_of(const int pixels, const ek_dwconv_args *a,
                           const TX *tap[PIXELS][EK_MOST_TAPS], int taps, TX *y) {
    const long channels = a->win.c;
    const weight_t *w = a->weights;
    if (BLOCK > 1 && channels < BLOCK) {
        sums(pixels, 1, 0, a, tap, taps, w, 0, y);
        return;
    }
    for (long c = 0, several; c < channels; c = next_block(c, channels)) {
        several = c + BLOCKS * BLOCK <= channels;
        if (several)
            sums(pixels, BLOCKS, 1, a, tap, taps, w, c, y);
        else
            sums(pixels, 1, 1, a, tap, taps, w, c, y);
        c += several ? (BLOCKS - 1) * BLOCK : 0;
        w += (several ? BLOCKS : 1) * taps * BLOCK;
    }
}

/* Task: one output row. */
void NAME(const void *args, long begin, long end) {
    const ek_dwconv_args *a = args;
    const ek_window *g = &a->win;
    const TX *tap[PIXELS][EK_MOST_TAPS];
    for (long t = begin; t < end; t++) {
        const TX *image = (const TX *)a->x + t / g->oh * g->h * g->w * X_PITCH(a);
        TX *y = (TX *)a->y + t * g->ow * PITCH(a);
        const long iy = t % g->oh * g->sh - g->top;
        for (long ox = 0, made; ox < g->ow; ox += made) {
            made = ek_min(PIXELS, g->ow - ox);
            for (long i = 0; i < made; i++)
                find_taps(a, image, iy, (ox + i) * g->sw - g->left, tap[i]);
            if (made == PIXELS)
                channels_of(PIXELS, a, tap, g->kh * g->kw, y + ox * PITCH(a));
            else
                channels_of(1, a, tap, g->kh * g->kw, y + ox * PITCH(a));
        }
        finish_rows(a, y, g->ow);
    }
}
#endif
