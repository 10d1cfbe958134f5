/* 32-bit ARM with NEON and VFPv4: 16 registers of 128 bits. */
/* Its vectors take denormals for 0, as all code here that is written with them does: compilers do
 * not make them of plain loops by themselves. */
#define EK_VECTOR_LOOP _Pragma("clang loop vectorize(enable)")
#define EK_OWN_MAX /* the generic form is a call of fmaxf for every lane */
#include "neon.h"

/* NaN stays NaN. */
EK_INLINE vf vf_max(vf a, vf b) {
    return (vf)vmaxq_f32((float32x4_t)a, (float32x4_t)b);
}
EK_INLINE vf vf_min(vf a, vf b) {
    return (vf)vminq_f32((float32x4_t)a, (float32x4_t)b);
}
