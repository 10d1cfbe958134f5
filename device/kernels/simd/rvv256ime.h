/* RVV 1.0 with registers of 256 bits and SpacemiT's matrix unit (IME, XSMTVDot). */
#define EK_VL 8
#define EK_I8 EK_I8_MADOT
#include "rvv.h"

/* No instruction: only corrections and single columns need it. */
EK_INLINE vi vi_dot4(vi acc, vi a, vi b) {
    EK_UNROLL
    for (int left = 24; left >= 0; left -= 8)
        acc += ((vi)((vu)a << left) >> 24) * ((vi)((vu)b << left) >> 24);
    return acc;
}
