/* Task: a panel of NV vectors of columns. Weights stream through the caches together with their
 * scales; those of 4, 3 or 2 bits are unpacked in registers.
 *
 * Compile-time parameters: NAME, EK_SIMD, NV, BITS (of a weight: 2, 3, 4 or 8, or STREAM_TABLES +
 * 2), GROUPS (depth of a group in the packed weights, for 4 bits at most 128, for 3 256, for 2
 * 512), SCALES (a type of scales of stream.h), and optionally I8_PREFETCH_DISTANCE. */
#include "grouped_row.h"
#define MR 1
#include "../gemm/i8_tile.h"

#include "stream.h"

#define HALF (GROUPS / 2)
#define QUARTER (GROUPS / 4)
#define VALUES(nv) stream_values((nv) * EK_VL, GROUPS, BITS)
#define BLOCK(nv) stream_block((nv) * EK_VL, GROUPS, BITS, SCALES)
#define SCALE_UNIT stream_unit(SCALES)

#define IS_TABLES (BITS & STREAM_TABLES)
#define UNIT (IS_TABLES ? 16 / EK_VL : 1) /* vectors of columns that a panel has at least */

typedef ek_grouped_row_args row_args;
typedef uint8_t pairs __attribute__((vector_size(EK_I8 == EK_I8_WIDE16 ? 2 * EK_VL : 16)));

#if EK_I8 == EK_I8_MULL16 && BITS < 8
/* The sums of each column's 16-bit parts, without what its weights have too much. */
EK_INLINE void sum_columns(const int nv, const vi_short *s, int32_t excess, vi *to) {
    EK_UNROLL
    for (int j = 0; j < nv; j++) {
        const vi_short *of = s + j * EK_VL;
        to[j] = vi_sum4(vi_of_short(of[0]), vi_of_short(of[1]), vi_of_short(of[2]),
                        vi_of_short(of[3])) -
                vi_splat(excess);
    }
}
#endif

/* Prefetches the lines whose first bytes are in [from, until) of those at w. Kernels of
 * fewer than 4 bits spread them: at once they take 2% longer on A55, with 3 bits 30%. */
EK_INLINE void prefetch(const uint8_t *w, const int from, const int until) {
    EK_UNROLL
    for (int at = (from + 63) / 64 * 64; I8_PREFETCH_DISTANCE && at < until; at += 64)
        __builtin_prefetch(w + I8_PREFETCH_DISTANCE + at);
}

/* Keeps the compiler from computing one vector after the other on a core in order, where each would
 * wait for its operand. */
#if EK_IN_ORDER && NV / UNIT == 4 && defined __aarch64__
#define TOGETHER(nv, v)                                                                            \
    do {                                                                                           \
        if ((nv) == 4)                                                                             \
            __asm__ volatile("" : "+w"((v)[0]), "+w"((v)[1]), "+w"((v)[2]), "+w"((v)[3]));         \
    } while (0)
#else
#define TOGETHER(nv, v) ((void)0)
#endif

/* Vector j of scales. */
EK_INLINE vf scales_at(const uint8_t *scale, int j) {
    return stream_scales(SCALES, scale + j * EK_VL * stream_scale_bytes(SCALES));
}

EK_INLINE pairs pairs_at(const uint8_t *w) {
    pairs both;
    memcpy(&both, w, sizeof both);
    return both;
}

/* group_sums: the exact sums of a group at w, times 1 / SUM_UNIT. Of all weights, no byte behind
 * `last` may be read. */
#if BITS == 8
#define SUM_UNIT 1.0f
EK_INLINE void group_sums(const int nv, const int8_t *x, int32_t sum, const uint8_t *w,
                          const uint8_t *last, vi *to) {
    const i8_row *row[1] = {x};
    i8_sums sums;
    i8_clear(&sums);
    i8_accumulate(1, nv, &sums, (i8_rows){row, I8_STEP, 0, 1, 0}, GROUPS, (const i8_value *)w);
    (void)sum, (void)last;
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        to[j] = i8_sum(nv, &sums, 0, j);
}
#elif IS_TABLES
#include "tables_row.h"
#elif BITS == 2 && EK_I8 != EK_I8_WIDE16
#include "int2_row.h"
#elif BITS == 3 && EK_I8 != EK_I8_WIDE16
#include "int3_row.h"
#elif EK_I8 == EK_I8_DOT4_SS
#define SUM_UNIT 0x1p-4f /* values in the upper half of a byte need no shift right */
EK_INLINE void group_sums(const int nv, const int8_t *x, int32_t sum, const uint8_t *w,
                          const uint8_t *last, vi *to) {
    const int bytes = nv * EK_VL * I8_GROUP;
    vi high[NV];
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        to[j] = high[j] = vi_splat(0);
    for (long p = 0; p < HALF; p += I8_STEP) {
        const vi low_x = i8_vector(x + p), high_x = i8_vector(x + HALF + p);
        prefetch(w, 0, EK_VL * bytes);
        pairs next[NV];
        EK_UNROLL
        for (int j = 0; j < nv; j++)
            next[j] = pairs_at(w + j * 16);
        EK_UNROLL
        for (int l = 0; l < EK_VL; l++) {
            pairs all[NV];
            vi part[NV];
            w += bytes;
            EK_UNROLL
            for (int j = 0; j < nv; j++) {
                all[j] = next[j];
                if (l + 1 < EK_VL)
                    next[j] = pairs_at(w + j * 16);
                part[j] = (vi)(all[j] << 4);
            }
            TOGETHER(nv, next);
            TOGETHER(nv, part);
            EK_UNROLL
            for (int j = 0; j < nv; j++)
                to[j] = vi_dot4(to[j], vi_splat(low_x[l]), part[j]);
            TOGETHER(nv, to);
            EK_UNROLL
            for (int j = 0; j < nv; j++)
                part[j] = (vi)(all[j] & 0xf0);
            TOGETHER(nv, part);
            EK_UNROLL
            for (int j = 0; j < nv; j++)
                high[j] = vi_dot4(high[j], vi_splat(high_x[l]), part[j]);
            TOGETHER(nv, high);
        }
    }
    (void)sum, (void)last;
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        to[j] += high[j];
}
#elif EK_I8 == EK_I8_MULL16
#define SUM_UNIT 1.0f
_Static_assert(GROUPS <= 128, "16 products of -127..127 and 0..15 fit 16 bits");
EK_INLINE void group_sums(const int nv, const int8_t *x, int32_t sum, const uint8_t *w,
                          const uint8_t *last, vi *to) {
    const int bytes = nv * EK_VL * I8_STEP;
    vi_short s[NV * EK_VL] = {0};
    for (long p = 0; p < HALF; p += I8_STEP, w += bytes) {
        const vi low_x = i8_vector(x + p), high_x = i8_vector(x + HALF + p);
        prefetch(w, 0, bytes);
        EK_UNROLL
        for (int j = 0; j < nv * EK_VL; j++) {
            const pairs both = pairs_at(w + j * 16);
            const vi low = (vi)(both & 15), high = (vi)(both >> 4);
            s[j] = vi_mlal8(s[j], low_x, low, 0);
            s[j] = vi_mlal8(s[j], low_x, low, 1);
            s[j] = vi_mlal8(s[j], high_x, high, 0);
            s[j] = vi_mlal8(s[j], high_x, high, 1);
        }
    }
    sum_columns(nv, s, 8 * sum, to);
}
#else
#include "row_wide.h"
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

/* total += outliers of x by their rows of a panel. Those of a group follow each other. */
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

EK_INLINE void multiply_panel(const int nv, const row_args *a, const place *places,
                              const uint8_t *w, long column) {
    const uint8_t *const panel = w, *const last = w + a->groups * BLOCK(nv) - 1;
    vf total[NV], extra[NV];
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        total[j] = extra[j] = vf_splat(0);
    for (long g = 0; g < a->groups; g++, w += BLOCK(nv)) {
        vi sums[NV];
        const int8_t *x = a->x1 + g * a->group * (IS_TABLES ? EK_ROW_TABLE / 2 : 1);
        const vf step = vf_splat(IS_TABLES ? a->x_scale[g] : 1);
        group_sums(nv, x, a->sums ? a->sums[g] : 0, w, last, sums);
        const uint8_t *scale = w + VALUES(nv);
        prefetch(scale, 0, nv * EK_VL * (int)stream_scale_bytes(SCALES));
        EK_UNROLL
        for (int j = 0; j < nv; j++)
            total[j] = vf_fma(vcast(sums[j], vf) * step, scales_at(scale, j), total[j]);
    }
    add_outliers(nv, a, places, panel, extra);
    EK_UNROLL
    for (int j = 0; j < nv; j++) {
        const long at = column + j * EK_VL, left = a->n - at;
        if (UNIT > 1 && left <= 0)
            break;
        const int full = EK_VL == 1 || left >= EK_VL;
        vf v = total[j] * (SUM_UNIT * SCALE_UNIT) * vf_splat(IS_TABLES ? 1 : *a->x_scale) +
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

void NAME(const void *args, long begin, long end) {
    const row_args *a = args;
    const long vectors = stream_vectors(a->n, BITS);
    place places[PLACES];
    for (long o = 0; o < ek_min(*a->count, PLACES); o++)
        places[o] = place_of(a, o);
    for (long panel = begin; panel < end; panel++) {
        const uint8_t *w = (const uint8_t *)a->weights + panel * a->groups * BLOCK(NV);
        const long column = panel * NV * EK_VL, left = vectors - panel * NV;
        if (left >= NV)
            multiply_panel(NV, a, places, w, column);
#if NV > 2 * UNIT
        else if (left == 3 * UNIT)
            multiply_panel(3 * UNIT, a, places, w, column);
        else if (left == 2 * UNIT)
            multiply_panel(2 * UNIT, a, places, w, column);
#endif
        else
            multiply_panel(UNIT, a, places, w, column);
    }
}
