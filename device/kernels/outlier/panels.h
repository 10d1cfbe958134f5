/* W as stored: panels of the integer product, 8-bit or 4-bit.
 *
 * Compile-time parameter: EK_SIMD. */
#ifndef EK_OUTLIER_PANELS_H
#define EK_OUTLIER_PANELS_H
#include "parts.h"
#define MR 1
#define NV 1
#define TYPES (EK_I8 == EK_I8_DOT4_US ? 2 : 1)
#include "../gemm/i8_types.h"
#include "../gemm/i4_unpack.h"

#define MOST_COLUMNS (EK_GEMM_MAX_NV * EK_VL) /* per panel */

typedef ek_outlier_stored stored;

/* Number of values in a panel `width` vectors wide, including depth padding. */
EK_INLINE long panel_values(long width, long k) {
    return width * EK_VL * i8_padded(k);
}

EK_INLINE size_t i4_bytes(long width, long k) {
    const size_t half = (size_t)(panel_values(width, k) + 1) / 2;
    return (half + EK_GEMM_ALIGN - 1) / EK_GEMM_ALIGN * EK_GEMM_ALIGN;
}

static inline stored stored_of(const ek_outlier_weights *w) {
    const ek_gemm_family *family = ek_gemm_families[ek_outlier_dtype()];
    const ek_gemm_shape shape = ek_gemm_nearest(family, w->how.mr, w->how.nr);
    const long vectors = ek_vectors(family->operands, w->n);
    stored s = {.weights = w, .side = {family->operands, 1, ek_panels_of(vectors, shape.nv)}};
    const long width = s.side.panels.width;
    s.stored = s.bytes = ek_panel_sizes_of(&s.side, w->group);
    if (w->is_int4) {
        s.stored.bytes[0] = i4_bytes(width, w->group);
        s.stored.bytes[1] = s.side.panels.wider ? i4_bytes(width + 1, w->group) : 0;
    }
    return s;
}

/* Address of panel j of a group, as stored. */
EK_INLINE const void *panel_at(const stored *s, long j, long group) {
    return (const char *)s->weights->b + (size_t)group * s->weights->b_bytes +
           ek_panels_bytes(&s->side, &s->stored, 0, j);
}
#endif
