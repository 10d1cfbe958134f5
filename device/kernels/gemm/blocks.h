/* How a product splits into panels and blocks, and where packed panels are: pure arithmetic, shared
 * by packing, scratch sizes and the loop nest. */
#ifndef EK_GEMM_BLOCKS_H
#define EK_GEMM_BLOCKS_H
#include "microkernels.h"

static inline long ek_ceil(long a, long b) {
    return (a + b - 1) / b;
}

/* `extent` elements in vectors, rounded up. vl is a power of two; a shift avoids a slow
 * division. */
static inline long ek_vectors(const ek_gemm_operands *types, long extent) {
    return (extent + types->vl - 1) >> __builtin_ctz((unsigned)types->vl);
}

/* `extent` split into ceil(extent / most) panels; the first `wider` of them have width + 1. */
typedef struct {
    long panels, width, wider;
} ek_panels;
static inline ek_panels ek_panels_of(long extent, long most) {
    if (extent <= most)
        return (ek_panels){extent > 0, extent, 0};
    if (extent <= 2 * most) /* a division takes as long as a tile of a tiny product */
        return (ek_panels){2, extent >> 1, extent & 1};
    long panels = ek_ceil(extent, most);
    return (ek_panels){panels, extent / panels, extent % panels};
}
/* The same, but all of width `most` except the last one, which has the rest. */
static inline ek_panels ek_whole_panels_of(long extent, long most) {
    return extent <= most ? ek_panels_of(extent, most)
                          : (ek_panels){ek_ceil(extent, most), most, 0};
}
static inline long ek_panel_width(const ek_panels *p, long at) {
    return p->width + (at < p->wider);
}
static inline long ek_panel_start(const ek_panels *p, long at) {
    return at * p->width + ek_min(at, p->wider);
}

/* k split into equal blocks; k = 0 gives one empty block. */
typedef struct {
    long count, depth; /* the last block may be shorter */
} ek_depths;

#define EK_GEMM_STRIP_BYTES 24576 /* panels of B that stay in L1 */

#define EK_GEMM_DEPTH_STEP 16 /* granularity of blocks, so that no vector along k is split */

static inline ek_depths ek_depths_of(const ek_gemm_operands *types, long k, long kc) {
    if (types->full_k || k <= kc)
        return (ek_depths){1, k};
    long depth = ek_ceil(ek_ceil(k, ek_ceil(k, ek_max(kc, 1))), EK_GEMM_DEPTH_STEP);
    depth *= EK_GEMM_DEPTH_STEP;
    return (ek_depths){ek_ceil(k, depth), depth};
}
static inline long ek_depth_at(const ek_depths *d, long k, long at) {
    return ek_min(d->depth, k - at * d->depth);
}

/* One operand as panels: side 0 is A (widths in rows), 1 is B (in vectors). */
typedef struct {
    const ek_gemm_operands *types;
    int side;
    ek_panels panels;
} ek_gemm_side;

static inline size_t ek_panel_bytes(const ek_gemm_side *s, long width, long k) {
    size_t bytes = s->side ? s->types->b_panel(width, k) : s->types->a_panel(width, k);
    return (bytes + EK_GEMM_ALIGN - 1) / EK_GEMM_ALIGN * EK_GEMM_ALIGN;
}

/* Bytes of a panel at a given depth, for the two panel widths; [1] is the wider. */
typedef struct {
    size_t bytes[2];
} ek_panel_sizes;

static inline ek_panel_sizes ek_panel_sizes_of(const ek_gemm_side *s, long k) {
    long width = s->panels.width;
    return (ek_panel_sizes){
        {ek_panel_bytes(s, width, k), s->panels.wider ? ek_panel_bytes(s, width + 1, k) : 0}};
}
/* Bytes of panels [from, until). */
static inline size_t ek_panels_bytes(const ek_gemm_side *s, const ek_panel_sizes *sizes, long from,
                                     long until) {
    long wider = ek_min(until, s->panels.wider) - ek_min(from, s->panels.wider);
    return (size_t)wider * sizes->bytes[1] + (size_t)(until - from - wider) * sizes->bytes[0];
}

/* The family's register tile nearest to mr x nr. */
typedef struct {
    long mr, nv;
} ek_gemm_shape;

static inline ek_gemm_shape ek_gemm_nearest(const ek_gemm_family *family, long mr, long nr) {
    long nv = ek_max(ek_min(ek_vectors(family->operands, nr), family->columns), 1);
    return (ek_gemm_shape){ek_max(ek_min(mr, family->column[nv - 1]->mr), 1), nv};
}

/* Whether a tile is transposed, with vectors along m: nr is not a multiple of the vector length,
 * but mr is (128 x 1 for a GEMV, 48 x 7 for few columns). The transposed product is computed
 * then. */
static inline int ek_gemm_is_transposed(const ek_gemm_family *family, long mr, long nr) {
    const int part = family->operands->vl - 1;
    return (nr & part) && !(mr & part);
}
#endif
