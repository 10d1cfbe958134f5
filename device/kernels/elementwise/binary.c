/* Element-wise addition and multiplication, f32 and 8-bit.
 *
 * Compile-time parameters: NAME, EK_SIMD, TX (float, int8_t, uint8_t), and OP_ADD or OP_MUL. */
#include "binary.h"

#ifdef FLOAT_X
EK_INLINE float combine(const ek_binary_args *g, float a, float b) {
#ifdef OP_ADD
    float v = a + b;
#else
    float v = a * b;
#endif
    v = v > g->low_f32 ? v : g->low_f32;
    return v < g->high_f32 ? v : g->high_f32;
}
#else
EK_INLINE int32_t scale(int32_t x, int32_t multiplier, int left, int right) {
    int64_t wide = (int64_t)(x << left) * multiplier + (1LL << 30);
    int32_t high = (int32_t)(wide >> 31), mask = (int32_t)((1u << right) - 1);
    return (high >> right) + ((high & mask) > (mask >> 1) + (high < 0));
}
EK_INLINE TX combine(const ek_binary_args *g, TX a, TX b) {
    int32_t x = a - g->a_zero, z = b - g->b_zero;
#ifdef OP_ADD
    int32_t raw = scale(x * (1 << g->shift), g->a_multiplier, g->a_left, g->a_right) +
                  scale(z * (1 << g->shift), g->b_multiplier, g->b_left, g->b_right);
#else
    int32_t raw = x * z;
#endif
    int32_t v = scale(raw, g->y_multiplier, g->y_left, g->y_right) + g->y_zero;
    v = v > g->low ? v : g->low;
    return (TX)(v < g->high ? v : g->high);
}
#endif

/* One run of y; a step of 0 repeats the operand. */
static void run(const ek_binary_args *args, const TX *restrict a, long a_step, const TX *restrict b,
                long b_step, TX *restrict y, long n) {
    const ek_binary_args g = *args; /* a copy, so that stores to y cannot change it */
    if (a_step && b_step)
        for (long i = 0; i < n; i++)
            y[i] = combine(&g, a[i], b[i]);
    else if (a_step)
        for (long i = 0; i < n; i++)
            y[i] = combine(&g, a[i], b[0]);
    else if (b_step)
        for (long i = 0; i < n; i++)
            y[i] = combine(&g, a[0], b[i]);
    else
        for (long i = 0; i < n; i++)
            y[i] = combine(&g, a[0], b[0]);
}

/* Tasks: chunks of rows. */
void NAME(const ek_binary_args *g, long begin, long end) {
    const int last = EK_BINARY_DIMS - 1;
    for (long t = begin; t < end; t++) {
        long row = t / g->chunks, from = t % g->chunks * EK_BINARY_CHUNK;
        long a_at = from * g->a_stride[last], b_at = from * g->b_stride[last];
        long y_at = row * g->dim[last] + from;
        for (int d = last - 1; d >= 0; d--) {
            long i = row % g->dim[d];
            row /= g->dim[d];
            a_at += i * g->a_stride[d];
            b_at += i * g->b_stride[d];
        }
        run(g, (const TX *)g->a + a_at, g->a_stride[last], (const TX *)g->b + b_at,
            g->b_stride[last], (TX *)g->y + y_at, ek_min(EK_BINARY_CHUNK, g->dim[last] - from));
    }
}
