/* Quantizes f32 to 8 bits with scale and zero point derived from the range of all values, extended
 * to include 0, rounding half to even, like ONNX's DynamicQuantizeLinear. Also computes the bias
 * that the zero point adds to a product of the quantized values.
 *
 * Compile-time parameters: NAME, EK_SIMD, and either RANGE (one task: computes the range, scale,
 * zero point and bias) or TQ (then a task per EK_UNARY_CHUNK values quantizes them; int8_t: values
 * and zero point minus 128; uint8_t). With IMAGE, a task is one row of images with a border of zero
 * points. */
#include "../kernel.h"
#include "range.h"

typedef struct {
    long n;
    const float *x;
    void *y;
    float *scale;
    int32_t *zero;
    long channels;         /* of the product */
    const int32_t *at_128; /* its bias for a zero point of 128, */
    const int32_t *step;   /* and the increment per step of the zero point above 128 */
    int32_t *bias;
    /* Images: rows per image; rows of the quantized image, of which the first `top` are border;
     * values per row; in a quantized row, border values before the data, and total. */
    long height, quantized_height, top, row, left, pitch;
} ek_dynamic_quantize_args;

/* Rounds half to even: adding 1.5 * 2^23 leaves no bits for a fraction. Quotients lie in [-255,
 * 255] because the range covers all values. */
EK_INLINE vi to_even(vf x) {
    const vf shift = vf_splat(12582912.0f);
    x = vf_min(vf_max(x, vf_splat(-4e6f)), vf_splat(4e6f));
    return vi_from_integral((x + shift) - shift);
}

#ifdef RANGE
void NAME(const void *args, long begin, long end) {
    const ek_dynamic_quantize_args *g = args;
    (void)begin, (void)end;
    float low, high;
    range_of(g->x, g->n, &low, &high);
    const float scale = high > low ? (high - low) / 255.0f : 1.0f;
    int32_t zeros[EK_VL];
    vi_store(zeros, to_even(vf_splat(-low) / vf_splat(scale)));
    const int32_t zero = zeros[0] < 0 ? 0 : zeros[0] > 255 ? 255 : zeros[0];
    *g->scale = scale;
    *g->zero = zero;
    for (long c = 0; c < g->channels; c++)
        g->bias[c] = g->at_128[c] + (zero - 128) * g->step[c];
}
#else
#define SIDE 4 /* vectors per iteration, to hide latency */
#define SHIFT ((TQ) - 1 > 0 ? 0 : 128)

EK_INLINE vi quantize_vector(vf x, vf scale, vi zero) {
    const vi c = vi_min(vi_max(to_even(x / scale) + zero, vi_splat(0)), vi_splat(255));
    return c - vi_splat(SHIFT);
}

static void quantize(const float *x, TQ *y, long n, float step, int zero_point) {
    const vf scale = vf_splat(step);
    const vi zero = vi_splat(zero_point);
    long i = 0;
    for (; i + SIDE * EK_VL <= n; i += SIDE * EK_VL) {
        vi quantized[SIDE];
        for (int s = 0; s < SIDE; s++)
            quantized[s] = quantize_vector(vf_load(x + i + s * EK_VL), scale, zero);
        for (int s = 0; s < SIDE; s++)
            vi_to_bytes(y + i + s * EK_VL, quantized[s]);
    }
    for (; i + EK_VL <= n; i += EK_VL)
        vi_to_bytes(y + i, quantize_vector(vf_load(x + i), scale, zero));
    if (i < n)
        vi_to_bytes_n(y + i, quantize_vector(vf_load_n(x + i, n - i), scale, zero), n - i);
}

#ifdef IMAGE
void NAME(const void *args, long begin, long end) {
    const ek_dynamic_quantize_args *g = args;
    const int border = *g->zero - SHIFT;
    for (long task = begin; task < end; task++) {
        const long row = task % g->quantized_height - g->top;
        TQ *y = (TQ *)g->y + task * g->pitch;
        if (row < 0 || row >= g->height) {
            memset(y, border, (size_t)g->pitch);
            continue;
        }
        const float *x = g->x + (task / g->quantized_height * g->height + row) * g->row;
        memset(y, border, (size_t)g->left);
        quantize(x, y + g->left, g->row, *g->scale, *g->zero);
        memset(y + g->left + g->row, border, (size_t)(g->pitch - g->left - g->row));
    }
}
#else
void NAME(const void *args, long begin, long end) {
    const ek_dynamic_quantize_args *g = args;
    const long first = begin * EK_UNARY_CHUNK, last = ek_min(end * EK_UNARY_CHUNK, g->n);
    quantize(g->x + first, (TQ *)g->y + first, last - first, *g->scale, *g->zero);
}
#endif
#endif
