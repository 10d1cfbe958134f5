/* 32-bit ARM with NEON and VFPv4: 16 registers of 128 bits. */
/* NEON flushes denormals to zero, in all code here that uses its vectors; compilers therefore do
 * not vectorize plain loops by default. */
#define EK_VECTOR_LOOP _Pragma("clang loop vectorize(enable)")
#define EK_OWN_MAX /* the generic form calls fmaxf for each lane */
#include "neon.h"

/* Keeps NaN. */
EK_INLINE vf vf_max(vf a, vf b) {
    return (vf)vmaxq_f32((float32x4_t)a, (float32x4_t)b);
}
EK_INLINE vf vf_min(vf a, vf b) {
    return (vf)vminq_f32((float32x4_t)a, (float32x4_t)b);
}
