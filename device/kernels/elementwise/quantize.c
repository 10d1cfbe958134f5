/* Quantizes f32.
 *
 * Compile-time parameters: NAME, EK_SIMD, TQ (int8_t, uint8_t; int16_t with WIDE); OP_EVEN: rounds
 * half to even, as ONNX does; OP_DYNAMIC: symmetric scale from the maximum magnitude that
 * magnitudes.c found. */
#include "unary.h"
#ifdef OP_DYNAMIC
#include "range.h"
#endif

typedef struct {
    vf factor; /* reciprocal of the scale; without OP_DYNAMIC the scale itself, because TFLite
                  divides */
    vi zero, low, high;
} mapping;

#ifndef OP_DYNAMIC
/* Nearest integer; clamping to 4e6 is harmless because quantized values are far smaller. */
EK_INLINE vi nearest(vf x) {
    x = vf_min(vf_max(x, vf_splat(-4e6f)), vf_splat(4e6f));
#ifdef OP_EVEN
    return vi_nearest_even(x);
#else
    return vi_nearest(x);
#endif
}
#endif

EK_INLINE vi quantize_vector(const mapping *m, vf x) {
#ifdef OP_DYNAMIC
    return vi_nearest(x * m->factor); /* at most 127: the factor is derived from the maximum */
#else
    return vi_min(vi_max(nearest(x / m->factor) + m->zero, m->low), m->high);
#endif
}

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

#define SIDE 4 /* vectors per iteration, to hide latency */

static void quantize(const mapping *m, const float *x, TQ *y, long n) {
    long i = 0;
    for (; i + SIDE * EK_VL <= n; i += SIDE * EK_VL) {
        vi quantized[SIDE];
        for (int s = 0; s < SIDE; s++)
            quantized[s] = quantize_vector(m, vf_load(x + i + s * EK_VL));
        for (int s = 0; s < SIDE; s++)
            store(y + i + s * EK_VL, quantized[s]);
    }
    for (; i + EK_VL <= n; i += EK_VL)
        store(y + i, quantize_vector(m, vf_load(x + i)));
    if (i < n)
        store_n(y + i, quantize_vector(m, vf_load_n(x + i, n - i)), n - i);
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
    return (mapping){vf_splat(g->scale), vi_splat(g->zero), vi_splat(g->qlow), vi_splat(g->qhigh)};
}
#endif

/* Task: one chunk of EK_UNARY_CHUNK elements. */
void NAME(const void *args, long begin, long end) {
    const ek_unary_args *g = args;
    const mapping m = mapping_of(g, begin);
    const long from = begin * EK_UNARY_CHUNK, to = ek_min(end * EK_UNARY_CHUNK, g->n);
    quantize(&m, (const float *)g->x + from, (TQ *)g->y + from, to - from);
}
