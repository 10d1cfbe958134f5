/* Depthwise convolution of floats, NHWC: GROUP channel blocks of each pixel at once, so that a
 * cache line is read as a whole. dwconv.c reads a block of many pixels first; where their addresses
 * share few sets of the cache, as with channels by powers of two, these lines are evicted before
 * the next block is read.
 *
 * Compile-time parameters: NAME, EK_SIMD, TX, FLOAT_X, KH, KW, SH, SW, ROWS and PITCHED as in
 * dwconv.c, and those of dwconv_values.h. Channels are a multiple of BLOCK, and at least CHANNELS.
 */
#include "dwconv.h"
#include "dwconv_values.h"

#define GROUP EK_DEPTHWISE_BLOCKS
#define CHANNELS (GROUP * BLOCK)
#define TW EK_DEPTHWISE_BLOCKS_TILE
#define LINES(rows) (((rows) - 1) * SH + KH) /* rows of x read for `rows` rows of y */
#define COLUMNS(tw) (((tw) - 1) * SW + KW)
/* Computes v here: the compiler would load inputs of further rows first, and spill them. */
#define FINISH_HERE(v) __asm__ volatile("" : "+w"(v)::"memory")
#define PAIR 2 /* blocks whose inputs are in registers at the same time */

/* Addresses that a tile reads and writes, at its group's first channel. */
typedef struct {
    const TX *line[LINES(ROWS)]; /* at column 0 */
    const TX *border;
    const weight_t *weights; /* [block][tap][BLOCK] */
    TX *y;
    long left, width;       /* of the window, and of x */
    long step, y_step, row; /* elements per pixel of x and of y, and per row of y */
} place_t;

/* The sums of a row of x with PAIR blocks of weights. */
EK_INLINE void add_line(const int rows, const int tw, const int r, const int first,
                        const TX *const column[], const place_t *at, sum_t acc[ROWS][TW][GROUP]) {
    x_v x[COLUMNS(TW)][PAIR];
    EK_UNROLL
    for (int s = 0; s < COLUMNS(tw) * PAIR; s++)
        x[s / PAIR][s % PAIR] = x_at(column[s / PAIR] + (first + s % PAIR) * BLOCK);
    EK_UNROLL
    for (int i = 0; i < rows; i++) {
        const int ky = r - i * SH;
        EK_UNROLL
        for (int t = 0; ky >= 0 && ky < KH && t < KW * PAIR; t++) {
            const int kx = t / PAIR, j = t % PAIR;
            const weight_v w =
                weight_at(at->weights + (((first + j) * KH + ky) * KW + kx) * BLOCK, 0);
            EK_UNROLL
            for (int o = 0; o < tw; o++)
                acc[i][o][first + j] = multiply_add(acc[i][o][first + j], x[o * SW + kx][j], w);
        }
    }
    EK_UNROLL
    for (int i = 0; i < rows * tw * PAIR; i++)
        FINISH_HERE(acc[i / PAIR / tw][i / PAIR % tw][first + i % PAIR]);
}

/* rows x tw pixels of CHANNELS channels from c on; ix is the first window's first column. */
EK_INLINE void tile(const int rows, const int tw, const int inside, const ek_dwconv_args *a,
                    const place_t *at, long c, long ox) {
    const long ix = ox * SW - at->left;
    sum_t acc[ROWS][TW][GROUP];
    EK_UNROLL
    for (int i = 0; i < rows * tw * GROUP; i++)
        acc[i / GROUP / tw][i / GROUP % tw][i % GROUP] = bias_at(a, c + i % GROUP * BLOCK);
    EK_UNROLL
    for (int r = 0; r < LINES(rows); r++) {
        const TX *column[COLUMNS(TW)];
        EK_UNROLL
        for (int s = 0; s < COLUMNS(tw); s++) {
            const int there = inside || (ix + s >= 0 && ix + s < at->width);
            column[s] = there ? at->line[r] + (ix + s) * at->step : at->border;
        }
        EK_UNROLL
        for (int first = 0; first < GROUP; first += PAIR)
            add_line(rows, tw, r, first, column, at, acc);
    }
    EK_UNROLL
    for (int j = 0; j < GROUP; j++) {
        const output o = output_at(a, c + j * BLOCK);
        EK_UNROLL
        for (int i = 0; i < rows * tw; i++)
            finish(&o, acc[i / tw][i % tw][j],
                   at->y + i / tw * at->row + (ox + i % tw) * at->y_step + j * BLOCK, BLOCK);
    }
}

/* Columns [from, until) of `rows` output rows, starting at row oy, which is stored at y. */
EK_INLINE void strip_at(const int rows, const ek_dwconv_args *a, const TX *image, long oy, TX *y,
                        long from, long until) {
    const ek_window *g = &a->win;
    place_t at = {.left = g->left,
                  .width = g->w,
                  .step = X_PITCH(a),
                  .y_step = PITCH(a),
                  .row = g->ow * PITCH(a)};
    for (long c = 0; c < g->c;
         c = c + CHANNELS < g->c ? ek_min(c + CHANNELS, g->c - CHANNELS) : g->c) {
        at.border = (const TX *)a->border + c;
        at.weights = (const weight_t *)a->weights + c * KH * KW;
        at.y = y + c;
        EK_UNROLL
        for (int r = 0; r < LINES(rows); r++) {
            const long iy = oy * SH - g->top + r;
            at.line[r] = iy >= 0 && iy < g->h ? image + iy * g->w * at.step + c : at.border;
        }
        long ox = from;
        for (; ox + TW <= until; ox += TW) {
            const long ix = ox * SW - g->left;
            if (ix >= 0 && ix + COLUMNS(TW) <= g->w)
                tile(rows, TW, 1, a, &at, c, ox);
            else
                tile(rows, TW, 0, a, &at, c, ox);
        }
        for (; ox < until; ox++)
            tile(rows, 1, 0, a, &at, c, ox);
    }
}

/* `rows` output rows from row oy on, tiled by strips of columns: each strip computes all channels
 * while its input lines are in L1. */
EK_INLINE void rows_at(const int rows, const int full, const ek_dwconv_args *a, const TX *image,
                       long oy, TX *y) {
    (void)full;
    const long ow = a->win.ow, strip = (long)a->strip * TW;
    for (long from = 0; from < ow; from += strip)
        strip_at(rows, a, image, oy, y, from, ek_min(from + strip, ow));
    finish_rows(a, y, (long)rows * ow);
}

#define HAS_BLOCK(g) 1
#include "dwconv_rows.h"
