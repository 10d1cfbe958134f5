/* RVV 1.0 with arithmetic in half precision (Zvfh): a vector is sixteen f16, in a pair of registers
 * where these have 128 bits. For the kernels of f16 tensors, beside those of rvv128.h for all
 * else. */
#define EK_HALF 1
#define EK_VL 16
#define EK_FMA 1
#define EK_LANES 0
#if defined __riscv_vector && __has_builtin(__builtin_masked_load)
#define EK_OWN_PARTIAL
#endif
#include "vector.h"

#ifdef EK_OWN_PARTIAL
/* Images have fewer channels than a vector has lanes more often than with f32. */
typedef _Float16 ek_lanes __attribute__((ext_vector_type(EK_VL)));
typedef _Bool ek_first __attribute__((ext_vector_type(EK_VL)));

EK_INLINE ek_first first_lanes(long n) {
    typedef uint16_t numbers __attribute__((ext_vector_type(EK_VL)));
    const numbers lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return __builtin_convertvector(lane < (uint16_t)n, ek_first);
}
EK_INLINE vf vf_load_n(const ek_real *p, long n) {
    return (vf)__builtin_masked_load(first_lanes(n), p, (ek_lanes)(0));
}
EK_INLINE void vf_store_n(ek_real *p, vf v, long n) {
    __builtin_masked_store(first_lanes(n), (ek_lanes)v, p);
}
#endif
