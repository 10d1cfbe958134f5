/* Task: a panel of NV vectors of columns. Weights stream through the caches together with their
 * scales; those of 4, 3 or 2 bits are unpacked in registers.
 *
 * Compile-time parameters: NAME, EK_SIMD, NV, BITS (of a weight: 2, 3, 4 or 8, or STREAM_TABLES +
 * 2), GROUPS (depth of a group in the packed weights, for 4 bits at most 128, for 3 256, for 2
 * 512), SCALES (a type of scales of stream.h), and optionally I8_PREFETCH_DISTANCE and IN_TURN
 * (bytes of panels that threads read one at a time: in_turn.h). */
#include "grouped_row.h"
#define MR 1
#include "../gemm/i8_tile.h"

#include "../touch.h"
#include "stream.h"
#ifdef IN_TURN
#include "in_turn.h"
#define AHEAD 0
#endif

#define HALF (GROUPS / 2)
#define QUARTER (GROUPS / 4)
#define VALUES(nv) stream_values((nv) * EK_VL, GROUPS, BITS)
#define BLOCK(nv) stream_block((nv) * EK_VL, GROUPS, BITS, SCALES)
#define SCALE_UNIT stream_unit(SCALES)

#define IS_TABLES (BITS & STREAM_TABLES)
#define BY_COLUMNS STREAM_BY_COLUMNS(BITS)
#define SUMS (BY_COLUMNS ? 3 : 1) /* numbers of row_args.sums for a group */
/* Vectors of columns that a panel has at least. */
#define UNIT (IS_TABLES ? 16 / EK_VL : BY_COLUMNS ? NV : 1)

typedef ek_grouped_row_args row_args;
#define BYTES_AT_ONCE (EK_I8 == EK_I8_WIDE16 ? 2 * EK_VL : EK_I8 == EK_I8_MADOT ? 4 * EK_VL : 16)
typedef uint8_t pairs __attribute__((vector_size(BYTES_AT_ONCE)));

#if EK_I8 == EK_I8_MULL16 && BITS < 8
/* The sums of each column's 16-bit parts, and what is added to them. */
EK_INLINE void sum_columns(const int nv, const vi_short *s, int32_t added, vi *to) {
    EK_UNROLL
    for (int j = 0; j < nv; j++) {
        const vi_short *of = s + j * EK_VL;
        to[j] = vi_sum4(vi_of_short(of[0]), vi_of_short(of[1]), vi_of_short(of[2]),
                        vi_of_short(of[3])) +
                vi_splat(added);
    }
}
#endif

/* Cores in order fetch weights by loads that nothing waits for, which their prefetchers follow: on
 * A55, 16 to 32 lines ahead take as long, 8 lines 20% longer. A53, which computes longer than it
 * waits, takes 7 to 10% longer than with prefetches. */
#if defined __riscv || (EK_IN_ORDER && EK_I8 == EK_I8_DOT4_SS)
#define IS_LOADED 1
#else
#define IS_LOADED 0
#endif
#ifndef AHEAD /* bytes */
#define AHEAD (IS_LOADED ? 1280 : I8_PREFETCH_DISTANCE)
#endif

/* Where the lines that are fetched for a group at w begin; of `bytes`, none at `end` or behind. */
EK_INLINE const uint8_t *ahead_of(const uint8_t *w, const uint8_t *end, const long bytes) {
    if (!IS_LOADED)
        return w;
    const uintptr_t to = ek_min((uintptr_t)w + AHEAD, (uintptr_t)(end - bytes));
    return (const uint8_t *)(to & ~(uintptr_t)63);
}

/* Fetches the lines whose first bytes are in [from, until) of those at `ahead`. Kernels of fewer
 * than 4 bits spread them: at once they take 2% longer on A55, with 3 bits 30%. */
EK_INLINE void prefetch(const uint8_t *ahead, const int from, const int until) {
    EK_UNROLL
    for (int at = (from + 63) / 64 * 64; AHEAD && at < until; at += 64) {
#if !IS_LOADED
        __builtin_prefetch(ahead + AHEAD + at);
#elif defined __riscv
        __asm__ volatile("lbu zero, 0(%0)" : : "r"(ahead + at));
#else
        if (__builtin_constant_p(at)) /* once loops are unrolled */
            __asm__ volatile("ldrb wzr, [%0, %1]" : : "r"(ahead), "i"(at));
        else
            __asm__ volatile("ldrb wzr, [%0]" : : "r"(ahead + at));
#endif
    }
}

/* Vector j of scales. */
EK_INLINE vf scales_at(const uint8_t *scale, int j) {
    return stream_scales(SCALES, scale + j * EK_VL * stream_scale_bytes(SCALES));
}

EK_INLINE pairs pairs_at(const uint8_t *w) {
    pairs both;
    memcpy(&both, w, sizeof both);
    return both;
}

#if EK_I8 == EK_I8_DOT4_SS
#include "ordered.h"
#endif

/* A group: its values of x, what is added to its sums, its weights, lines to fetch (ahead_of), and
 * what is multiplied next. */
typedef struct {
    const int8_t *x, *next_x;
    const int32_t *sum, *next_sum;
    const uint8_t *w, *next_w, *ahead;
} group_at;

/* group_sums: the exact sums of a group, times 1 / SUM_UNIT(j) for vector j. `kept`: what a kernel
 * that KEEPS it loads ahead of the group, from load_first on. */
typedef struct {
    char none;
} kept_nothing;
#if BITS == 8
#define SUM_UNIT(j) 1.0f
EK_INLINE void group_sums(const int nv, const group_at at, kept_nothing *kept, vi *to) {
    (void)kept;
    const i8_row *row[1] = {at.x};
    i8_sums sums;
    i8_clear(&sums);
    i8_accumulate(1, nv, &sums, (i8_rows){row, I8_STEP, 0, 1, 0}, GROUPS, (const i8_value *)at.w);
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        to[j] = i8_sum(nv, &sums, 0, j);
}
#elif IS_TABLES
#include "tables_row.h"
#elif EK_I8 == EK_I8_MADOT && BITS == 2
#include "madot2_row.h"
#elif EK_I8 == EK_I8_MADOT
#include "madot_row.h"
#elif BITS == 2 && EK_I8 != EK_I8_WIDE16
#include "int2_row.h"
#elif BITS == 3 && EK_I8 != EK_I8_WIDE16
#include "int3_row.h"
#elif EK_I8 != EK_I8_WIDE16
#include "int4_row.h"
#else
#include "row_wide.h"
#endif
#ifndef KEEPS
typedef kept_nothing kept_vectors;
EK_INLINE void load_first(const int nv, const group_at at, kept_vectors *kept) {
    (void)nv, (void)at, (void)kept;
}
#endif

/* Where an outlier channel is in a panel. */
typedef struct {
    int32_t channel, group;
    stream_place in;
} place;

#define PLACES 128 /* that are found once for all panels of a task; others once for each */

static place place_of(const row_args *a, long outlier) {
    const long c = a->channel[outlier];
    return (place){.channel = (int32_t)c,
                   .group = (int32_t)(c / a->group),
                   .in = stream_place_of(c % a->group, GROUPS, BITS)};
}

/* total += sums of the outliers of a group, times its scales at `scale`; clears sums. */
EK_INLINE void add_scaled(const int nv, const uint8_t *scale, vf *sums, vf *total) {
    EK_UNROLL
    for (int j = 0; j < nv; j++) {
        total[j] = vf_fma(sums[j], scales_at(scale, j), total[j]);
        sums[j] = vf_splat(0);
    }
}

/* total += outliers of x, of which there are some, by their rows of a panel. Those of a group
 * follow each other. */
EK_INLINE void add_outliers(const int nv, const row_args *a, const place *places, const uint8_t *w,
                            vf *total) {
    const long count = *a->count;
    const uint8_t *group = w;
    vf sums[NV];
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        sums[j] = vf_splat(0);
    for (long o = 0; o < count; o++) {
        const place of = o < PLACES ? places[o] : place_of(a, o);
        const uint8_t *own = w + of.group * (long)BLOCK(nv);
        if (own != group)
            add_scaled(nv, group + VALUES(nv), sums, total);
        group = own;
        const uint8_t *at = group + of.in.step * stream_step(nv * EK_VL, BITS);
        const vf x = vf_splat(a->x[of.channel]);
        EK_UNROLL
        for (int j = 0; j < nv; j++) {
            const vi value = stream_values_at(at, nv * EK_VL, j * EK_VL, BITS, &of.in);
            sums[j] = vf_fma(x, vcast(value, vf), sums[j]);
        }
    }
    if (count)
        add_scaled(nv, group + VALUES(nv), sums, total);
}

static const int32_t no_sum[SUMS];

EK_INLINE void multiply_panel(const int nv, const row_args *a, const place *places,
                              const uint8_t *w, const uint8_t *end, long column) {
    const uint8_t *const panel = w;
    vf total[NV], extra[NV];
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        total[j] = extra[j] = vf_splat(0);
    /* Not read in the loop, where the compiler believes that loads ahead change them. */
    const long groups = a->groups, run = a->group * (IS_TABLES ? EK_ROW_TABLE / 2 : 1);
    const int8_t *x = a->x1;
    const int32_t *sum = a->sums ? a->sums : no_sum;
    const long sum_step = a->sums ? SUMS : 0;
    kept_vectors kept;
    EK_UNROLL
    for (int j = 0; j < nv * EK_VL; j += 64 / (int)sizeof *a->bias)
        ek_touch(a->bias + column + j);
    load_first(nv, (group_at){.x = x, .sum = sum, .w = w}, &kept);
    for (long g = 0; g < groups; g++, w += BLOCK(nv), x += run, sum += sum_step) {
        vi sums[NV];
        const int last = g + 1 == groups; /* loads its own first vectors again */
        const group_at at = {.x = x,
                             .next_x = last ? x : x + run,
                             .sum = sum,
                             .next_sum = last ? sum : sum + sum_step,
                             .w = w,
                             .next_w = last ? w : w + BLOCK(nv),
                             .ahead = ahead_of(w, end, BLOCK(nv))};
        const vf step = vf_splat(IS_TABLES ? a->x_scale[g] : 1);
        group_sums(nv, at, &kept, sums);
        const uint8_t *scale = w + VALUES(nv);
        prefetch(at.ahead + VALUES(nv), 0, (int)(BLOCK(nv) - VALUES(nv)));
        EK_UNROLL
        for (int j = 0; j < nv; j++) {
#ifdef KEEPS_SCALES
            const vf by = kept.scales[j];
#else
            const vf by = scales_at(scale, j);
#endif
            total[j] = vf_fma(vcast(sums[j], vf) * step, by, total[j]);
        }
    }
    add_outliers(nv, a, places, panel, extra);
    EK_UNROLL
    for (int j = 0; j < nv; j++) {
        const long at = column + j * EK_VL, left = a->n - at;
        if (UNIT > 1 && left <= 0)
            break;
        const int full = EK_VL == 1 || left >= EK_VL;
        vf v = total[j] * (SUM_UNIT(j) * SCALE_UNIT) * vf_splat(IS_TABLES ? 1 : *a->x_scale) +
               extra[j] * SCALE_UNIT;
        v += vf_load(a->bias + at);
        if (a->residual)
            v += full ? vf_load(a->residual + at) : vf_load_n(a->residual + at, left);
        v = vf_clamp(v, vf_bound(a->low), vf_bound(a->high));
        if (full)
            vf_store(a->y + at, v);
        else
            vf_store_n(a->y + at, v, left);
    }
}

/* `reads`: one thread at a time before they are multiplied. */
EK_INLINE void multiply_panels(const row_args *a, const place *places, long begin, long end,
                               const int reads) {
    const long vectors = stream_vectors(a->n, BITS);
    const uint8_t *const weights = a->weights;
    const long own = ek_min(end * NV, vectors); /* vectors until the end of these panels */
    const uint8_t *const behind =
        weights + own / NV * a->groups * BLOCK(NV) + (own % NV ? a->groups * BLOCK(own % NV) : 0);
#ifdef IN_TURN
    if (reads)
        read_in_turn(weights + begin * a->groups * BLOCK(NV), behind);
#else
    (void)reads;
#endif
    for (long panel = begin; panel < end; panel++) {
        const uint8_t *w = weights + panel * a->groups * BLOCK(NV);
        const long column = panel * NV * EK_VL, left = vectors - panel * NV;
        if (left >= NV)
            multiply_panel(NV, a, places, w, behind, column);
#if NV > 2 * UNIT
        else if (left == 3 * UNIT)
            multiply_panel(3 * UNIT, a, places, w, behind, column);
        else if (left == 2 * UNIT)
            multiply_panel(2 * UNIT, a, places, w, behind, column);
#endif
        else
            multiply_panel(UNIT, a, places, w, behind, column);
    }
}

void NAME(const void *args, long begin, long end) {
    const row_args *a = args;
    place places[PLACES];
    for (long o = 0; o < ek_min(*a->count, PLACES); o++)
        places[o] = place_of(a, o);
#ifdef IN_TURN
    const int reads = begin > 0 || end * NV < stream_vectors(a->n, BITS); /* not if it is alone */
    const long most = reads ? ek_max(IN_TURN / (a->groups * (long)BLOCK(NV)), 1) : end;
    for (long at = begin; at < end; at += most)
        multiply_panels(a, places, at, ek_min(at + most, end), reads);
#else
    multiply_panels(a, places, begin, end, 0);
#endif
}
