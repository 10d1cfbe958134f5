/* Strips of tiles for products of few bytes along k (STEPS steps, 1 or 2): a panel's weights and
 * the parameters of its outputs stay in registers while it walks a strip of pixels. Otherwise each
 * tile loads them again, which costs as much as its products. Part of i8_conv.c: all windows of a
 * strip are copied or read in place, and all panels are full. */
#ifndef EK_I8_STRIPS_H
#define EK_I8_STRIPS_H

_Static_assert(MR == 4 && NV == 1 && FINISHES_FULL, "strips are of tiles with full outputs");

typedef struct {
    const elem *at;     /* the first window */
    long apart;         /* from one to the next */
    const int32_t *sum; /* of the windows, if ROW_SUMS */
} strip_t;

/* Copies or finds the windows of `tiles` tiles; returns 0 if x ends too early to read them in
 * place. */
EK_INLINE int find_strip(const ek_i8_conv_args *a, rows_t *rows, elem *scratch, long tile,
                         long tiles, strip_t *strip) {
    const long pixel = tile * MR, count = tiles * MR, c = a->win.c;
    const elem *const x = (const elem *)a->x + pixel * c;
    strip->at = scratch, strip->apart = a->k_padded;
#if ROW_SUMS
    strip->sum = rows->strip_sum;
#endif
    if (a->pointwise) {
        const elem *end = (const elem *)a->x + (long)a->win.n * a->win.h * a->win.w * c;
#if FLIPPED
        flip_pixels(scratch, a->k_padded, x, (int)count, c, end);
#else
        if (x + (count - 1) * c + a->k_padded > end)
            return 0;
        strip->at = x, strip->apart = c;
#endif
    } else {
        copy_all(a, rows, scratch, pixel, (int)count);
    }
#if ROW_SUMS
    const int32_t factor = W_ZERO == 1 ? a->w_zero : 1;
    const long k = (long)a->win.kh * a->win.kw * c;
    for (long i = 0; i < count; i += MR) {
        const elem *const row = strip->at + i * strip->apart;
        const elem *const of[4] = {row, row + strip->apart, row + 2 * strip->apart,
                                   row + 3 * strip->apart};
        vi_store(rows->strip_sum + i, sums_of_rows(of, k) * factor);
    }
#endif
    return 1;
}

#ifdef __aarch64__
/* Makes values here: compilers put products behind each other, and additions behind them. */
#define MADE_HERE(a, b, c, d) __asm__("" : "+w"(a), "+w"(b), "+w"(c), "+w"(d))
#else
#define MADE_HERE(a, b, c, d)
#endif
#define UNITS (STEPS * EK_VL) /* pairs of a step and a column */

/* Two products of `high` or lower halves, from unit u on. */
EK_INLINE void multiply_halves(const vi x[STEPS], const vi w[STEPS][EK_VL], const int u,
                               const int high, vi_short made[2]) {
    EK_UNROLL
    for (int v = u; v < u + 2; v++) {
        const int s = v % STEPS;
        if (!(high && HALF_STEP && s == STEPS - 1))
            made[v - u] = vi_mlal8(made[v - u], x[s], w[s][v / STEPS], high);
    }
}

/* The products of a window by a panel, in an order that a core out of order takes without waiting
 * (gemm/i8_out_of_order.h). In between, requantizes `before`. */
EK_INLINE void multiply_window(vi x[STEPS], const vi w[STEPS][EK_VL], vi part[EK_VL], output *o,
                               vi *before) {
    vi_short last[2] = {{0}};
    EK_UNROLL
    for (int u = 0; u <= UNITS; u += 2) {
        vi_short made[2] = {{0}};
        if (u < UNITS) {
            multiply_halves(x, w, u, 0, made);
            MADE_HERE(x[0], made[0], made[1], *before);
        }
        EK_UNROLL
        for (int v = 0; v < 2 && u > 0; v++) {
            const int j = (u - 2 + v) / STEPS;
            part[j] = (STEPS == 1 || v == 0 ? (vi){0} : part[j]) + vi_of_short(last[v]);
        }
        if (u < UNITS)
            multiply_halves(x, w, u, 1, made);
        if (u == 2) {
            *before = scaled(o, *before);
#ifdef FLOAT_REQUANT
            reload_offset(o);
#endif
        }
        if (u > 0 && u < UNITS)
            MADE_HERE(x[STEPS - 1], made[0], part[u / STEPS - 1], *before);
        last[0] = made[0], last[1] = made[1];
    }
}

EK_INLINE void load_window(const elem *from, vi x[STEPS]) {
    EK_UNROLL
    for (int s = 0; s < STEPS; s++)
        x[s] = i8_vector(from + s * I8_STEP);
}

/* A panel, and the parameters of its outputs. */
typedef struct {
    vi w[STEPS][EK_VL], bias, zeros;
    output out;
    vi_range range;
} strip_panel;

/* The sums of a window x, whose bytes add up to `total`, by a panel. Meanwhile requantizes those of
 * another one, `before`, and loads the window at `from` to x. */
EK_INLINE vi sums_and_scaled(strip_panel *panel, vi x[STEPS], int32_t total, const elem *from,
                             vi *before) {
    vi part[EK_VL], next[STEPS];
    load_window(from, next);
    EK_UNROLL
    for (int s = 0; s < STEPS; s++)
        x[s] ^= vi_splat(FLIP);
    multiply_window(x, panel->w, part, &panel->out, before);
    vi sum = vi_sum4(part[0], part[1], part[2], part[3]) + panel->bias;
#if W_ZERO == 2
    sum -= panel->zeros * vi_splat(total);
#elif ROW_SUMS
    sum -= total;
#endif
    (void)total;
    EK_UNROLL
    for (int s = 0; s < STEPS; s++)
        x[s] = next[s];
    return sum;
}

#if ROW_SUMS
#define TOTAL(strip, pixel) (strip)->sum[pixel]
#else
#define TOTAL(strip, pixel) 0
#endif

/* `pixels` windows by a panel. Outputs are requantized while the next ones are multiplied; those
 * before the first ones are overwritten. */
static void __attribute__((noinline)) strip_by_panel(const ek_i8_conv_args *a, const strip_t *strip,
                                                     const i8_value *weights, long pixels, TY *y,
                                                     long channel) {
    strip_panel panel = {.bias = bias_at(a, channel),
                         .out = output_at(0, a, channel),
                         .range = vi_range_of(a->y_zero, a->low, a->high)};
    const long apart = strip->apart, further = STORE_GROUP * a->pitch;
    const elem *at = strip->at, *const last = at + (pixels - 1) * apart;
    vi x[STEPS], before[STORE_GROUP] = {0};
    TY *to[STORE_GROUP];
#if W_ZERO == 2
    panel.zeros = vi_load(a->w_zeros + channel);
#endif
    EK_UNROLL
    for (int i = 0; i < STEPS * EK_VL; i++)
        panel.w[i / EK_VL][i % EK_VL] = i8_vector(weights + i * 16);
    EK_UNROLL
    for (int q = 0; q < STORE_GROUP; q++)
        to[q] = y + q * a->pitch;
    load_window(at, x);
    for (long p = 0, stored = 0; p < pixels; p += STORE_GROUP, stored = further) {
        vi sum[STORE_GROUP];
        EK_UNROLL
        for (int q = 0; q < STORE_GROUP; q++) {
            at = at < last ? at + apart : last;
            EK_OPAQUE_INDEX(at);
            sum[q] = sums_and_scaled(&panel, x, TOTAL(strip, p + q), at, &before[q]);
        }
        store_quantized(before, &panel.range, to);
        EK_UNROLL
        for (int q = 0; q < STORE_GROUP; q++) {
            before[q] = sum[q];
            to[q] += stored;
        }
    }
    EK_UNROLL
    for (int q = 0; q < STORE_GROUP; q++)
        before[q] = scaled(&panel.out, before[q]);
    store_quantized(before, &panel.range, to);
}

/* Computes all panels of up to `tiles` tiles from `tile` on; returns how many tiles. */
static long strip_of_tiles(const ek_i8_conv_args *a, rows_t *rows, elem *scratch, long tile,
                           long tiles) {
    strip_t strip;
    tiles = ek_min(tiles, STRIP_TILES);
    if (tiles < 2 || !find_strip(a, rows, scratch, tile, tiles, &strip))
        return 0;
    const i8_value *panel = a->weights;
    TY *const y = (TY *)a->y + tile * MR * a->pitch;
    for (long channel = 0; channel < a->win.oc; channel += EK_VL, panel += EK_VL * a->k_padded)
        strip_by_panel(a, &strip, panel, tiles * MR, y + channel, channel);
    finish_panels(a, tile * MR, tiles * MR, 0, a->win.oc);
    return tiles;
}
#endif
