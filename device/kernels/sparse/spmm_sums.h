/* Sums of one output channel over a tile's pixels, in registers. */
#ifndef EK_SPARSE_SPMM_SUMS_H
#define EK_SPARSE_SPMM_SUMS_H
#include <math.h>
#include "spmm.h"

#if defined __aarch64__
#define MOST_VECTORS 12 /* vectors at once: sums use 24 of 32 registers */
#elif EK_VL == 16 || defined __riscv_v
#define MOST_VECTORS 8 /* sums use 16 of 32 registers */
#elif EK_VL > 1
#define MOST_VECTORS 4
#else
#define MOST_VECTORS 3 /* sums use 24 of 32 registers, one each */
#endif

/* If outputs outnumber inputs, stores wait for lines of y that are not in L1; prefetch these.
 * Measured only on Intel cores with AMX (docs/performance.md). */
#ifdef EK_AMX
#define FETCHES_SUMS 1
#else
#define FETCHES_SUMS 0
#endif

/* Maximum number of pixels after full vectors that form a tail, a separate narrow vector: 6x6
 * pixels are 2 vectors and 4 lanes, which is faster than 3 vectors. */
#if EK_VL == 16
#define TAIL 4
#else
#define TAIL 0
#endif
/* Whether copying pixels checks for a tail, which costs extra instructions. On x86-64 without
 * AVX-512, code without the check was not timed. */
#if TAIL || defined __x86_64__
#define CHECKS_TAIL 1
#else
#define CHECKS_TAIL 0
#endif
typedef float tail_sums __attribute__((vector_size(16)));

typedef struct {
    vsum v[MOST_VECTORS];
    tail_sums tail;
} row_sums;

/* How a tile's vectors end: with a full one, which may overlap the previous one; with a single one
 * of fewer pixels; or with a tail, which may overlap previous pixels. */
enum ending { FULL, NARROW, TAILED };

/* A tile's pixels, and the pairs to compute. */
typedef struct {
    const float *x;
    float *y;
    long step;       /* of x, between channels */
    long y_last;     /* position of the last vector, or of the tail */
    long lanes;      /* of y, if fewer than HEIGHT */
    long begin, end; /* pairs */
    long panel;
    int done;  /* this is the last panel */
    int clamp; /* there are limits */
    int fetch; /* prefetch lines of y before they are computed */
    int cold;  /* the first tile to read the weights */
    long wide; /* pixels: adjacent strips of that many vectors */
    const ek_spmm_args *limits;
} pixel_tile;

EK_INLINE vsum load_sums(const float *y, long lanes, enum ending end) {
    vsum v = {0};
    memcpy(&v, y, end == NARROW ? (size_t)lanes * sizeof *y : sizeof v);
    return v;
}

EK_INLINE void store_sums(float *y, vsum v, long lanes, enum ending end) {
    memcpy(y, &v, end == NARROW ? (size_t)lanes * sizeof *y : sizeof v);
}

EK_INLINE tail_sums load_tail(const float *p) {
    tail_sums v;
    memcpy(&v, p, sizeof v);
    return v;
}

EK_INLINE tail_sums tail_of(vsum v) {
    tail_sums low;
    memcpy(&low, &v, sizeof low);
    return low;
}

EK_INLINE vsum from_tail(tail_sums low) {
    vsum v = {0};
    memcpy(&v, &low, sizeof low);
    return v;
}

/* A weight broadcast to all lanes. */
EK_INLINE vsum weight(float w, enum ending end) {
    vsum v = splat(w);
    if (end == TAILED)
        EK_OPAQUE(v); /* otherwise the compiler fills a narrow register, and a wide one from that */
    return v;
}

EK_INLINE tail_sums tail_fma(vsum w, const float *x, tail_sums sum) {
#if EK_FMA
    return __builtin_elementwise_fma(tail_of(w), load_tail(x), sum);
#else
    return tail_of(w) * load_tail(x) + sum;
#endif
}

/* Keeps NaN as vf_clamp does. */
EK_INLINE vsum clamped(vsum v, vsum low, vsum high) {
#if EK_VL > 1
    return vf_clamp(v, low, high);
#else
    for (int l = 0; l < HEIGHT; l++) {
        v[l] = v[l] < low[l] ? low[l] : v[l];
        v[l] = v[l] > high[l] ? high[l] : v[l];
    }
    return v;
#endif
}

/* Position of vector v in y. */
#define AT(v) ((v) == nv - 1 && end != TAILED ? t.y_last : (v) * HEIGHT)

EK_INLINE void fill_row(row_sums *sums, vsum v, const int nv) {
    EK_UNROLL for (int i = 0; i < nv; i++) sums->v[i] = v;
    sums->tail = tail_of(v);
}

EK_INLINE void load_row(pixel_tile t, const float *y, row_sums *sums, const int nv,
                        enum ending end) {
    EK_UNROLL for (int v = 0; v < nv; v++) sums->v[v] = load_sums(y + AT(v), t.lanes, end);
    if (end == TAILED)
        sums->tail = load_tail(y + t.y_last);
}

EK_INLINE void store_row(pixel_tile t, float *y, const row_sums *sums, const int nv,
                         enum ending end) {
    EK_UNROLL for (int v = 0; v < nv; v++) store_sums(y + AT(v), sums->v[v], t.lanes, end);
    if (end == TAILED)
        memcpy(y + t.y_last, &sums->tail, sizeof sums->tail);
}

EK_INLINE void fetch_row(const float *y, const int nv) {
    EK_UNROLL for (int v = 0; v < nv; v++) __builtin_prefetch(y + v * HEIGHT, 1);
}

EK_INLINE void add_row(row_sums *sums, const row_sums *other, const int nv) {
    EK_UNROLL for (int v = 0; v < nv; v++) sums->v[v] += other->v[v];
    sums->tail += other->tail;
}

EK_INLINE void clamp_row(row_sums *sums, const ek_spmm_args *limits, const int nv) {
    const vsum low = splat(limits->low), high = splat(limits->high);
    EK_UNROLL for (int v = 0; v < nv; v++) sums->v[v] = clamped(sums->v[v], low, high);
    sums->tail = tail_of(clamped(from_tail(sums->tail), low, high));
}

#endif
