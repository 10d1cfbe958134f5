/* Y = A . X for int8 weights and pixels from a plan (sparse.h) with unpaired rows.
 *
 * Two products of a row are added in 16 bits, which the plan guarantees to suffice, then widened to
 * 32: without byte dot products this is the shortest sequence (smull, smlal, saddw; pmullw, paddw;
 * vwmul, vwmacc, vwadd). */
#ifndef EK_SPARSE_SPMM_S8_H
#define EK_SPARSE_SPMM_S8_H
#include "spmm.h"

#define UNIT (2 * HEIGHT) /* pixels: number of 16-bit lanes */
#define MOST_UNITS 4

typedef int8_t bytes __attribute__((vector_size(UNIT)));
typedef int16_t words __attribute__((vector_size(2 * UNIT)));
typedef int16_t half_words __attribute__((vector_size(2 * HEIGHT)));
typedef uint32_t wraps __attribute__((vector_size(4 * HEIGHT)));

EK_INLINE words wide_bytes(const int8_t *p) {
    bytes b;
    memcpy(&b, p, sizeof b);
    return __builtin_convertvector(b, words);
}

EK_INLINE words wide_splat(int8_t w) {
    return __builtin_convertvector(w - (bytes){0}, words);
}

EK_INLINE void add_half(wraps *sums, words products, int half) {
    half_words h;
    memcpy(&h, (const char *)&products + half * (int)sizeof h, sizeof h);
    *sums += (wraps) __builtin_convertvector(h, vsum);
}

/* nu units of pixels of some rows; the last unit starts at `last`. */
EK_INLINE void s8_rows(const ek_spmm_args *args, long first, long last, long begin, long end,
                       const int nu) {
    const ek_spmm_plan *plan = args->a->plan;
    const int8_t *x = (const int8_t *)args->x + first;
    for (long i = begin; i < end; i++) {
        const ek_spmm_pair *row = plan->pair + i;
        const uint32_t *word = (const uint32_t *)plan->columns + row->word;
        const int8_t *w = (const int8_t *)plan->values + row->value;
        const uint32_t bias = args->bias ? ((const uint32_t *)args->bias)[row->row[0]] : 0;
        wraps sums[2 * MOST_UNITS];
        EK_UNROLL for (int u = 0; u < 2 * nu; u++) sums[u] = bias - (wraps){0};
        for (long k = 0; k < row->single; k++) {
            const int8_t *x0 = x + (long)(word[k] & 0xffff) * args->x_row;
            const int8_t *x1 = x + (long)(word[k] >> 16) * args->x_row;
            const words w0 = wide_splat(w[2 * k]), w1 = wide_splat(w[2 * k + 1]);
            EK_UNROLL for (int u = 0; u < nu; u++) {
                const long at = u == nu - 1 ? last : u * UNIT;
                words products = wide_bytes(x0 + at) * w0;
                products += wide_bytes(x1 + at) * w1;
                add_half(&sums[2 * u], products, 0);
                add_half(&sums[2 * u + 1], products, 1);
            }
        }
        int32_t *y = (int32_t *)args->y + row->row[0] * args->y_row + first;
        EK_UNROLL for (int u = 0; u < nu; u++)
            memcpy(y + (u == nu - 1 ? last : u * UNIT), &sums[2 * u], 2 * sizeof *sums);
    }
}

typedef struct {
    const ek_spmm_args *args;
    long units, tiles, groups;
} s8_job;

static void s8_task(const void *given, long begin, long end) {
    const s8_job *j = given;
    const long count = (long)j->args->a->plan->pairs;
    for (long i = begin; i < end; i++) {
        long group = i % j->groups, at = i / j->groups;
        long from = count * group / j->groups, to = count * (group + 1) / j->groups;
        long first = j->units * at / j->tiles * UNIT, next = j->units * (at + 1) / j->tiles * UNIT;
        /* The last unit may overlap the previous one. */
        long last = ek_min(next, j->args->pixels) - UNIT - first;
        switch ((next - first) / UNIT) {
        case 1:
            s8_rows(j->args, first, 0, from, to, 1);
            break;
        case 2:
            s8_rows(j->args, first, last, from, to, 2);
            break;
        case 3:
            s8_rows(j->args, first, last, from, to, 3);
            break;
        default:
            s8_rows(j->args, first, last, from, to, 4);
        }
    }
}

/* Requires at least UNIT pixels. */
EK_INLINE void s8_by_plan(const ek_spmm_args *args, ek_pool *pool) {
    /* With at least 2, no tile is a single last unit, which would overlap another tile's. */
    long most = args->vectors ? ek_max(ek_min(args->vectors, MOST_UNITS), 2) : MOST_UNITS;
    s8_job j = {.args = args, .units = (args->pixels + UNIT - 1) / UNIT};
    j.tiles = (j.units + most - 1) / most;
    pool = worthwhile(args->a->plan, j.units, pool);
    long wanted = 4L * ek_pool_threads(pool), rows = (long)args->a->plan->pairs;
    j.groups = pool && j.tiles < wanted ? (wanted + j.tiles - 1) / j.tiles : 1;
    j.groups = ek_max(ek_min(j.groups, rows), 1);
    ek_parallel(pool, s8_task, &j, j.tiles * j.groups, 1);
}
#endif
