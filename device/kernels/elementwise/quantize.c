/* Quantizes f32.
 *
 * Compile-time parameters: NAME, EK_SIMD, TQ (int8_t, uint8_t; int16_t with WIDE); OP_EVEN: rounds
 * half to even, as ONNX does; OP_DYNAMIC: symmetric scale from the maximum magnitude that
 * magnitudes.c found. */
#include "unary.h"
#ifdef OP_DYNAMIC
#include "range.h"
#endif

#if defined EK_QUANTIZED8 && !defined WIDE && !defined OP_DYNAMIC
#define EIGHTS
#endif

typedef struct {
    vf factor;  /* reciprocal of the scale; without OP_DYNAMIC the scale itself, because TFLite
                   divides */
    vf inverse; /* of `factor`, rounded; unless OP_DYNAMIC */
    vi zero, low, high;
#ifdef EIGHTS
    vi_range range;
#endif
} mapping;

#ifdef OP_DYNAMIC
#define QUICK 0
EK_INLINE vi unbounded(const mapping *m, vf x, const int quick) {
    (void)quick;
    return vi_nearest(x * m->factor);
}
/* At most 127: the factor is derived from the maximum. */
EK_INLINE vi bounded(const mapping *m, vi quantized) {
    (void)m;
    return quantized;
}
#else
#define QUICK EK_FMA
#define REACH 4e6f /* clamping to it is harmless because quantized values are far smaller */

/* x / m->factor. A residue is exact, so the first correction leaves less than one unit in the last
 * place, and the second rounds correctly (Markstein), without waiting for a divider. Quotients for
 * which residues underflow are far below a half. */
EK_INLINE vf quotient(const mapping *m, vf x) {
    vf q = x * m->inverse;
    EK_UNROLL
    for (int i = 0; i < 2; i++)
        q = vf_fma(vf_fma(-q, m->factor, x), m->inverse, q);
    return q;
}

/* The nearest integers, without the zero point. */
EK_INLINE vi unbounded(const mapping *m, vf x, const int quick) {
    const vf reach = vf_splat(REACH) * (quick ? m->factor : vf_splat(1.0f));
    x = vf_min(vf_max(quick ? x : x / m->factor, -reach), reach);
    x = quick ? quotient(m, x) : x;
#ifdef OP_EVEN
    return vi_nearest_even(x);
#else
    return vi_nearest(x);
#endif
}
EK_INLINE vi bounded(const mapping *m, vi quantized) {
    return vi_min(vi_max(quantized + m->zero, m->low), m->high);
}
#endif

EK_INLINE void store(TQ *y, vi v) {
#ifdef WIDE
    vi_to_s16(y, v);
#else
    vi_to_bytes(y, v);
#endif
}
EK_INLINE void store_n(TQ *y, vi v, long n) {
#ifdef WIDE
    vi_to_s16_n(y, v, n);
#else
    vi_to_bytes_n(y, v, n);
#endif
}

EK_INLINE void store_two(const mapping *m, TQ *y, vi a, vi b) {
#ifdef EIGHTS
    const int64_t both = vi_quantized8(a, b, &m->range, (TQ)-1 > 0);
    memcpy(y, &both, 8);
#else
    store(y, bounded(m, a));
    store(y + EK_VL, bounded(m, b));
#endif
}

#define SIDE 4 /* vectors per iteration, to hide latency */

EK_INLINE void quantize(const mapping *m, const float *x, TQ *y, long n, const int quick) {
    long i = 0;
    for (; i + SIDE * EK_VL <= n; i += SIDE * EK_VL) {
        vi v[SIDE];
        for (int s = 0; s < SIDE; s++)
            v[s] = unbounded(m, vf_load(x + i + s * EK_VL), quick);
        for (int s = 0; s < SIDE; s += 2)
            store_two(m, y + i + s * EK_VL, v[s], v[s + 1]);
    }
    for (; i + EK_VL <= n; i += EK_VL)
        store(y + i, bounded(m, unbounded(m, vf_load(x + i), quick)));
    if (i < n)
        store_n(y + i, bounded(m, unbounded(m, vf_load_n(x + i, n - i), quick)), n - i);
}

#ifdef OP_DYNAMIC
/* Scales by the maximum magnitude; the first chunk's task stores the scale. */
static mapping mapping_of(const ek_unary_args *g, long begin) {
    float low, largest;
    range_of(g->x_scale + 1, (g->n + EK_UNARY_CHUNK - 1) / EK_UNARY_CHUNK, &low, &largest);
    if (begin == 0)
        *g->x_scale = largest > 0.0f ? largest / 127.0f : 1.0f;
    return (mapping){.factor = vf_splat(largest > 0.0f ? 127.0f / largest : 0.0f)};
}
#else
static mapping mapping_of(const ek_unary_args *g, long begin) {
    (void)begin;
    return (mapping){
        .factor = vf_splat(g->scale),
        .inverse = vf_splat(1.0f / g->scale),
        .zero = vi_splat(g->zero),
        .low = vi_splat(g->qlow),
        .high = vi_splat(g->qhigh),
#ifdef EIGHTS
        .range = vi_range_of(g->zero, g->qlow, g->qhigh),
#endif
    };
}
#endif

/* Task: one chunk of EK_UNARY_CHUNK elements. */
void NAME(const void *args, long begin, long end) {
    const ek_unary_args *g = args;
    const mapping m = mapping_of(g, begin);
    const long from = begin * EK_UNARY_CHUNK, to = ek_min(end * EK_UNARY_CHUNK, g->n);
    const float *x = (const float *)g->x + from;
    TQ *y = (TQ *)g->y + from;
    /* Residues and limits of other scales may underflow or overflow. */
    if (QUICK && g->scale > 1e-18f && g->scale < 1e18f)
        quantize(&m, x, y, to - from, 1);
    else
        quantize(&m, x, y, to - from, 0);
}
