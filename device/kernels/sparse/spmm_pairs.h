/* Y = A . X for f32 sums from a plan (sparse.h), pixels as vector lanes.
 *
 * What bounds such a product are loads: one of X for each multiply-add, and one of each weight and
 * column. So two rows share the loads of columns that both have, one word brings two columns, and
 * a panel of X that fits in the L1 cache serves all rows. */
#ifndef EK_SPARSE_SPMM_PAIRS_H
#define EK_SPARSE_SPMM_PAIRS_H
#include "spmm.h"

#if EK_VL == 16 || defined __aarch64__ || defined __riscv_v
#define MOST_VECTORS 8 /* vectors at once: of 32 registers, 16 hold sums */
#else
#define MOST_VECTORS 4
#endif
#define PANEL_BYTES 36864 /* of X in the L1 cache */
#define STRIPS 8 /* to a tile that does not stay there: pages are read on, not left at once */
#define GROUPED_USES 64 /* of a pixel that threads bring to their own rows */
#define VALUES (4 * EK_SPMM_PANEL)

/* Where the pixels of a tile are, and which pairs to make. The last vector may overlap the one
 * before. */
typedef struct {
    const float *x;
    float *y;
    long step;           /* of x, between channels */
    long x_last, y_last; /* the last vector */
    long lanes;          /* of y, below HEIGHT */
    long begin, end;     /* pairs */
    long panel;
    int done;  /* it is the last */
    long wide; /* pixels: strips of as many vectors beside each other */
    const ek_spmm_args *limits;
} pixel_tile;

/* The values of a pair as floats; rows alternate. */
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
    for (long i = 0; i < count; i += HEIGHT) {
        vsum v = vsum_from_values(from + i) * scale;
        memcpy(to + i, &v, sizeof v);
    }
    return to;
#endif
}

EK_INLINE vsum load_sums(const float *y, long lanes, const int narrow) {
    vsum v = {0};
    memcpy(&v, y, narrow ? (size_t)lanes * sizeof *y : sizeof v);
    return v;
}

EK_INLINE void store_sums(float *y, vsum v, long lanes, const int narrow) {
    memcpy(y, &v, narrow ? (size_t)lanes * sizeof *y : sizeof v);
}

/* NaN stays NaN. */
EK_INLINE vsum clamped(vsum v, vsum low, vsum high) {
#if EK_VL > 1
    return vf_min(high, vf_max(low, v));
#else
    for (int l = 0; l < HEIGHT; l++) {
        v[l] = v[l] < low[l] ? low[l] : v[l];
        v[l] = v[l] > high[l] ? high[l] : v[l];
    }
    return v;
#endif
}

/* Where vector v is. */
#define AT(v, last) ((v) == nv - 1 ? (last) : (v) * HEIGHT)

EK_INLINE void begin_row(const ek_spmm_args *args, pixel_tile t, vsum *sums, long row, const int nv,
                         const int narrow) {
    const float *bias = args->bias, *y = t.y + row * args->y_row;
    vsum first = splat(bias ? bias[row] : 0);
    EK_UNROLL for (int v = 0; v < nv; v++) sums[v] =
        t.panel ? load_sums(y + AT(v, t.y_last), t.lanes, narrow) : first;
}

EK_INLINE void end_row(const ek_spmm_args *args, pixel_tile t, const vsum *sums, long row,
                       const int nv, const int narrow) {
    const vsum low = splat(t.limits->low), high = splat(t.limits->high);
    float *y = t.y + row * args->y_row;
    const float *other = (const float *)args->residual;
    if (t.done && other) {
        other += y - (const float *)args->y;
        EK_UNROLL for (int v = 0; v < nv; v++) {
            vsum s = sums[v] + load_sums(other + AT(v, t.y_last), t.lanes, narrow);
            store_sums(y + AT(v, t.y_last), clamped(s, low, high), t.lanes, narrow);
        }
        return;
    }
    EK_UNROLL for (int v = 0; v < nv; v++) {
        vsum s = t.done ? clamped(sums[v], low, high) : sums[v];
        store_sums(y + AT(v, t.y_last), s, t.lanes, narrow);
    }
}

/* Adds a pair's products to the sums of its rows. */
EK_INLINE void add_products(const ek_spmm_plan *plan, const ek_spmm_pair *pair, pixel_tile t,
                            const float *w, vsum *a, vsum *b, const int nv) {
    const uint32_t *word = plan->columns + pair->word, *end = word + pair->both;
    const char *x = (const char *)t.x;
    const size_t step = (size_t)t.step * sizeof *t.x;
    for (; word < end; word++, w += 4) {
        const float *x0 = (const float *)(x + (*word & 0xffff) * step);
        const float *x1 = (const float *)(x + (*word >> 16) * step);
        vsum w0 = splat(w[0]), w1 = splat(w[1]), w2 = splat(w[2]), w3 = splat(w[3]);
        EK_UNROLL for (int v = 0; v < nv; v++) {
            vsum both = vsum_from_x(x0 + AT(v, t.x_last));
            a[v] = vsum_fma(w0, both, a[v]);
            b[v] = vsum_fma(w1, both, b[v]);
        }
        EK_UNROLL for (int v = 0; v < nv; v++) {
            vsum both = vsum_from_x(x1 + AT(v, t.x_last));
            a[v] = vsum_fma(w2, both, a[v]);
            b[v] = vsum_fma(w3, both, b[v]);
        }
    }
    for (end = word + pair->single; word < end; word++, w += 2) {
        const float *x0 = (const float *)(x + (*word & 0xffff) * step);
        const float *x1 = (const float *)(x + (*word >> 16) * step);
        vsum w0 = splat(w[0]), w1 = splat(w[1]);
        EK_UNROLL for (int v = 0; v < nv; v++) a[v] =
            vsum_fma(w0, vsum_from_x(x0 + AT(v, t.x_last)), a[v]);
        EK_UNROLL for (int v = 0; v < nv; v++) b[v] =
            vsum_fma(w1, vsum_from_x(x1 + AT(v, t.x_last)), b[v]);
    }
}

/* nv vectors of pixels of a pair of rows, whose weights are w. */
EK_INLINE void one_pair(const ek_spmm_args *args, const ek_spmm_plan *plan,
                        const ek_spmm_pair *pair, pixel_tile t, long at, const float *w,
                        const int nv, const int narrow) {
    t.x += at, t.y += at;
    vsum a[MOST_VECTORS], b[MOST_VECTORS];
    begin_row(args, t, a, pair->row[0], nv, narrow);
    if (pair->row[1] == pair->row[0])
        EK_UNROLL for (int v = 0; v < nv; v++) b[v] = (vsum){0};
    else
        begin_row(args, t, b, pair->row[1], nv, narrow);
    add_products(plan, pair, t, w, a, b, nv);
    if (pair->row[1] == pair->row[0])
        EK_UNROLL for (int v = 0; v < nv; v++) a[v] += b[v];
    else
        end_row(args, t, b, pair->row[1], nv, narrow);
    end_row(args, t, a, pair->row[0], nv, narrow);
}

/* nv vectors of pixels of some pairs of rows. What is given is copied: stores of pixels could
 * change it, as far as a compiler knows. */
EK_INLINE void pairs(const ek_spmm_args *given, pixel_tile t, const int nv, const int narrow) {
    const ek_spmm_args args = *given;
    const ek_spmm_plan plan = *args.a->plan;
    t.limits = given; /* but the limits: as vectors they would take registers of the sums */
    float own[EK_STORED ? VALUES + HEIGHT : 1];
    const ek_spmm_pair *pair = plan.pair + t.panel * plan.pairs + t.begin;
    for (long i = t.begin; i < t.end; i++, pair++) {
        const float *w = decoded(&args, &plan, pair, own);
        for (long at = 0; at < t.wide; at += nv * HEIGHT)
            one_pair(&args, &plan, pair, t, at, w, nv, narrow);
    }
}

#define PAIRS(nv)                                                                                  \
    static void pairs_##nv(const ek_spmm_args *args, pixel_tile t) {                               \
        pairs(args, t, nv, 0);                                                                     \
    }
PAIRS(1)
PAIRS(2)
PAIRS(3)
PAIRS(4)
#if MOST_VECTORS == 8
PAIRS(5)
PAIRS(6)
PAIRS(7)
PAIRS(8)
#endif

static void narrow_pairs(const ek_spmm_args *args, pixel_tile t) {
    pairs(args, t, 1, 1);
}

static void (*const by_vectors[])(const ek_spmm_args *, pixel_tile) = {
    narrow_pairs, pairs_1, pairs_2, pairs_3, pairs_4,
#if MOST_VECTORS == 8
    pairs_5,      pairs_6, pairs_7, pairs_8,
#endif
};

typedef struct {
    const ek_spmm_args *args;
    long vectors, tiles, groups; /* tiles of pixels x groups of pairs */
    long most;                   /* vectors at once */
    int copy;
} pairs_job;

/* `held` pixels of some channels, each channel's vectors on lines of their own; the last vector
 * ends with the last pixel. */
static void bring_together(const float *x, long x_row, long channels, long nv, long held,
                           float *to) {
    if (!nv) {
        for (long c = 0; c < channels; c++, x += x_row, to += HEIGHT)
            memcpy(to, x, (size_t)held * sizeof *x);
        return;
    }
    const long last = held - HEIGHT;
    for (long c = 0; c < channels; c++, x += x_row) {
        for (long v = 0; v < nv; v++, to += HEIGHT) {
            vsum pixels = vsum_from_x(x + AT(v, last));
            memcpy(to, &pixels, sizeof pixels);
        }
    }
}

/* Strips of `nv` vectors from pixel `first`, all panels; 0: the rest of the pixels, fewer than one
 * vector has. */
static void run_pairs(const pairs_job *j, pixel_tile t, long first, long nv, long strips) {
    _Alignas(LINE) float together[PANEL_BYTES / sizeof(float)];
    const ek_spmm_args *args = j->args;
    const ek_spmm_plan *plan = args->a->plan;
    const long cols = (long)args->a->cols, width = ek_max(nv, 1) * HEIGHT;
    const long held = ek_min(width, args->pixels - first);
    t.y = (float *)args->y + first, t.y_last = ek_max(held - HEIGHT, 0), t.lanes = held;
    t.wide = strips * width;
    for (t.panel = 0; t.panel < plan->panels; t.panel++) {
        long from = cols * t.panel / plan->panels, to = cols * (t.panel + 1) / plan->panels;
        const float *x = (const float *)args->x + from * args->x_row + first;
        t.x = x, t.step = args->x_row, t.x_last = t.y_last;
        if (j->copy || !nv) {
            bring_together(x, args->x_row, to - from, nv, held, together);
            t.x = together, t.step = width, t.x_last = width - HEIGHT;
        }
        t.done = t.panel + 1 == plan->panels;
        by_vectors[nv](args, t);
    }
}

/* Vectors `first` to `next`. The last may not be whole: it overlaps the one before, or is alone. */
static void run_tile_of_pairs(const pairs_job *j, pixel_tile t, long first, long next) {
    const int ragged = next * HEIGHT > j->args->pixels;
    const long strips = (next - first - ragged) / j->most;
    if (strips)
        run_pairs(j, t, first * HEIGHT, j->most, strips);
    first += strips * j->most;
    if (first < next)
        run_pairs(j, t, first * HEIGHT, ragged && next - first == 1 ? 0 : next - first, 1);
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
    most = ek_max(ek_min(args->vectors ? args->vectors : most, MOST_VECTORS), 1);
    pairs_job j = {.args = args, .vectors = (args->pixels + HEIGHT - 1) / HEIGHT, .most = most};
    long fits = panel * most * HEIGHT * (long)sizeof(float) <= PANEL_BYTES;
    j.copy = (args->copy < 0 ? wants_copy(args, panel, most) : args->copy) && fits;
    long tile = most * (!j.copy && all_alike(args) ? STRIPS : 1);
    j.tiles = (j.vectors + tile - 1) / tile;
    pool = worthwhile(args->a->plan, j.vectors, pool);
    /* Each group of pairs would bring the same pixels together. */
    if (j.copy && j.tiles < ek_pool_threads(pool) && uses_of(args->a) < GROUPED_USES)
        pool = NULL;
    long wanted = (j.copy ? 1L : 4L) * ek_pool_threads(pool);
    j.groups = pool && j.tiles < wanted ? (wanted + j.tiles - 1) / j.tiles : 1;
    j.groups = ek_max(ek_min(j.groups, (long)plan->pairs), 1);
    ek_parallel(pool, pairs_task, &j, j.tiles * j.groups, 1);
}
#endif
