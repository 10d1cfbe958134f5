/* Vectors of one stored type, for kernels compiled once per type:
 *
 *   EK_STORED   ek_sparse_dtype, as a number
 *   HEIGHT      lanes of a strip
 *   value       a stored value; operand: an element of x; sum: an element of y
 *   vsum        HEIGHT sums */
#ifndef EK_SPARSE_TYPES_H
#define EK_SPARSE_TYPES_H
#include "../kernel.h"
#include "sparse.h"

#define LANES32 (EK_VL > 1 ? EK_VL : EK_SCALAR_LANES)
#define LANES64 (EK_VL > 1 ? EK_VL / 2 : EK_SCALAR_LANES)

#if EK_STORED == 0
typedef float value, operand, sum;
#elif EK_STORED == 1
typedef double value, operand, sum;
#elif EK_STORED == 2
typedef uint16_t value;
typedef float operand, sum;
#elif EK_STORED == 3
typedef int8_t value, operand;
typedef int32_t sum;
#else
typedef int8_t value;
typedef float operand, sum;
#endif
#define HEIGHT (EK_STORED == 1 ? LANES64 : LANES32)
typedef sum vsum __attribute__((vector_size(HEIGHT * sizeof(sum))));

EK_INLINE vsum vsum_fma(vsum a, vsum b, vsum c) {
#if EK_FMA && EK_STORED != 3
    return __builtin_elementwise_fma(a, b, c);
#else
    return a * b + c;
#endif
}

#if EK_STORED == 2 && (defined __F16C__ || defined __aarch64__ || defined __riscv_zvfh)
EK_INLINE vsum vsum_from_values(const value *p) {
    typedef _Float16 halves __attribute__((vector_size(2 * HEIGHT)));
    halves h;
    memcpy(&h, p, sizeof h);
    return __builtin_convertvector(h, vsum);
}
#elif EK_STORED == 2 && defined __arm__
EK_INLINE vsum vsum_from_values(const value *p) {
    typedef __fp16 halves __attribute__((vector_size(2 * HEIGHT)));
    halves h; /* arithmetic would flush subnormal halves to zero */
    memcpy(&h, p, sizeof h);
    return __builtin_convertvector(h, vsum);
}
#elif EK_STORED == 2
/* After shifting, a half's exponent is too small by 112; scaling fixes this exactly, even for
 * subnormals. */
EK_INLINE vsum vsum_from_values(const value *p) {
    typedef uint16_t halves __attribute__((vector_size(2 * HEIGHT)));
    typedef uint32_t words __attribute__((vector_size(4 * HEIGHT)));
    halves h;
    memcpy(&h, p, sizeof h);
    words w = __builtin_convertvector(h, words), magnitude = (w & 0x7fff) << 13;
    vsum scaled = (vsum)magnitude * 0x1p112f;
    return (vsum)((words)scaled | (w & 0x8000) << 16);
}
#elif EK_STORED >= 3
EK_INLINE vsum vsum_from_values(const value *p) {
    typedef int8_t bytes __attribute__((vector_size(HEIGHT)));
    bytes b;
    memcpy(&b, p, sizeof b);
    return __builtin_convertvector(b, vsum);
}
#else
EK_INLINE vsum vsum_from_values(const value *p) {
    vsum v;
    memcpy(&v, __builtin_assume_aligned(p, sizeof v), sizeof v);
    return v;
}
#endif

/* Converts a value to a sum. */
EK_INLINE sum sum_from_value(value v) {
#if EK_STORED == 2
    uint32_t bits = (uint32_t)(v & 0x7fff) << 13;
    float scaled;
    memcpy(&scaled, &bits, sizeof bits);
    scaled *= 0x1p112f;
    return v & 0x8000 ? -scaled : scaled;
#else
    return (sum)v;
#endif
}

/* HEIGHT consecutive elements of x. */
EK_INLINE vsum vsum_from_x(const operand *p) {
#if EK_STORED == 3
    return vsum_from_values(p);
#else
    vsum v;
    memcpy(&v, p, sizeof v);
    return v;
#endif
}
#endif
