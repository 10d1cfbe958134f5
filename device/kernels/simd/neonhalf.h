/* 64-bit ARM with half-precision arithmetic (ARMv8.2 asimdhp): a vector is eight f16. For kernels
 * of f16 tensors; all others use neondot.h. */
#define EK_HALF 1
#define EK_VL 8
#define EK_FMA 1
#define EK_LANES 1
#define EK_OPAQUE_INDEX(i) __asm__("" : "+r"(i))
#include "vector.h"
