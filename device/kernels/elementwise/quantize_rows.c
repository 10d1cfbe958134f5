/* Quantizes rows to s8 by their largest magnitude: y = nearest(x * 127 / largest), halves
 * away from zero.
 *
 * Compile-time parameters: NAME, EK_SIMD. Task: one row. */
#include "../kernel.h"
#include "range.h"

typedef struct {
    long n; /* values per row */
    const float *x;
    int8_t *y;
    float *scale; /* one per row */
} ek_quantize_rows_args;

#define LEAST 1e-30f /* rows of smaller values become 0, since the inverse could overflow */

static void row(const float *x, int8_t *y, float *scale, long n) {
    float low, high;
    range_of(x, n, &low, &high);
    float most = -low > high ? -low : high;
    most = most < LEAST ? 127.0f : most;
    const vf inverse = vf_splat(127.0f / most);
    *scale = most / 127.0f;
    long i = 0;
    for (; i + EK_VL <= n; i += EK_VL)
        vi_to_bytes(y + i, vi_nearest(vf_load(x + i) * inverse));
    if (i < n)
        vi_to_bytes_n(y + i, vi_nearest(vf_load_n(x + i, n - i) * inverse), n - i);
}

void NAME(const void *args, long begin, long end) {
    const ek_quantize_rows_args *a = args;
    for (long r = begin; r < end; r++)
        row(a->x + r * a->n, a->y + r * a->n, a->scale + r, a->n);
}
