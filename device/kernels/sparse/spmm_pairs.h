/* Y = A . X for f32 sums from a plan (sparse.h), with pixels as vector lanes.
 *
 * These products are bound by loads: one of X per multiply-add, and one per weight and column. So
 * two rows share the loads of common columns, one word holds two columns, and a panel of X that
 * fits L1 serves all rows. EK_IN_ORDER: in-order cores. */
#ifndef EK_SPARSE_SPMM_PAIRS_H
#define EK_SPARSE_SPMM_PAIRS_H
#include "../touch.h"
#include "spmm_sums.h"

#ifndef EK_IN_ORDER
#define EK_IN_ORDER 0
#endif
/* A word is two columns: in models of 8 bits each, as panels have at most 256 columns, else 16. */
#ifdef EK_BYTE_COLUMNS
typedef uint16_t word_of_columns;
#else
typedef uint32_t word_of_columns;
#endif
#define COLUMN_BITS (4 * (int)sizeof(word_of_columns))
#define FIRST_COLUMN(word) ((word) & ((1u << COLUMN_BITS) - 1))
#define SECOND_COLUMN(word) ((uint32_t)(word) >> COLUMN_BITS)
#define PANEL_BYTES 36864 /* of X in L1 */
_Static_assert(EK_SPMM_PANEL *HEIGHT * sizeof(float) <= PANEL_BYTES, "a vector of a panel fits");
#define STRIPS 8        /* per tile that exceeds L1: reads further within each page */
#define GROUPED_USES 64 /* uses of a pixel from which threads copy pixels for their own rows */
#define VALUES (4 * EK_SPMM_PANEL)
/* Whether a pair's weights are loaded while the previous pair is computed; x86-64 was not timed
 * with it. */
#if defined __x86_64__
#define LOADS_WEIGHTS 0
#else
#define LOADS_WEIGHTS 1
#endif
#define MIN_PREFETCHED 4096 /* floats of X from which the next tile's are loaded ahead */
#if EK_VL == 16             /* few iterations, some of which an unrolled loop would leave over */
#define ROLLED _Pragma("clang loop unroll(disable)")
#else
#define ROLLED
#endif

/* A pair's values as floats; rows alternate. */
EK_INLINE const float *decoded(const ek_spmm_args *args, const ek_spmm_plan *plan,
                               const ek_spmm_pair *pair, float *to) {
    const value *from = (const value *)plan->values + pair->value;
#if EK_STORED == 0
    (void)args, (void)to;
    return from;
#else
    long count = 4L * pair->both + 2L * pair->single;
    vsum scale = splat(1);
#if EK_STORED == 4
    for (int l = 0; l < HEIGHT; l++)
        scale[l] = args->a->scale[pair->row[l % 2]];
#endif
    ROLLED for (long i = 0; i < count; i += HEIGHT) {
        vsum v = vsum_from_values(from + i) * scale;
        memcpy(to + i, &v, sizeof v);
    }
    return to;
#endif
}

/* The pixels of a column. ARM computes the byte address with one multiply-add, x86-64 with scaled
 * addressing. */
EK_INLINE const float *column_of(pixel_tile t, uint32_t column) {
#ifdef __x86_64__
    const float *x = t.x + column * (size_t)t.step;
    EK_OPAQUE_ADDRESS(x);
    return x;
#else
    return (const float *)((const char *)t.x + column * ((size_t)t.step * sizeof *t.x));
#endif
}

EK_INLINE void add_column(const float *x, vsum w, row_sums *sums, const int nv, enum ending end) {
    EK_UNROLL for (int v = 0; v < nv; v++) sums->v[v] =
        vsum_fma(w, vsum_from_x(x + v * HEIGHT), sums->v[v]);
    if (end == TAILED)
        sums->tail = tail_fma(w, x + nv * HEIGHT, sums->tail);
}

EK_INLINE void add_to_both(const float *x, vsum wa, vsum wb, row_sums *a, row_sums *b, const int nv,
                           enum ending end) {
    EK_UNROLL for (int v = 0; v < nv; v++) {
        vsum both = vsum_from_x(x + v * HEIGHT);
        a->v[v] = vsum_fma(wa, both, a->v[v]);
        b->v[v] = vsum_fma(wb, both, b->v[v]);
    }
    if (end == TAILED) {
        a->tail = tail_fma(wa, x + nv * HEIGHT, a->tail);
        b->tail = tail_fma(wb, x + nv * HEIGHT, b->tail);
    }
}

/* Adds a pair's products to the sums of its rows. */
EK_INLINE void add_products(const ek_spmm_plan *plan, const ek_spmm_pair *pair, pixel_tile t,
                            const float *w, row_sums *a, row_sums *b, const int nv,
                            enum ending end) {
    const word_of_columns *word = (const word_of_columns *)plan->columns + pair->word;
    const word_of_columns *last = word + pair->both;
    for (; word < last; word++, w += 4) {
        vsum w0 = weight(w[0], end), w1 = weight(w[1], end), w2 = weight(w[2], end),
             w3 = weight(w[3], end);
        add_to_both(column_of(t, FIRST_COLUMN(*word)), w0, w1, a, b, nv, end);
#ifdef __riscv_v
        EK_IN_ORDER_HERE; /* otherwise loads of both columns come first, and sums are spilled */
#endif
        add_to_both(column_of(t, SECOND_COLUMN(*word)), w2, w3, a, b, nv, end);
    }
    for (last = word + pair->single; word < last; word++, w += 2) {
        vsum w0 = weight(w[0], end), w1 = weight(w[1], end);
        add_column(column_of(t, FIRST_COLUMN(*word)), w0, a, nv, end);
        add_column(column_of(t, SECOND_COLUMN(*word)), w1, b, nv, end);
    }
}

/* nv vectors of pixels of a pair of rows with weights w. */
EK_INLINE void one_pair(const ek_spmm_args *args, const ek_spmm_plan *plan,
                        const ek_spmm_pair *pair, pixel_tile t, long at, const float *w,
                        const int nv, enum ending end) {
    t.x += at, t.y += at;
    const uint32_t *row = pair->row;
    const int alone = row[1] == row[0];
    const float *bias = args->bias;
    float *ya = t.y + row[0] * args->y_row, *yb = t.y + row[1] * args->y_row;
    row_sums a, b;
    if (t.panel) {
        load_row(t, ya, &a, nv, end);
        load_row(t, yb, &b, nv, end);
    } else {
        fill_row(&a, splat(bias ? bias[row[0]] : 0), nv);
        fill_row(&b, splat(bias ? bias[row[1]] : 0), nv);
    }
    if (alone)
        fill_row(&b, splat(0), nv);
    if (FETCHES_SUMS && nv == MOST_VECTORS && t.fetch)
        fetch_row(ya, nv), fetch_row(yb, nv);
    add_products(plan, pair, t, w, &a, &b, nv, end);
    if (alone)
        add_row(&a, &b, nv);
    if (t.done) {
        const float *residual = args->residual;
        if (residual) {
            row_sums other;
            load_row(t, residual + (ya - (float *)args->y), &other, nv, end);
            add_row(&a, &other, nv);
            load_row(t, residual + (yb - (float *)args->y), &other, nv, end);
            add_row(&b, &other, nv);
        }
        if (t.clamp) {
            clamp_row(&a, t.limits, nv);
            clamp_row(&b, t.limits, nv);
        }
    }
    if (!alone)
        store_row(t, yb, &b, nv, end);
    store_row(t, ya, &a, nv, end);
}

/* Touches the lines of a pair's weights: from DRAM they take as long as computing the previous
 * pair. */
EK_INLINE void load_weights_ahead(const ek_spmm_plan *plan, const ek_spmm_pair *pair) {
    const long words = (long)pair->both + pair->single;
    const long values = (2L * pair->both + words * 2L) * (long)sizeof(value);
    const char *value_at = (const char *)plan->values + pair->value * sizeof(value);
    for (long at = 0; at < values; at += LINE)
        ek_touch((const float *)(value_at + at));
    const word_of_columns *column = (const word_of_columns *)plan->columns + pair->word;
    for (long at = 0; at < words; at += LINE / (long)sizeof *column)
        ek_touch((const float *)(const void *)(column + at));
}

/* nv vectors of pixels of some pairs of rows. Copies the arguments, because stores of pixels might
 * alias them. */
EK_INLINE void pairs(const ek_spmm_args *given, pixel_tile t, const int nv, enum ending end) {
    const ek_spmm_args args = *given;
    const ek_spmm_plan plan = *args.a->plan;
    t.limits = given; /* except the limits, which as vectors would take registers from the sums */
    _Alignas(LINE) float own[EK_STORED ? VALUES + HEIGHT : 1];
    const ek_spmm_pair *pair = plan.pair + t.panel * plan.pairs + t.begin;
    for (long i = t.begin; i < t.end; i++, pair++) {
        const float *w = decoded(&args, &plan, pair, own);
        if (LOADS_WEIGHTS && t.cold && i + 1 < t.end)
            load_weights_ahead(&plan, pair + 1);
        for (long at = 0; at < t.wide; at += nv * HEIGHT)
            one_pair(&args, &plan, pair, t, at, w, nv, end);
    }
}

#define PAIRS(name, nv, end)                                                                       \
    static void name(const ek_spmm_args *args, pixel_tile t) {                                     \
        pairs(args, t, nv, end);                                                                   \
    }
PAIRS(narrow_pairs, 1, NARROW)
PAIRS(pairs_1, 1, FULL)
PAIRS(pairs_2, 2, FULL)
PAIRS(pairs_3, 3, FULL)
#if MOST_VECTORS >= 4
PAIRS(pairs_4, 4, FULL)
#endif
#if MOST_VECTORS >= 8
PAIRS(pairs_5, 5, FULL)
PAIRS(pairs_6, 6, FULL)
PAIRS(pairs_7, 7, FULL)
PAIRS(pairs_8, 8, FULL)
#endif
#if MOST_VECTORS == 12
PAIRS(pairs_9, 9, FULL)
PAIRS(pairs_10, 10, FULL)
PAIRS(pairs_11, 11, FULL)
PAIRS(pairs_12, 12, FULL)
#endif
#if TAIL
PAIRS(tailed_1, 1, TAILED)
PAIRS(tailed_2, 2, TAILED)
PAIRS(tailed_3, 3, TAILED)
PAIRS(tailed_4, 4, TAILED)
PAIRS(tailed_5, 5, TAILED)
PAIRS(tailed_6, 6, TAILED)
PAIRS(tailed_7, 7, TAILED)
#endif

typedef void (*pairs_kernel)(const ek_spmm_args *, pixel_tile);
static const pairs_kernel by_vectors[] = {
    narrow_pairs, pairs_1,  pairs_2,  pairs_3,
#if MOST_VECTORS >= 4
    pairs_4,
#endif
#if MOST_VECTORS >= 8
    pairs_5,      pairs_6,  pairs_7,  pairs_8,
#endif
#if MOST_VECTORS == 12
    pairs_9,      pairs_10, pairs_11, pairs_12,
#endif
#if TAIL
    tailed_1,     tailed_2, tailed_3, tailed_4, tailed_5, tailed_6, tailed_7,
#endif
};

typedef struct {
    const ek_spmm_args *args;
    long vectors, tiles, groups; /* tiles of pixels x groups of pairs */
    long most;                   /* vectors at once */
    int copy, ahead;
} pairs_job;

/* Copies `held` pixels of some channels, with line-aligned vectors per channel; the last vector, or
 * the tail, ends at the last pixel. */
static void copy_pixels(const float *x, long x_row, long channels, long nv, int tailed, long held,
                        float *to) {
    if (!nv) {
        for (long c = 0; c < channels; c++, x += x_row, to += HEIGHT)
            memcpy(to, x, (size_t)held * sizeof *x);
        return;
    }
    for (long c = 0; c < channels; c++, x += x_row) {
        for (long v = 0; v < nv; v++, to += HEIGHT) {
            vsum pixels = vsum_from_x(x + (v == nv - 1 && !tailed ? held - HEIGHT : v * HEIGHT));
            memcpy(to, &pixels, sizeof pixels);
        }
        if (tailed) {
            memcpy(to, x + held - TAIL, TAIL * sizeof *x);
            to += HEIGHT;
        }
    }
}

/* Whether to load the next tile's pixels ahead: in-order cores would wait for each line; others
 * benefit only if each line is used a few times and cannot stay in the cache. */
EK_INLINE int loads_ahead(const pairs_job *j) {
#ifdef __x86_64__
    (void)j;
    return 0;
#else
    const ek_spmm_args *args = j->args;
    if (j->groups > 1 || (long)args->a->cols * args->pixels < MIN_PREFETCHED)
        return 0;
    return EK_IN_ORDER || (all_share_sets(args) && uses_of(args->a) < FEW_USES);
#endif
}

/* Touches up to `wide` pixels starting at `first`, of all channels. */
static void load_ahead(const ek_spmm_args *args, long first, long wide) {
    const long held = ek_min(wide, args->pixels - first);
    const float *x = (const float *)args->x + first;
    for (long c = 0; c < (long)args->a->cols; c++, x += args->x_row)
        for (long p = 0; p < held; p += LINE / (long)sizeof *x)
            ek_touch(x + p);
}

/* Strips of `nv` vectors starting at pixel `first`, all panels; 0: the remaining pixels, fewer than
 * a vector. tailed: plus a tail. */
static void run_pairs(const pairs_job *j, pixel_tile t, long first, long nv, int tailed,
                      long strips) {
    _Alignas(LINE) float together[PANEL_BYTES / sizeof(float)];
    const ek_spmm_args *args = j->args;
    const ek_spmm_plan *plan = args->a->plan;
    const long cols = (long)args->a->cols, width = ek_max(nv + tailed, 1) * HEIGHT;
    const long held = ek_min(width, args->pixels - first);
    t.y = (float *)args->y + first, t.y_last = ek_max(held - (tailed ? TAIL : HEIGHT), 0);
    t.lanes = held, t.wide = strips * ek_max(nv, 1) * HEIGHT;
    t.fetch = strips > 1 && args->a->rows > args->a->cols;
    t.cold = first == 0;
    t.clamp = args->low > -INFINITY || args->high < INFINITY;
    if (j->ahead)
        load_ahead(args, first + t.wide, t.wide);
    for (t.panel = 0; t.panel < plan->panels; t.panel++) {
        long from = cols * t.panel / plan->panels, to = cols * (t.panel + 1) / plan->panels;
        const float *x = (const float *)args->x + from * args->x_row + first;
        t.x = x, t.step = args->x_row;
        if (j->copy || held < width) {
            const int ends = CHECKS_TAIL ? tailed : 0;
            copy_pixels(x, args->x_row, to - from, nv, ends, held, together);
            t.x = together, t.step = width;
        }
        t.done = t.panel + 1 == plan->panels;
        by_vectors[tailed ? MOST_VECTORS + nv : nv](args, t);
    }
}

/* Vectors `first` to `next`. If the last one is partial, it becomes a tail, overlaps the previous
 * one, or is processed alone. */
static void run_tile_of_pairs(const pairs_job *j, pixel_tile t, long first, long next) {
    const long missing = next * HEIGHT - j->args->pixels; /* pixels missing in the last vector */
    const int ragged = missing > 0;
    const long strips = (next - first - ragged) / j->most;
    if (strips)
        run_pairs(j, t, first * HEIGHT, j->most, 0, strips);
    first += strips * j->most;
    if (first == next)
        return;
    if (ragged && next - first == 1)
        run_pairs(j, t, first * HEIGHT, 0, 0, 1);
    else if (ragged && missing >= HEIGHT - TAIL)
        run_pairs(j, t, first * HEIGHT, next - first - 1, 1, 1);
    else
        run_pairs(j, t, first * HEIGHT, next - first, 0, 1);
}

static void pairs_task(const void *given, long begin, long end) {
    const pairs_job *j = given;
    const long count = (long)j->args->a->plan->pairs;
    for (long i = begin; i < end; i++) {
        long group = i % j->groups, at = i / j->groups;
        pixel_tile t = {.begin = count * group / j->groups, .end = count * (group + 1) / j->groups};
        run_tile_of_pairs(j, t, j->vectors * at / j->tiles, j->vectors * (at + 1) / j->tiles);
    }
}

EK_INLINE void by_pairs(const ek_spmm_args *args, ek_pool *pool) {
    const ek_spmm_plan *plan = args->a->plan;
    long panel = (long)((args->a->cols + plan->panels - 1) / plan->panels);
    long most = PANEL_BYTES / (HEIGHT * (long)sizeof(float)) / ek_max(panel, 1);
    most = ek_min(most, args->vectors ? args->vectors : MOST_VECTORS);
    pairs_job j = {.args = args, .vectors = (args->pixels + HEIGHT - 1) / HEIGHT};
    j.most = ek_max(ek_min(most, MOST_VECTORS), 1);
    j.copy = args->copy < 0 ? wants_copy(args, panel, j.most) : args->copy;
    long tile = j.most * (!j.copy && all_share_sets(args) ? STRIPS : 1);
    j.tiles = (j.vectors + tile - 1) / tile;
    pool = worthwhile(args->a->plan, j.vectors, pool);
    /* Otherwise each group of pairs would copy the same pixels. */
    if (j.copy && j.tiles < ek_pool_threads(pool) && uses_of(args->a) < GROUPED_USES)
        pool = NULL;
    long wanted = (j.copy ? 1L : 4L) * ek_pool_threads(pool);
    j.groups = pool && j.tiles < wanted ? (wanted + j.tiles - 1) / j.tiles : 1;
    j.groups = ek_max(ek_min(j.groups, (long)plan->pairs), 1);
    j.ahead = loads_ahead(&j);
    ek_parallel(pool, pairs_task, &j, j.tiles * j.groups, 1);
}
#endif
