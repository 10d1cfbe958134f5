/* Y = A . X with pixels as vector lanes; compiled once per stored type (types.h), EK_NAME is the
 * symbol.
 *
 * Iterates over the non-zeros: each is broadcast and multiplied by a few vectors of pixels of its
 * input channel, which stay in L1 while all output channels are processed. Two sets of sums, for
 * even and odd non-zeros, hide the latency of the multiply-add. */
#include <math.h>
#include "types.h"
#include "spmm.h"
#if EK_STORED == 3
#include "spmm_s8.h"
#elif EK_STORED != 1
#include "spmm_pairs.h"
#endif

#define TILE_BYTES 49152   /* of X: about the size of L1, through which the weights stream */
#define STACK_BYTES 131072 /* maximum of X copied together on the stack */

/* A tile's pixels, and the output channels to compute. */
typedef struct {
    const operand *x;
    long step;       /* between channels */
    long first;      /* pixel */
    long begin, end; /* output channels */
} tile;

EK_INLINE size_t index_at(const void *index, int bytes, int64_t i) {
    if (bytes == 1)
        return ((const uint8_t *)index)[i];
    if (bytes == 2)
        return ((const uint16_t *)index)[i];
    return ((const uint32_t *)index)[i];
}

EK_INLINE sum finished(const ek_spmm_args *args, long row, long pixel, sum value) {
#if EK_STORED == 4
    value *= args->a->scale[row];
#endif
    if (args->bias)
        value += ((const sum *)args->bias)[row];
#if EK_STORED != 3
    if (args->residual)
        value += ((const sum *)args->residual)[row * args->y_row + pixel];
    value = value < args->low ? (sum)args->low : value;
    value = value > args->high ? (sum)args->high : value;
#endif
    return value;
}

EK_INLINE void put(const ek_spmm_args *args, long row, vsum v, long pixel) {
#if EK_STORED == 4
    v *= splat(args->a->scale[row]);
#endif
    if (args->bias)
        v += splat(((const sum *)args->bias)[row]);
#if EK_STORED != 3
    if (args->residual) {
        vsum other;
        memcpy(&other, (const sum *)args->residual + row * args->y_row + pixel, sizeof other);
        v += other;
    }
    if (args->low > -INFINITY || args->high < INFINITY) { /* a clamp would drop NaN */
        v = __builtin_elementwise_max(v, splat((sum)args->low));
        v = __builtin_elementwise_min(v, splat((sum)args->high));
    }
#endif
    memcpy((sum *)args->y + row * args->y_row + pixel, &v, sizeof v);
}

/* nv vectors of pixels of some output channels. */
EK_INLINE void channels(const ek_spmm_args *args, tile t, const int nv, const int bytes) {
    const ek_spmm_weights *a = args->a;
    const value *values = a->values;
    for (long row = t.begin; row < t.end; row++) {
        vsum even[8], odd[8];
        EK_UNROLL for (int v = 0; v < nv; v++) even[v] = odd[v] = (vsum){0};
        int64_t q = a->start[row], end = a->start[row + 1];
        for (; q + 1 < end; q += 2) {
            const operand *x0 = t.x + (long)index_at(a->index, bytes, q) * t.step;
            const operand *x1 = t.x + (long)index_at(a->index, bytes, q + 1) * t.step;
            vsum w0 = splat(sum_from_value(values[q])), w1 = splat(sum_from_value(values[q + 1]));
            EK_UNROLL for (int v = 0; v < nv; v++) {
                even[v] = vsum_fma(w0, vsum_from_x(x0 + v * HEIGHT), even[v]);
                odd[v] = vsum_fma(w1, vsum_from_x(x1 + v * HEIGHT), odd[v]);
            }
        }
        if (q < end) {
            const operand *x0 = t.x + (long)index_at(a->index, bytes, q) * t.step;
            vsum w0 = splat(sum_from_value(values[q]));
            EK_UNROLL for (int v = 0; v < nv; v++) even[v] =
                vsum_fma(w0, vsum_from_x(x0 + v * HEIGHT), even[v]);
        }
        EK_UNROLL for (int v = 0; v < nv; v++)
            put(args, row, even[v] + odd[v], t.first + v * HEIGHT);
    }
}

#define FOR_BYTES(nv)                                                                              \
    static void tile_##nv(const ek_spmm_args *args, tile t) {                                      \
        if (args->a->index_bytes == 1)                                                             \
            channels(args, t, nv, 1);                                                              \
        else if (args->a->index_bytes == 2)                                                        \
            channels(args, t, nv, 2);                                                              \
        else                                                                                       \
            channels(args, t, nv, 4);                                                              \
    }
FOR_BYTES(1)
FOR_BYTES(2)
FOR_BYTES(4)
FOR_BYTES(8)

/* Fewer pixels than a vector holds: one at a time. */
static void few_pixels(const ek_spmm_args *args, long begin, long end) {
    const ek_spmm_weights *a = args->a;
    const value *values = a->values;
    for (long row = begin; row < end; row++)
        for (long p = 0; p < args->pixels; p++) {
            sum s = 0;
            for (int64_t q = a->start[row]; q < a->start[row + 1]; q++) {
                long from = (long)index_at(a->index, a->index_bytes, q);
                operand x = ((const operand *)args->x)[from * args->x_row + p];
                s += sum_from_value(values[q]) * (sum)x;
            }
            ((sum *)args->y)[row * args->y_row + p] = finished(args, row, p, s);
        }
}

typedef struct {
    const ek_spmm_args *args;
    long nv, tiles, groups; /* tiles of pixels x groups of output channels */
    int copy;
} job;

static void run_tile(const job *j, tile t, long nv) {
    _Alignas(LINE) operand together[STACK_BYTES / sizeof(operand)];
    const ek_spmm_args *args = j->args;
    const operand *x = (const operand *)args->x + t.first;
    t.x = x, t.step = args->x_row;
    if (j->copy) {
        long width = nv * HEIGHT;
        for (long c = 0; c < args->a->cols; c++)
            memcpy(together + c * width, x + c * args->x_row, (size_t)width * sizeof *x);
        t.x = together, t.step = width;
    }
    if (nv == 8)
        tile_8(args, t);
    else if (nv == 4)
        tile_4(args, t);
    else if (nv == 2)
        tile_2(args, t);
    else
        tile_1(args, t);
}

/* The last tile includes the rest; its last vector overlaps the previous one. */
static void run_rest(const job *j, tile t) {
    long pixels = j->args->pixels;
    while (pixels - t.first >= HEIGHT) {
        long nv = j->nv;
        while (nv * HEIGHT > pixels - t.first)
            nv /= 2;
        run_tile(j, t, nv);
        t.first += nv * HEIGHT;
    }
    if (t.first < pixels) {
        t.first = pixels - HEIGHT;
        run_tile(j, t, 1);
    }
}

static void task(const void *given, long begin, long end) {
    const job *j = given;
    long rows = j->args->a->rows;
    for (long i = begin; i < end; i++) {
        long group = i % j->groups, at = i / j->groups;
        tile t = {.first = at * j->nv * HEIGHT,
                  .begin = rows * group / j->groups,
                  .end = rows * (group + 1) / j->groups};
        if (j->args->pixels < HEIGHT)
            few_pixels(j->args, t.begin, t.end);
        else if (at + 1 == j->tiles)
            run_rest(j, t);
        else
            run_tile(j, t, j->nv);
    }
}

void EK_NAME(const ek_spmm_args *args, ek_pool *pool) {
    const ek_spmm_weights *a = args->a;
#if EK_STORED == 3
    if (a->plan && args->pixels >= UNIT) {
        s8_by_plan(args, pool);
        return;
    }
#elif EK_STORED != 1
    if (a->plan) {
        by_pairs(args, pool);
        return;
    }
#endif
    job j = {.args = args, .nv = args->vectors};
    long line = a->cols * HEIGHT * (long)sizeof(operand);
    if (!j.nv)
        for (j.nv = 8; j.nv > 1 && (j.nv * line > TILE_BYTES || j.nv * HEIGHT > args->pixels);)
            j.nv /= 2;
    j.copy = (args->copy < 0 ? wants_copy(args, a->cols, j.nv) : args->copy) &&
             j.nv * line <= STACK_BYTES;
    j.tiles = ek_max(args->pixels / (j.nv * HEIGHT), 1);
    long wanted = 4L * ek_pool_threads(pool);
    j.groups = pool && j.tiles < wanted ? ek_min((wanted + j.tiles - 1) / j.tiles, a->rows) : 1;
    ek_parallel(pool, task, &j, j.tiles * j.groups, 1);
}
