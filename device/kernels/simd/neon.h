/* 64-bit ARM: 32 registers of 128 bits. */
#ifndef EK_I8
#define EK_I8 EK_I8_WIDE16
#endif
#define EK_VL 4
#define EK_FMA 1
#define EK_LANES 1
#define EK_OWN_MULHI
#include <arm_neon.h>
#include <stdint.h>
typedef int32_t ek_neon_vi __attribute__((vector_size(16)));
static inline __attribute__((always_inline)) ek_neon_vi vi_mulhi(ek_neon_vi a, ek_neon_vi b) {
    return (ek_neon_vi)vqrdmulhq_s32((int32x4_t)a, (int32x4_t)b);
}
#include "vector.h"
