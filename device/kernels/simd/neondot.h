/* 64-bit ARM with the 8-bit dot product (ARMv8.2 asimddp). */
#ifndef EK_I8
#define EK_I8 EK_I8_DOT4_SS
#endif
#include "neon.h"

/* a is often one group in all lanes: as the last operand it can be an indexed lane, without a
 * copy. */
EK_INLINE vi vi_dot4(vi acc, vi a, vi b) {
    return (vi)vdotq_s32((int32x4_t)acc, (int8x16_t)b, (int8x16_t)a);
}
