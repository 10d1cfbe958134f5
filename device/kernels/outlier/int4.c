/* Products with 4-bit weights: a few panels at a time are unpacked to bytes, into a tile that stays
 * in L1, and multiplied by all rows.
 *
 * Compile-time parameter: EK_SIMD. */
#include "panels.h"

#define TILE_BYTES 24576
#define TILE_COLUMNS 256 /* so that their part of Y stays cached from group to group */
#define TILES_PER_THREAD 4
/* If rows of X1 cannot be read in place, this many are packed at a time. */
#define PACKED_ROWS 64
#define SMALL 131072 /* number of multiply-adds not worth waking a thread for */

void ek_outlier_pack_i4(long n, long k, const ek_gemm_method *how, const void *from, void *to) {
    const ek_outlier_weights given = {.n = n, .k = k, .group = k, .how = *how, .is_int4 = 1};
    const stored s = stored_of(&given);
    for (long j = 0; j < s.side.panels.panels; j++) {
        const long count = panel_values(ek_panel_width(&s.side.panels, j), k);
        const long half = (count + 1) / 2;
        const char *panel = (const char *)from + ek_panels_bytes(&s.side, &s.bytes, 0, j);
        const i8_value *values = (const i8_value *)panel;
        uint8_t *packed = (uint8_t *)to + ek_panels_bytes(&s.side, &s.stored, 0, j);
        for (long i = 0; i < half; i++) {
            const int high = half + i < count ? values[half + i] : 0;
            packed[i] = (uint8_t)((values[i] + 8) | (high + 8) << 4);
        }
    }
}

size_t ek_outlier_packed_i4_bytes(long n, long k, const ek_gemm_method *how) {
    const ek_outlier_weights given = {.n = n, .k = k, .group = k, .how = *how, .is_int4 = 1};
    const stored s = stored_of(&given);
    return ek_panels_bytes(&s.side, &s.stored, 0, s.side.panels.panels);
}

/* Panels of equal width: [first, first + count), processed `at_once` at a time. */
typedef struct {
    long first, count, width, at_once;
} stretch;

static stretch stretch_of(const stored *s, int wider, int threads) {
    const ek_panels *panels = &s->side.panels;
    stretch t = {wider ? 0 : panels->wider, panels->wider, panels->width + wider, 1};
    if (!wider)
        t.count = panels->panels - panels->wider;
    if (t.count) {
        const long bytes = (long)s->bytes.bytes[wider];
        t.at_once = ek_min(TILE_BYTES / ek_max(bytes, 1), TILE_COLUMNS / (t.width * EK_VL));
        t.at_once = ek_min(t.at_once, panels->panels / (TILES_PER_THREAD * threads));
        t.at_once = ek_max(ek_min(t.at_once, t.count), 1);
    }
    return t;
}

typedef struct {
    const ek_outlier_args *args;
    const ek_outlier_merge *merge;
    const uint8_t *x1;
    stored weights;
    stretch stretches[2]; /* wider panels, then the others */
    char *workspace;
    size_t slot; /* bytes per thread */
    long *next;  /* tile */
} work;

static ek_gemm_args product_of(const work *o, const stretch *t, long rows) {
    const ek_outlier_args *g = o->args;
    return (ek_gemm_args){
        .dtype = ek_outlier_dtype(),
        .b_packed = 1,
        .m = rows,
        .n = t->at_once * t->width * EK_VL,
        .k = g->weights->group,
        .a_row = g->weights->k,
        .a_col = 1,
        .b_row = t->width * EK_VL,
        .b_col = 1,
        .c_row = g->y_row,
        .c_col = 1,
        .epilogue = {.output = EK_GEMM_CALLBACK, .callback = ek_outlier_merge_tile},
    };
}

static ek_gemm_method method_of(const work *o, const stretch *t) {
    ek_gemm_method how = o->args->how;
    how.mr = ek_gemm_families[ek_outlier_dtype()]->column[t->width - 1]->mr;
    how.nr = (int32_t)(t->width * EK_VL);
    how.mc = PACKED_ROWS;
    how.nc = how.nr * (int32_t)t->at_once;
    return how;
}

static size_t tile_bytes(const work *o, int wider) {
    const stretch *t = &o->stretches[!wider];
    return (size_t)t->at_once * o->weights.bytes.bytes[wider];
}

static work work_of(const ek_outlier_args *g, int threads) {
    work o = {.args = g, .weights = stored_of(g->weights)};
    for (int wider = 0; wider < 2; wider++) {
        stretch *t = &o.stretches[!wider];
        *t = stretch_of(&o.weights, wider, threads);
        if (!t->count)
            continue;
        const ek_gemm_args product = product_of(&o, t, ek_min(g->m, PACKED_ROWS));
        const ek_gemm_method how = method_of(&o, t);
        const size_t bytes = tile_bytes(&o, wider) + ek_gemm_scratch_bytes(&product, &how, 1);
        o.slot = bytes > o.slot ? bytes : o.slot;
    }
    return o;
}

size_t ek_outlier_int4_bytes(const ek_outlier_args *args, int threads) {
    return work_of(args, threads).slot * (size_t)threads;
}

/* Unpacks panels [j, j + count) of a group to bytes. */
static void unpack_panels(const work *o, const stretch *t, long j, long count, long group,
                          char *to) {
    const long k = o->args->weights->group, values = panel_values(t->width, k);
    const long half = (values + 1) / 2;
    const size_t bytes = o->weights.bytes.bytes[t == o->stretches];
    for (long i = 0; i < count; i++, to += bytes) {
        unpack_i4(panel_at(&o->weights, j + i, group), half, 0, values, (i8_value *)to);
        const i8_panel panel = i8_panel_of_b(t->width * EK_VL, k);
        memset(to + panel.corrections, 0, panel.bytes - panel.corrections);
    }
}

/* Computes Y for the columns of panels [j, j + count). */
static void multiply_tile(const work *o, const stretch *t, long j, long count, char *slot) {
    const ek_outlier_args *g = o->args;
    const ek_outlier_weights *w = g->weights;
    const ek_gemm_method how = method_of(o, t);
    const long column = ek_panel_start(&o->weights.side.panels, j) * EK_VL;
    const long padded = ek_outlier_padded(w->n);
    ek_outlier_merge merge = *o->merge;
    merge.w4 += column * merge.outliers;
    for (long group = 0; group < w->k / w->group; group++) {
        unpack_panels(o, t, j, count, group, slot);
        merge.column_scale = w->scale + group * padded + column;
        merge.excess = w->excess + group * padded + column;
        merge.outliers = group ? 0 : o->merge->outliers;
        merge.add = group > 0;
        for (long row = 0; row < g->m; row += PACKED_ROWS) {
            ek_gemm_args product = product_of(o, t, ek_min(PACKED_ROWS, g->m - row));
            product.n = ek_min(count * t->width * EK_VL, w->n - column);
            product.epilogue.callback_data = &merge;
            product.accumulate = merge.add;
            product.a = o->x1 + row * w->k + group * w->group;
            product.b = slot;
            product.c = g->y + row * g->y_row + column;
            merge.row_scale = o->merge->row_scale + row;
            merge.x2 = o->merge->x2 + row * o->merge->outliers;
            ek_gemm_run(&product, &how, slot + tile_bytes(o, t == o->stretches), NULL);
        }
    }
}

/* One task per thread, each with its own slot; idle threads take the next tile. */
static void multiply_tiles(const void *args, long begin, long end) {
    const work *o = args;
    const long wider = ek_ceil(o->stretches[0].count, o->stretches[0].at_once);
    const long tiles = wider + ek_ceil(o->stretches[1].count, o->stretches[1].at_once);
    for (long task = begin; task < end; task++)
        for (long i; (i = __atomic_fetch_add(o->next, 1, __ATOMIC_RELAXED)) < tiles;) {
            const stretch *t = &o->stretches[i >= wider];
            const long at = (i < wider ? i : i - wider) * t->at_once;
            multiply_tile(o, t, t->first + at, ek_min(t->at_once, t->count - at),
                          o->workspace + (size_t)task * o->slot);
        }
}

void ek_outlier_multiply_int4(const ek_outlier_args *args, const uint8_t *x1,
                              const ek_outlier_merge *merge, char *workspace, ek_pool *pool) {
    const ek_outlier_weights *w = args->weights;
    const int few = (double)args->m * (double)w->n * (double)w->k < SMALL;
    const int threads = ek_pool_threads(pool);
    long next = 0;
    work o = work_of(args, threads);
    o.merge = merge, o.x1 = x1, o.workspace = workspace, o.next = &next;
    ek_parallel(few ? NULL : pool, multiply_tiles, &o, few ? 1 : threads, 1);
}
