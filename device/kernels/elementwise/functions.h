/* Functions of map.c: OP_* selects `f`, on elements of type TA (and TB, TC), returning TY. */
#ifndef EK_FUNCTIONS_H
#define EK_FUNCTIONS_H
#include <math.h>
#include "activations.h"
#include "half.h"

/* x clamped to [0, high]. */
static inline __attribute__((unused)) float ek_clamp(float x, float high) {
    x = x > 0.0f ? x : 0.0f;
    return x < high ? x : high;
}

/* The remainder of a / b with the sign of b. */
static inline __attribute__((unused)) float ek_fmod_floored(float a, float b) {
    const float rest = fmodf(a, b);
    return rest != 0.0f && (rest < 0.0f) != (b < 0.0f) ? rest + b : rest;
}

/* a^b modulo 2^64; for b < 0, 1 / a^-b truncated, and 0 if a is 0. */
static inline __attribute__((unused)) int64_t ek_int_power(int64_t a, int64_t b) {
    if (b < 0)
        return a == 1 || (a == -1 && b % 2 == 0) ? 1 : a == -1 ? -1 : 0;
    uint64_t power = 1, base = (uint64_t)a;
    for (; b; b >>= 1, base *= base)
        power *= b & 1 ? base : 1;
    return (int64_t)power;
}

/* The square root of x rounded to the nearest integer, bit by bit; 2^16 - 1 and 2^32 - 1 are not
 * rounded up. */
static inline __attribute__((unused)) uint64_t ek_int_sqrt(uint64_t x) {
    uint64_t root = 0;
    for (uint64_t bit = 1ULL << 62; bit; bit >>= 2) {
        const uint64_t sum = root + bit;
        const int fits = x >= sum;
        x -= fits ? sum : 0;
        root = (root >> 1) + (fits ? bit : 0);
    }
    return root + (x > root && root != UINT16_MAX && root != UINT32_MAX);
}

/* f16 functions compute in f32 and round once. This includes single operations, for which compilers
 * use f16 instructions. */
#ifdef EK_HALF
#define COMPUTED float
#else
#define COMPUTED TA
#endif
#define UNARY(expression)                                                                          \
    EK_INLINE TY f(TA x, float p, float q) {                                                       \
        const COMPUTED a = x;                                                                      \
        (void)a, (void)p, (void)q;                                                                 \
        return (TY)(expression);                                                                   \
    }
#define BINARY(expression)                                                                         \
    EK_INLINE TY f(TA x, TA y, float p, float q) {                                                 \
        const COMPUTED a = x, b = y;                                                               \
        (void)p, (void)q;                                                                          \
        return (TY)(expression);                                                                   \
    }
/* a / b rounded toward minus infinity, for integers and floats. */
#define FLOORED(a, b)                                                                              \
    ((b) == 0        ? 0                                                                           \
     : IS_MINUS_1(b) ? (TA)0 - (a)                                                                 \
                     : (a) / (b) - ((a) % (b) != 0 && ((a) < 0) != ((b) < 0)))
/* Converts an element to its value and back: f16 is stored as bits. */
#ifdef FROM_F16
#define READ(v) ek_float_of_half(v)
#else
#define READ(v) (v)
#endif
#ifdef TO_F16
#define WRITE(v) ek_half_of_float((float)(v))
#else
#define WRITE(v) (v)
#endif
/* Division is defined for every pair of integers, so that no input can trap. */
#define IS_FLOAT ((TA)0.5f != 0)
#define IS_MINUS_1(b) ((TA) - 1 < 0 && (b) == (TA) - 1)
#define INT_DIVIDED(b, divided) ((b) == 0 ? 0 : IS_MINUS_1(b) ? (TA)0 - (a) : (divided))

#if defined OP_CONVERT || defined OP_SATURATE
EK_INLINE TY convert(TA a) {
#if defined __riscv_vector && !defined TO_F16
    /* QEMU 7.2 hits an assertion in RVV's float-to-integer conversions: keep these scalar. */
    if ((READ((TA)0.5f) != 0 || sizeof(READ(a)) != sizeof a) && (TY)0.5f == 0) {
        uint64_t y = (TY)-1 > 0 ? (uint64_t)READ(a) : (uint64_t)(int64_t)READ(a);
        __asm__ volatile("" : "+r"(y));
        return (TY)y;
    }
#endif
    return (TY)WRITE(READ(a));
}
#endif

#if defined OP_EXP
UNARY(ek_exp(x))
#elif defined OP_LOG
UNARY(ek_logf(a))
#elif defined OP_SQRT
UNARY(__builtin_elementwise_sqrt(a)) /* sqrtf may set errno, which prevents vectorization */
#elif defined OP_INT_SQRT
UNARY(ek_int_sqrt(a))
#elif defined OP_RSQRT
UNARY(1.0f / __builtin_elementwise_sqrt(a))
#elif defined OP_RECIPROCAL
UNARY(1.0f / a)
#elif defined OP_SIN
UNARY(sinf(a))
#elif defined OP_COS
UNARY(cosf(a))
#elif defined OP_TAN
UNARY(tanf(a))
#elif defined OP_ASIN
UNARY(asinf(a))
#elif defined OP_ACOS
UNARY(acosf(a))
#elif defined OP_ATAN
UNARY(atanf(a))
#elif defined OP_SINH
UNARY(sinhf(a))
#elif defined OP_COSH
UNARY(coshf(a))
#elif defined OP_ASINH
UNARY(asinhf(a))
#elif defined OP_ACOSH
UNARY(acoshf(a))
#elif defined OP_ATANH
UNARY(atanhf(a))
#elif defined OP_LOGISTIC
UNARY(ek_logistic(x))
#elif defined OP_SILU
UNARY(ek_silu(x, p))
#elif defined OP_HARD_SWISH && defined EK_HALF
/* Rounds after each step, as in conv/epilogue.h; 1/6 is the sum of two factors. */
EK_INLINE TY f(TA a, float p, float q) {
    TA gate = a + (TA)3.0f;
    (void)p, (void)q;
    gate = gate > (TA)0.0f ? gate : (TA)0.0f;
    gate = gate < (TA)6.0f ? gate : (TA)6.0f;
    return a * __builtin_elementwise_fma(gate, (TA)EK_SIXTH, gate * (TA)EK_SIXTH_REST);
}
#elif defined OP_HARD_SWISH
UNARY(a *(ek_clamp(a + 3.0f, 6.0f) * (1.0f / 6.0f)))
#elif defined OP_TANH
UNARY(ek_tanh(x))
#elif defined OP_ERF
UNARY(ek_erf(x))
#elif defined OP_GELU
UNARY(ek_gelu(x))
#elif defined OP_GELU_TANH
UNARY(ek_gelu_tanh(x))
#elif defined OP_SOFTPLUS
UNARY(ek_softplus(x))
#elif defined OP_ABS
UNARY(a < 0 ? -a : a)
#elif defined OP_NEG
UNARY(-a)
#elif defined OP_SIGN
UNARY(a != a ? a : (a > 0) - (a < 0))
#elif defined OP_FLOOR
UNARY(floorf(a))
#elif defined OP_CEIL
UNARY(ceilf(a))
#elif defined OP_ROUND_EVEN
UNARY(rintf(a))
#elif defined OP_ROUND_BFLOAT16
UNARY(ek_rounded_to_bfloat16(a))
#elif defined OP_NOT
UNARY(!a)
#elif defined OP_CLIP
UNARY(a<(TA)p ? (TA)p : a>(TA) q ? (TA)q : a)
#elif defined OP_LEAKY_RELU
UNARY(a < 0 ? p * a : a)
#elif defined OP_ELU
UNARY(q *(a > 0 ? a : p * ek_expm1_falling(a > 0 ? 0.0f : a)))
#elif defined OP_HARD_SIGMOID
UNARY(p *a + q < 0.0f ? 0.0f : p * a + q > 1.0f ? 1.0f : p * a + q)
#elif defined OP_CONVERT
EK_INLINE TY f(TA a, float p, float q) {
    (void)p, (void)q;
    return convert(a);
}
#elif defined OP_SATURATE
/* Clamps floats: p is the minimum of type TY, q is its maximum plus 1. */
EK_INLINE TY f(TA a, float p, float q) {
    const uint64_t half = 1ULL << (8 * sizeof(TY) - 1);
    const TY largest = (TY)(p < 0.0f ? half - 1 : half * 2 - 1);
    const float x = READ(a);
    return x < p ? (TY)p : x < q ? convert(a) : largest;
}
#elif defined OP_CONVERT_BOOL
UNARY(READ(a) != 0)
#elif defined OP_ADD
BINARY(a + b)
#elif defined OP_MUL
BINARY(a * (1u * b)) /* 1u: the product of two 16-bit values must not overflow int */
#elif defined OP_SUB
BINARY(a - b)
#elif defined OP_DIV
BINARY(IS_FLOAT ? a / b : INT_DIVIDED(b, a / b))
#elif defined OP_FLOOR_DIV
BINARY(FLOORED(a, b))
#elif defined OP_FLOOR_DIV_FLOAT
BINARY(floorf(a / b))
#elif defined OP_SQUARED_DIFFERENCE
BINARY((a - b) * (1u * (a - b)))
#elif defined OP_BITWISE_NOT
UNARY(~a)
#elif defined OP_BITWISE_AND
BINARY(a &b)
#elif defined OP_BITWISE_OR
BINARY(a | b)
#elif defined OP_LEFT_SHIFT
BINARY(b < 0 || b >= (TA)(8 * sizeof(TA)) ? 0 : (1u * a) << b)
#elif defined OP_BITWISE_XOR
BINARY(a ^ b)
#elif defined OP_RIGHT_SHIFT
BINARY(a >> (b < 0 ? 0 : b >= (TA)(8 * sizeof(TA)) ? (TA)(8 * sizeof(TA) - 1) : b))
#elif defined OP_MODULO
BINARY(b == 0 || IS_MINUS_1(b) ? 0 : (a % b != 0 && (a % b < 0) != (b < 0)) ? a % b + b : a % b)
#elif defined OP_MODULO_TRUNCATED
BINARY(b == 0 || IS_MINUS_1(b) ? 0 : a % b)
#elif defined OP_FMOD
BINARY(fmodf(a, b))
#elif defined OP_FMOD_FLOORED
BINARY(ek_fmod_floored(a, b))
#elif defined OP_POW
BINARY(powf(a, b))
#elif defined OP_INT_POWER
BINARY(ek_int_power(a, b))
#elif defined OP_ATAN2
BINARY(atan2f(a, b))
#elif defined OP_MAXIMUM
BINARY(a > b || a != a ? a : b)
#elif defined OP_MINIMUM
BINARY(a < b || a != a ? a : b)
#elif defined OP_PRELU
BINARY(a < 0 ? a * b : a)
#elif defined OP_EQUAL
BINARY(a == b)
#elif defined OP_LESS
BINARY(a < b)
#elif defined OP_LESS_OR_EQUAL
BINARY(a <= b)
#elif defined OP_AND
BINARY(a &&b)
#elif defined OP_OR
BINARY(a || b)
#elif defined OP_XOR
BINARY(!a != !b)
#endif
#endif
