/* A pruned convolution with a window, channels first: pixels are vector lanes, and nonzero weights
 * are processed one by one, as in products of pruned weights (spmm_pairs.h).
 *
 * Compile-time parameters: NAME, EK_STORED (0), EK_IN_ORDER. A band's input rows are copied to
 * scratch with their padding, as many channels at a time as fit L1. In this copy, each tap of a
 * channel is the same pixels at another offset, so that a weight's column is that offset. Rows of a
 * band are contiguous: vectors run across the padding between rows, and results there are skipped
 * when sums are copied to y. */
#include "window.h"
#include "spmm_pairs.h"

#define THREADED_WINDOW                                                                            \
    (1L << 12) /* vectors multiplied or copied that are worth waking a thread for */

EK_INLINE void clear(float *to, long begin, long end) {
    for (long i = begin; i < end; i++)
        to[i] = 0;
}

/* Copies a line with its padding; stride phases of the columns are `apart`. A window of one column
 * needs only the first phase. */
EK_INLINE void copy_line(const ek_window *g, const float *from, float *to, long pitch, long apart) {
    const long sw = g->sw, left = g->left;
    for (long f = 0; f < (g->kw == 1 ? 1 : sw); f++, to += apart) {
        const long first = ek_min(f < left ? (left - f + sw - 1) / sw : 0, pitch);
        const long end = ek_max(ek_min((left + g->w - f + sw - 1) / sw, pitch), first);
        const float *x = from + first * sw + f - left;
        clear(to, 0, first);
        if (sw == 1)
            memcpy(to + first, x, (size_t)(end - first) * sizeof *x);
        else
            for (long i = first; i < end; i++, x += sw)
                to[i] = *x;
        clear(to, end, pitch);
    }
}

/* Copies the input rows of `rows` output rows from oy on, for some channels. A line's padding
 * precedes the next line, so it is written separately after the last one. */
static void copy_lines(const ek_sparse_window_args *l, const float *x, long channels, long oy,
                       long rows, float *to) {
    const ek_window *g = &l->win;
    const long apart = l->lines * l->pitch, channel = g->sh * g->sw * apart;
    const long lines = (rows - 1) * g->sh + (long)(g->kh - 1) * g->dh + 1;
    for (long c = 0; c < channels; c++, x += (long)g->h * g->w, to += channel) {
        for (long i = 0; i < lines; i += g->kh == 1 ? g->sh : 1) {
            const long iy = oy * g->sh + i - g->top;
            float *line = to + i % g->sh * g->sw * apart + i / g->sh * l->pitch;
            if (iy >= 0 && iy < g->h)
                copy_line(g, x + iy * g->w, line, l->pitch, apart);
            else
                for (long f = 0; f < g->sw; f++)
                    clear(line + f * apart, 0, l->pitch);
        }
        for (long i = 0; i < g->sh * g->sw; i++) {
            float *end = to + i * apart + (lines - i / g->sw + g->sh - 1) / g->sh * l->pitch;
            clear(end, 0, g->left / g->sw);
        }
    }
    clear(to, 0, g->left / g->sw + HEIGHT);
}

/* Adds a panel's products to `vectors` vectors of sums, in tiles of nearly equal size. */
static void add_panel(const ek_spmm_args *args, long panel, long vectors) {
    const long tiles = (vectors + MOST_VECTORS - 1) / MOST_VECTORS;
    const long nv = (vectors + tiles - 1) / tiles, rest = vectors % nv;
    pixel_tile t = {.x = args->x, .y = args->y, .step = 1, .lanes = HEIGHT};
    t.panel = panel, t.end = (long)args->a->plan->pairs;
    t.y_last = (nv - 1) * HEIGHT, t.wide = (vectors - rest) * HEIGHT;
    by_vectors[nv](args, t);
    if (rest) {
        t.x += t.wide, t.y += t.wide;
        t.y_last = (rest - 1) * HEIGHT, t.wide = rest * HEIGHT;
        by_vectors[rest](args, t);
    }
}

EK_INLINE void finish(const ek_sparse_window_args *l, const float *sums, long at, long n) {
    const enum ending end = n < HEIGHT ? NARROW : FULL;
    vsum v = load_sums(sums, n, end);
    if (l->residual)
        v += load_sums(l->residual + at, n, end);
    store_sums(l->y + at, clamped(v, splat(l->low), splat(l->high)), n, end);
}

/* Stores a channel's results, the first of which is y[at], from its sums. */
static void finish_rows(const ek_sparse_window_args *l, const float *sums, long at, long rows) {
    const long width = l->win.ow, full = width / HEIGHT * HEIGHT;
    for (; rows > 0; rows--, sums += l->pitch, at += width) {
        for (long i = 0; i < full; i += HEIGHT)
            finish(l, sums + i, at + i, HEIGHT);
        if (full && full < width) /* the last vector overlaps the previous one */
            finish(l, sums + width - HEIGHT, at + width - HEIGHT, HEIGHT);
        else if (!full)
            finish(l, sums, at, width);
    }
}

/* Computes `rows` output rows of an image, starting at oy. */
static void make_rows(const ek_sparse_window_args *l, long image, long oy, long rows) {
    const ek_window *g = &l->win;
    const long plane = (long)g->h * g->w;
    const long vectors = ((rows - 1) * l->pitch + g->ow + HEIGHT - 1) / HEIGHT;
    _Alignas(LINE) float x[EK_SPARSE_WINDOW_SCRATCH], sums[EK_SPARSE_WINDOW_SCRATCH];
    const ek_spmm_weights a = {.plan = &l->plan};
    const ek_spmm_args args = {
        .a = &a, .x = x, .y = sums, .y_row = vectors * HEIGHT, .bias = l->bias};
    for (long panel = 0; panel < l->plan.panels; panel++) {
        const long first = panel * l->channels, channels = ek_min(l->channels, g->c - first);
        copy_lines(l, l->x + (image * g->c + first) * plane, channels, oy, rows, x);
        add_panel(&args, panel, vectors);
    }
    for (long c = 0; c < g->oc; c++)
        finish_rows(l, sums + c * args.y_row, ((image * g->oc + c) * g->oh + oy) * g->ow, rows);
}

typedef struct {
    const ek_sparse_window_args *l;
    long rows, bands; /* rows per task; tasks per image */
} window_job;

static void window_task(const void *given, long begin, long end) {
    const window_job *j = given;
    for (long i = begin; i < end; i++) {
        const long oy = i % j->bands * j->rows;
        make_rows(j->l, i / j->bands, oy, ek_min(j->rows, j->l->win.oh - oy));
    }
}

/* Whether waking threads is worthwhile, by vectors multiplied and copied. */
static int is_large(const ek_sparse_window_args *l) {
    const ek_window *g = &l->win;
    const ek_spmm_pair *last = l->plan.pair + l->plan.panels * l->plan.pairs - 1;
    const long values = (long)last->value + 4L * last->both + 2L * last->single;
    const long pixels = (long)g->n * g->oh * g->ow, inputs = (long)g->n * g->c * g->h * g->w;
    return (values * pixels + inputs) / HEIGHT >= THREADED_WINDOW;
}

/* Bands are shortened if threads would have none, or unequal numbers. This does not affect any
 * sum. */
void NAME(const void *args, ek_pool *pool) {
    const ek_sparse_window_args *l = args;
    window_job j = {l, l->band, (l->win.oh + l->band - 1) / l->band};
    if (!is_large(l))
        pool = NULL;
    const long threads = pool ? ek_pool_threads(pool) : 1;
    if (l->win.n * j.bands < 2 * threads) {
        const long wanted = (j.bands + threads - 1) / threads * threads;
        j.rows = (l->win.oh + wanted - 1) / wanted;
        j.bands = (l->win.oh + j.rows - 1) / j.rows;
    }
    ek_parallel(pool, window_task, &j, l->win.n * j.bands, 1);
}
