/* 1 / sqrt(x) for integer x, in TFLite's fixed-point arithmetic. */
#ifndef EK_INVERSE_ROOT_H
#define EK_INVERSE_ROOT_H
#include "../kernel.h"

/* a * b / 2^31, rounded half up. */
EK_INLINE int32_t ek_multiply_high(int32_t a, int32_t b) {
    return (int32_t)(((int64_t)a * b + (1LL << 30)) >> 31);
}

EK_INLINE int32_t ek_saturated(int64_t x) {
    return (int32_t)(x < INT32_MIN ? INT32_MIN : x > INT32_MAX ? INT32_MAX : x);
}

/* 1 / sqrt(x) for x >= 1 equals the result * 2^(-31 - shift): five Newton steps in Q3. */
static inline int32_t ek_inverse_root(int32_t x, int *shift) {
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
        const int32_t cube = ek_multiply_high(ek_multiply_high(root, root), root);
        const int32_t step = ek_multiply_high(root, three_halves) -
                             ek_multiply_high(half, ek_saturated((int64_t)cube * 64));
        root = ek_saturated((int64_t)step * 8);
    }
    root = ek_multiply_high(root, 1518500250); /* sqrt(1/2) in Q0 */
    if (right < 0)
        root = (int32_t)((uint32_t)root << -right);
    *shift = right < 0 ? 0 : right;
    return root;
}
#endif
