/* The f32 register tile: acc[rows][vectors] += A . B over k. Shared by the GEMM library and the
 * convolutions of compiled models; with EK_HALF, operands and sums are f16.
 *
 * Before inclusion: MR, NV (the largest tile of this file); mr and nv are constants of each call. B
 * is read from rows of nv vectors, b_row floats apart, the last one cut to `left` columns if
 * `masked`. With EK_IN_ORDER, operands are loaded a step ahead. NARROW: B as in narrow.h. */
#ifndef EK_GEMM_F32_TILE_H
#define EK_GEMM_F32_TILE_H
#include "../kernel.h"

#ifndef EK_IN_ORDER
#define EK_IN_ORDER 0
#endif

/* 32-bit ARM has no fused multiply-add by a lane: it broadcasts from memory. */
#if EK_LANES && !defined __arm__
#define F32_LANES 1
#else
#define F32_LANES 0
#endif

#ifdef NARROW
#include "narrow.h"
/* Constants of each call: where a vector of B comes from. */
enum {
    F32_WIDE,   /* from `at` */
    F32_STORED, /* from `stored` */
    F32_KEPT,   /* from `stored`, and kept at `at` for the next rows of A */
};
#endif

/* Elements between vectors of a row of A: EK_VL, or more if rows (multiples of it) interleave. */
#ifdef F32_ROW_STEP
#define F32_INTERLEAVED 1
#else
#define F32_INTERLEAVED 0
#define F32_ROW_STEP EK_VL
#endif
#define F32_AT(l) ((l) / EK_VL * F32_ROW_STEP + (l) % EK_VL) /* where element l of a row is */
#define F32_STEPS(sets) (F32_LANES || (F32_INTERLEAVED && EK_VL > 1) ? EK_VL : (sets))

/* The position of one step in B. */
typedef struct {
    const ek_real *at;
    long row;
    long left;               /* columns in the last vector, if masked */
    const ek_real *prefetch; /* F32_PREFETCHES: data to prefetch: one line per step, or NULL */
    long prefetch_row;       /* stride in floats between prefetched rows */
    int prefetch_all;        /* all lines of a row */
    const char *ahead;       /* READ_AHEAD: weights of a later call to prefetch as well, or NULL */
#ifdef NARROW
    int source;
    const narrow *stored;
    const float *scales; /* of the columns (s8 only) */
#endif
} f32_columns;

EK_INLINE void f32_advance(f32_columns *b) {
    b->at += b->row;
#ifdef NARROW
    if (b->source != F32_WIDE)
        b->stored += b->row;
#endif
}

#include "f32_prefetch.h"

EK_INLINE void f32_load_b(const int nv, const int masked, vf b[NV], const f32_columns *from) {
    EK_UNROLL
    for (int j = 0; j < nv; j++) {
#ifdef NARROW
        if (from->source != F32_WIDE) {
            b[j] = narrow_load(from->stored + j * EK_VL);
#if NARROW == 8
            b[j] *= vf_load(from->scales + j * EK_VL);
#endif
            if (from->source == F32_KEPT)
                vf_store((ek_real *)from->at + j * EK_VL, b[j]);
            continue;
        }
#endif
        b[j] = masked && j == nv - 1 ? vf_load_n(from->at + j * EK_VL, from->left)
                                     : vf_load(from->at + j * EK_VL);
    }
}

/* Vector registers: 16 on x86 before AVX-512, on 32-bit ARM, and on RVV with pairs. */
#if defined __AVX512F__ || defined __aarch64__
#define F32_REGISTERS 32
#else
#define F32_REGISTERS 16
#endif

/* Loading a partial vector is as fast as loading a full one. */
#if defined __AVX2__ && !F32_LANES
#define F32_MASKED_LOADS 1
#else
#define F32_MASKED_LOADS 0
#endif

#if F32_LANES
#define F32_A_VECTORS(mr) (((mr) + EK_VL - 1) / EK_VL)
#define F32_ROWS_FIT(mr, nv) ((mr) * (nv) + (mr) + 1 <= F32_REGISTERS)
#define F32_AHEAD(mr, nv)                                                                          \
    (EK_IN_ORDER && (mr) * (nv) + 2 * (F32_A_VECTORS(mr) + (nv)) <= F32_REGISTERS)

/* Loads mr adjacent floats without reading beyond them. */
EK_INLINE void f32_load_a(const int mr, vf a[F32_A_VECTORS(MR)], const ek_real *from) {
    const int full = mr / EK_VL;
    EK_UNROLL
    for (int i = 0; i < full; i++)
        a[i] = vf_load(from + i * EK_VL);
    if (mr % EK_VL) {
        a[full] = (vf){0};
        memcpy(&a[full], from + full * EK_VL, sizeof(ek_real) * (mr % EK_VL));
    }
}

EK_INLINE void f32_multiply(const int mr, const int nv, vf acc[MR][NV],
                            const vf a[F32_A_VECTORS(MR)], const vf b[NV]) {
    EK_UNROLL
    for (int i = 0; i < mr; i++) {
        EK_UNROLL
        for (int j = 0; j < nv; j++)
            acc[i][j] = vf_fma(vf_splat(vlane(a[i / EK_VL], i % EK_VL)), b[j], acc[i][j]);
    }
}

EK_INLINE void f32_step(const int mr, const int nv, vf acc[MR][NV], const ek_real *a,
                        const vf b[NV]) {
    vf av[F32_A_VECTORS(MR)];
    f32_load_a(mr, av, a);
    f32_multiply(mr, nv, acc, av, b);
}

/* Steps of a panel, k > 0; each loads the next step's operands before it multiplies. */
EK_INLINE void f32_steps_ahead(const int mr, const int nv, vf acc[MR][NV], const ek_real *a,
                               long a_col, f32_columns b, long k) {
    vf av[F32_A_VECTORS(MR)], bv[NV];
    f32_load_b(nv, 0, bv, &b);
    f32_load_a(mr, av, a);
    for (; k > 1; k--) {
        vf a_next[F32_A_VECTORS(MR)], b_next[NV];
        a += a_col, b.at += b.row;
        f32_load_b(nv, 0, b_next, &b);
        f32_load_a(mr, a_next, a);
        f32_multiply(mr, nv, acc, av, bv);
        memcpy(av, a_next, sizeof av);
        memcpy(bv, b_next, sizeof bv);
    }
    f32_multiply(mr, nv, acc, av, bv);
}
#else
#define F32_ROWS_FIT(mr, nv) 1
#define F32_AHEAD(mr, nv) 0

EK_INLINE void f32_step(const int mr, const int nv, vf acc[MR][NV], const ek_real *a,
                        const vf b[NV]) {
    EK_UNROLL
    for (int i = 0; i < mr; i++) {
        vf x = vf_splat(a[i]);
        EK_UNROLL
        for (int j = 0; j < nv; j++)
            acc[i][j] = vf_fma(x, b[j], acc[i][j]);
    }
}
#endif

/* Number of accumulator sets: a tile with few sums is latency-bound, so they are spread over
 * several sets, which are added at the end. */
#define F32_SETS(mr, nv) ((mr) * (nv) >= 8 ? 1 : (mr) * (nv) >= 4 ? 2 : 4)

EK_INLINE void f32_add_sets(const int mr, const int nv, vf acc[MR][NV], vf sum[4][MR][NV]) {
    EK_UNROLL
    for (int i = 0; i < mr; i++) {
        EK_UNROLL
        for (int j = 0; j < nv; j++)
            acc[i][j] += F32_SETS(mr, nv) == 2
                             ? sum[0][i][j] + sum[1][i][j]
                             : (sum[0][i][j] + sum[1][i][j]) + (sum[2][i][j] + sum[3][i][j]);
    }
}

/* Steps of a panel; each prefetches `lines` lines. */
EK_INLINE void f32_steps(const int mr, const int nv, const int masked, const int lines,
                         vf acc[MR][NV], const ek_real *a, long a_col, f32_columns b, long k) {
    for (long p = 0; p < k; p++, a += a_col, b.at += b.row) {
        vf bv[NV];
        f32_prefetch(lines, &b);
        f32_load_b(nv, masked, bv, &b);
        f32_step(mr, nv, acc, a, bv);
    }
}

/* A as a panel: for each k, mr adjacent floats, a_col apart. */
EK_INLINE void f32_panel(const int mr, const int nv, const int masked, vf acc[MR][NV],
                         const ek_real *a, long a_col, f32_columns b, long k) {
    const int sets = F32_SETS(mr, nv);
    long p = 0;
    if (sets > 1) {
        vf sum[4][MR][NV] = {0};
        for (; p + sets <= k; p += sets) {
            EK_UNROLL
            for (int s = 0; s < sets; s++, a += a_col, b.at += b.row) {
                vf bv[NV];
                f32_load_b(nv, masked, bv, &b);
                f32_step(mr, nv, sum[s], a, bv);
            }
        }
        f32_add_sets(mr, nv, acc, sum);
    }
#if F32_LANES
    if (F32_AHEAD(mr, nv) && k > p) {
        f32_steps_ahead(mr, nv, acc, a, a_col, b, k - p);
        return;
    }
#endif
    if (F32_PREFETCHES && b.prefetch && b.prefetch_all)
        f32_steps(mr, nv, masked, nv, acc, a, a_col, b, k - p);
    else if (F32_PREFETCHES && b.prefetch)
        f32_steps(mr, nv, masked, 1, acc, a, a_col, b, k - p);
    else
        f32_steps(mr, nv, masked, 0, acc, a, a_col, b, k - p);
}

/* One column more than nv vectors, as in images with odd sides (7 x 7 = 3 * 16 + 1): its sums go
 * along the rows of a panel of A, one vector in total instead of one per row. */
#define F32_NARROW(mr, nv)                                                                         \
    (F32_MASKED_LOADS && (mr) <= EK_VL && (mr) * (nv) >= 8 &&                                      \
     (mr) * (nv) + (nv) + 4 <= F32_REGISTERS)

EK_INLINE vf f32_panel_narrow(const int mr, const int nv, vf acc[MR][NV], const ek_real *a,
                              long a_col, f32_columns b, long k) {
    vf last = vf_splat(0);
    for (long p = 0; p < k; p++, a += a_col, b.at += b.row) {
        vf bv[NV];
        f32_load_b(nv, 0, bv, &b);
        last =
            vf_fma(mr == EK_VL ? vf_load(a) : vf_load_n(a, mr), vf_splat(b.at[nv * EK_VL]), last);
        f32_step(mr, nv, acc, a, bv);
    }
    return last;
}

#if F32_LANES && EK_IN_ORDER
/* Allows one vector more than there are registers: the last multiplied vector of B frees its
 * own. */
#define F32_ROWS_AHEAD(mr, nv)                                                                     \
    (F32_SETS(mr, nv) == 1 && (mr) * (nv) + (mr) + 2 * (nv) <= F32_REGISTERS + 1)
/* EK_VL steps on rows whose values, and first row of B, are already loaded. Loads the next row of B
 * before the products and a row's next values after its own products, and prefetches B for when it
 * exceeds L1. Data beyond these steps is loaded only if `has_next`. */
EK_INLINE void f32_rows_step(const int mr, const int nv, const int has_next, vf acc[MR][NV],
                             vf av[MR], vf bv[NV], const ek_real *x[MR], f32_columns *b) {
    EK_UNROLL
    for (int l = 0; l < EK_VL; l++) {
        const int last = l == EK_VL - 1;
        vf b_next[NV];
        f32_advance(b);
        if (has_next || !last)
            f32_load_b(nv, 0, b_next, b);
        if (has_next)
            f32_prefetch_rows(nv, 0, b);
        EK_UNROLL
        for (int i = 0; i < mr; i++) {
            EK_UNROLL
            for (int j = 0; j < nv; j++)
                acc[i][j] = vf_fma(vf_splat(vlane(av[i], l)), bv[j], acc[i][j]);
            if (has_next && last)
                av[i] = vf_load(x[i] += F32_ROW_STEP);
        }
        if (has_next || !last)
            memcpy(bv, b_next, sizeof(vf) * nv);
    }
}

/* Runs f32_rows_step `steps` times, at least once. */
EK_INLINE void f32_rows_ahead(const int mr, const int nv, vf acc[MR][NV],
                              const ek_real *const a[MR], f32_columns *b, unsigned long steps) {
    const ek_real *x[MR];
    vf av[MR], bv[NV];
    f32_load_b(nv, 0, bv, b);
    EK_UNROLL
    for (int i = 0; i < mr; i++)
        av[i] = vf_load(x[i] = a[i]);
    /* Unrolling would move loads next to their products. */
    _Pragma("clang loop unroll(disable)") for (; steps > 1; steps--)
        f32_rows_step(mr, nv, 1, acc, av, bv, x, b);
    f32_rows_step(mr, nv, 0, acc, av, bv, x, b);
}
#else
#define F32_ROWS_AHEAD(mr, nv) 0
#endif

#if F32_LANES && EK_IN_ORDER && MR >= 8 && NV >= 2 && !defined NARROW
#include "f32_in_order.h"
#endif
#if F32_LANES && !EK_IN_ORDER && !defined EK_HALF && !defined NARROW &&                            \
    !defined __ARM_FEATURE_DOTPROD &&                                                              \
    ((MR == 8 && NV == 2) || (MR == 6 && NV == 3) || (MR == 4 && NV == 4))
#include "f32_out_of_order.h"
#endif

/* EK_VL steps, or one per set of sums; prefetches `lines` lines a step and, if `ahead`, rows. */
EK_INLINE void f32_rows_group(const int mr, const int nv, const int masked, const int lines,
                              const int ahead, vf acc[MR][NV], vf sum[4][MR][NV],
                              const ek_real *x[MR], f32_columns *b) {
    const int sets = F32_SETS(mr, nv), step = F32_STEPS(sets);
    vf av[MR];
    EK_UNROLL
    for (int i = 0; F32_LANES && i < mr; i++)
        av[i] = vf_load(x[i]);
    EK_UNROLL
    for (int l = 0; l < step; l++, f32_advance(b)) {
        vf bv[NV];
        f32_prefetch(lines, b);
        if (ahead)
            f32_prefetch_rows(nv, l, b);
        f32_load_b(nv, masked, bv, b);
        EK_UNROLL
        for (int j = 0; j < nv; j++) {
            EK_UNROLL
            for (int i = 0; i < mr; i++) {
                vf v = vf_splat(F32_LANES ? vlane(av[i], l % EK_VL) : x[i][F32_AT(l)]);
                vf *to = sets > 1 ? &sum[l % sets][i][j] : &acc[i][j];
                *to = vf_fma(v, bv[j], *to);
            }
        }
    }
    EK_UNROLL
    for (int i = 0; i < mr; i++)
        x[i] += F32_AT(step);
}

/* f32_rows, prefetching `lines` lines per step. */
EK_INLINE const ek_real *f32_rows_prefetching(const int mr, const int nv, const int masked,
                                              const int lines, vf acc[MR][NV],
                                              const ek_real *const a[MR], f32_columns b, long k) {
    const int sets = F32_SETS(mr, nv), step = F32_STEPS(sets);
    vf sum[4][MR][NV] = {0};
    const ek_real *x[MR];
    EK_UNROLL
    for (int i = 0; i < mr; i++)
        x[i] = a[i];
    /* A single counter and moving pointers: no other arithmetic in the loop. */
    unsigned long left = step > 1 ? (unsigned long)k / (unsigned)step : 0;
    long p = (long)left * step;
#ifdef F32_IN_ORDER
    if (F32_IN_ORDER(mr, nv) && b.row == nv * EK_VL && !masked && left >= F32_IN_ORDER_GROUPS) {
        f32_rows_in_order(mr, acc, a, b.at, (long)left);
        b.at += p * b.row;
        left = 0;
    }
#endif
#ifdef F32_OUT_OF_ORDER
    if (F32_OUT_OF_ORDER(mr, nv) && b.row == nv * EK_VL && !masked && !lines && left) {
        f32_rows_out_of_order(acc, a, b.at, (long)left);
        b.at += p * b.row;
        left = 0;
    }
#endif
#if F32_LANES && EK_IN_ORDER
    if (F32_ROWS_AHEAD(mr, nv) && !masked && left) {
        f32_rows_ahead(mr, nv, acc, a, &b, left);
        left = 0;
    }
#endif
    if (left)
        do {
            if (f32_leaves_page(mr, nv, &b))
                f32_rows_group(mr, nv, masked, lines, 1, acc, sum, x, &b);
            else
                f32_rows_group(mr, nv, masked, lines, !EK_IN_ORDER, acc, sum, x, &b);
        } while (--left);
    if (sets > 1)
        f32_add_sets(mr, nv, acc, sum);
    for (; p < k; p++, f32_advance(&b)) {
        vf bv[NV];
        f32_prefetch(lines, &b);
        f32_load_b(nv, masked, bv, &b);
        EK_UNROLL
        for (int i = 0; i < mr; i++) {
            vf x = vf_splat(a[i][EK_VL == 1 ? F32_AT(p) : p]);
            EK_UNROLL
            for (int j = 0; j < nv; j++)
                acc[i][j] = vf_fma(x, bv[j], acc[i][j]);
        }
    }
    return b.at;
}
/* A as rows: a[i] points to mr runs of k floats. Returns the next position in B. */
EK_INLINE const ek_real *f32_rows(const int mr, const int nv, const int masked, vf acc[MR][NV],
                                  const ek_real *const a[MR], f32_columns b, long k) {
    if (F32_PREFETCHES && b.prefetch && b.prefetch_all)
        return f32_rows_prefetching(mr, nv, masked, nv, acc, a, b, k);
    if (F32_PREFETCHES && b.prefetch)
        return f32_rows_prefetching(mr, nv, masked, 1, acc, a, b, k);
    return f32_rows_prefetching(mr, nv, masked, 0, acc, a, b, k);
}
#endif
