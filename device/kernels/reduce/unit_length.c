/* Rows of codes divided by their length: scale 1/128 around the zero point Y_ZERO.
 * Compile-time parameters: NAME, EK_SIMD, TX (int8_t, uint8_t), Y_ZERO, LOW, HIGH. */
#include "unit_length.h"

/* a * b / 2^31, halves up. */
EK_INLINE int32_t multiply_high(int32_t a, int32_t b) {
    return (int32_t)(((int64_t)a * b + (1LL << 30)) >> 31);
}

EK_INLINE int32_t saturate(int64_t x) {
    return (int32_t)(x < INT32_MIN ? INT32_MIN : x > INT32_MAX ? INT32_MAX : x);
}

/* 1 / sqrt(x) of x >= 1 is the result * 2^(-31 - shift): five steps of Newton's in Q3. */
static int32_t inverse_root(int32_t x, int *shift) {
    *shift = 0;
    if (x <= 1)
        return INT32_MAX;
    int right = 11;
    for (; x >= 1 << 29; x /= 4)
        right++;
    const int pairs = (__builtin_clz((unsigned)x) - 1) / 2 - 1;
    right -= pairs;
    x <<= 2 * pairs;
    const int32_t half = ((x >> 1) + 1) >> 1, three_halves = (1 << 28) + (1 << 27);
    int32_t root = 1 << 28;
    for (int i = 0; i < 5; i++) {
        const int32_t cube = multiply_high(multiply_high(root, root), root);
        const int32_t step =
            multiply_high(root, three_halves) - multiply_high(half, saturate((int64_t)cube * 64));
        root = saturate((int64_t)step * 8);
    }
    root = multiply_high(root, 1518500250); /* the root of 1/2 in Q0 */
    if (right < 0)
        root = (int32_t)((uint32_t)root << -right);
    *shift = right < 0 ? 0 : right;
    return root;
}

/* Tasks: rows. */
void NAME(const void *args, long begin, long end) {
    const ek_unit_length_args *a = args;
    for (long t = begin; t < end; t++) {
        const TX *x = (const TX *)a->x + t * a->n;
        TX *restrict y = (TX *)a->y + t * a->n;
        int32_t sum = 0;
        int shift;
        for (long i = 0; i < a->n; i++)
            sum += (x[i] - a->x_zero) * (x[i] - a->x_zero);
        const int32_t factor = inverse_root(sum, &shift);
        /* 128ths of s8 join the factor's own shift; those of u8 are taken before it. */
        const int joined = (TX)-1 < 0 ? (shift < 7 ? shift : 7) : 0;
        const int left = 7 - joined, right = shift - joined;
        const int32_t mask = (int32_t)((1u << right) - 1);
        for (long i = 0; i < a->n; i++) {
            const int32_t high = multiply_high((x[i] - a->x_zero) * (1 << left), factor);
            const int32_t v = (high >> right) + ((high & mask) > (mask >> 1) + (high < 0)) + Y_ZERO;
            y[i] = (TX)(v < LOW ? LOW : v > HIGH ? HIGH : v);
        }
    }
}
