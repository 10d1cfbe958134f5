/* 64-bit ARM with the 8-bit matrix product (i8mm, part of ARMv8.6) and the dot product. */
#define EK_I8 EK_I8_MMLA
#include "neondot.h"

/* acc + a . b: a has two rows of eight bytes, b two columns stored consecutively; acc is row 0 by
 * both columns, then row 1. */
EK_INLINE vi vi_mmla(vi acc, vi a, vi b) {
    return (vi)vmmlaq_s32((int32x4_t)acc, (int8x16_t)a, (int8x16_t)b);
}
