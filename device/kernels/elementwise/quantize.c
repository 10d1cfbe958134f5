/* f32 -> codes.
 *
 * Compile-time parameters: NAME, EK_SIMD, TQ (int8_t, uint8_t; int16_t with WIDE), and for a scale
 * that is taken from the values themselves, symmetric: OP_DYNAMIC; OP_EVEN: halves to even codes,
 * as ONNX rounds (one task: an image of a small board is quantized faster than a second thread
 * wakes up). */
#include "unary.h"

typedef struct {
    vf factor; /* codes per unit; without OP_DYNAMIC the scale, by which TFLite divides */
    vi zero, low, high;
} mapping;

/* Nearest integer; values beyond 4e6 stay that large, and codes are far smaller. */
EK_INLINE vi nearest(vf x) {
    x = vf_min(vf_max(x, vf_splat(-4e6f)), vf_splat(4e6f));
#ifdef OP_EVEN
    /* halves to even: adding 1.5 * 2^23 leaves no bits for a fraction */
    const vf shift = vf_splat(12582912.0f);
    return vi_from_whole((x + shift) - shift);
#else
    return vi_nearest(x);
#endif
}

EK_INLINE vi code(const mapping *m, vf x) {
#ifdef OP_DYNAMIC
    x = x * m->factor;
#else
    x = x / m->factor;
#endif
    return vi_min(vi_max(nearest(x) + m->zero, m->low), m->high);
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

static void quantize(const mapping *m, const float *x, TQ *y, long n) {
    long i = 0;
    for (; i + EK_VL <= n; i += EK_VL)
        store(y + i, code(m, vf_load(x + i)));
    if (i < n)
        store_n(y + i, code(m, vf_load_n(x + i, n - i)), n - i);
}

#ifdef OP_DYNAMIC
static float largest_magnitude(const float *x, long n) {
    vf most = vf_splat(0.0f);
    float lanes[EK_VL], largest = 0.0f;
    long i = 0;
    for (; i + EK_VL <= n; i += EK_VL) {
        vf v = vf_load(x + i);
        most = vf_max(most, vf_max(v, -v));
    }
    vf_store(lanes, most);
    for (int l = 0; l < EK_VL; l++)
        largest = lanes[l] > largest ? lanes[l] : largest;
    for (; i < n; i++) {
        float v = x[i] < 0.0f ? -x[i] : x[i];
        largest = v > largest ? v : largest;
    }
    return largest;
}

void NAME(const void *args, long begin, long end) {
    const ek_unary_args *g = args;
    (void)begin;
    (void)end;
    float largest = largest_magnitude((const float *)g->x, g->n);
    *g->x_scale = largest > 0.0f ? largest / 127.0f : 1.0f;
    mapping m = {vf_splat(largest > 0.0f ? 127.0f / largest : 0.0f), vi_splat(0), vi_splat(-127),
                 vi_splat(127)};
    quantize(&m, (const float *)g->x, (TQ *)g->y, g->n);
}
#else
/* Tasks: chunks of EK_UNARY_CHUNK elements. */
void NAME(const void *args, long begin, long end) {
    const ek_unary_args *g = args;
    mapping m = {vf_splat(g->scale), vi_splat(g->zero), vi_splat(g->qlow), vi_splat(g->qhigh)};
    long from = begin * EK_UNARY_CHUNK, to = ek_min(end * EK_UNARY_CHUNK, g->n);
    quantize(&m, (const float *)g->x + from, (TQ *)g->y + from, to - from);
}
#endif
