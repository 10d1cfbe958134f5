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
} pixel_tile;

/* The values of a pair as floats; rows alternate. */
EK_INLINE const float *decoded(const ek_spmm_args *args, const ek_spmm_pair *pair, float *to) {
    const value *from = (const value *)args->a->plan->values + pair->value;
#if EK_STORED == 0
    (void)to;
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
    const vsum low = splat(args->low), high = splat(args->high);
    const int done = t.panel + 1 == args->a->plan->panels;
    float *y = t.y + row * args->y_row;
    const float *other = (const float *)args->residual;
    if (done && other) {
        other += y - (const float *)args->y;
        EK_UNROLL for (int v = 0; v < nv; v++) {
            vsum s = sums[v] + load_sums(other + AT(v, t.y_last), t.lanes, narrow);
            store_sums(y + AT(v, t.y_last), clamped(s, low, high), t.lanes, narrow);
        }
        return;
    }
    EK_UNROLL for (int v = 0; v < nv; v++) {
        vsum s = done ? clamped(sums[v], low, high) : sums[v];
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

/* nv vectors of pixels of some pairs of rows. */
EK_INLINE void pairs(const ek_spmm_args *args, pixel_tile t, const int nv, const int narrow) {
    const ek_spmm_plan *plan = args->a->plan;
    float own[EK_STORED ? VALUES + HEIGHT : 1];
    for (long i = t.begin; i < t.end; i++) {
        const ek_spmm_pair *pair = plan->pair + t.panel * plan->pairs + i;
        const float *w = decoded(args, pair, own);
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
    int copy;
} pairs_job;

/* The next tile of all panels: `nv` vectors from pixel `first`; 0: the rest of the pixels, fewer
 * than one has. */
static void run_pairs(const pairs_job *j, pixel_tile t, long first, long nv) {
    _Alignas(LINE) float together[PANEL_BYTES / sizeof(float)];
    const ek_spmm_args *args = j->args;
    const ek_spmm_plan *plan = args->a->plan;
    const long cols = (long)args->a->cols, width = ek_max(nv, 1) * HEIGHT;
    const long held = ek_min(width, args->pixels - first);
    t.y = (float *)args->y + first, t.y_last = ek_max(held - HEIGHT, 0), t.lanes = held;
    for (t.panel = 0; t.panel < plan->panels; t.panel++) {
        long from = cols * t.panel / plan->panels, to = cols * (t.panel + 1) / plan->panels;
        const float *x = (const float *)args->x + from * args->x_row + first;
        t.x = x, t.step = args->x_row, t.x_last = t.y_last;
        if (j->copy || !nv) {
            for (long c = 0; c < to - from; c++)
                memcpy(together + c * width, x + c * args->x_row, (size_t)held * sizeof *x);
            t.x = together, t.step = width;
        }
        by_vectors[nv](args, t);
    }
}

static void pairs_task(const void *given, long begin, long end) {
    const pairs_job *j = given;
    const long count = (long)j->args->a->plan->pairs;
    for (long i = begin; i < end; i++) {
        long group = i % j->groups, at = i / j->groups;
        pixel_tile t = {.begin = count * group / j->groups, .end = count * (group + 1) / j->groups};
        long first = j->vectors * at / j->tiles, next = j->vectors * (at + 1) / j->tiles;
        int narrow = next - first == 1 && next * HEIGHT > j->args->pixels;
        run_pairs(j, t, first * HEIGHT, narrow ? 0 : next - first);
    }
}

EK_INLINE void by_pairs(const ek_spmm_args *args, ek_pool *pool) {
    const ek_spmm_plan *plan = args->a->plan;
    long panel = (long)((args->a->cols + plan->panels - 1) / plan->panels);
    long most = PANEL_BYTES / (HEIGHT * (long)sizeof(float)) / ek_max(panel, 1);
    most = ek_max(ek_min(args->vectors ? args->vectors : most, MOST_VECTORS), 1);
    pairs_job j = {.args = args, .vectors = (args->pixels + HEIGHT - 1) / HEIGHT};
    j.tiles = (j.vectors + most - 1) / most;
    long fits = panel * most * HEIGHT * (long)sizeof(float) <= PANEL_BYTES;
    j.copy = (args->copy < 0 ? wants_copy(args, panel, most) : args->copy) && fits;
    pool = worthwhile(args->a->plan, j.vectors, pool);
    long wanted = 4L * ek_pool_threads(pool);
    j.groups = pool && j.tiles < wanted ? (wanted + j.tiles - 1) / j.tiles : 1;
    j.groups = ek_max(ek_min(j.groups, (long)plan->pairs), 1);
    ek_parallel(pool, pairs_task, &j, j.tiles * j.groups, 1);
}
#endif
