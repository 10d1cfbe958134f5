/* 64-bit ARM with arithmetic in half precision (ARMv8.2 asimdhp): a vector is eight f16. For the
 * kernels of f16 tensors, beside those of neondot.h for all else. */
#define EK_HALF 1
#define EK_VL 8
#define EK_FMA 1
#define EK_LANES 1
#define EK_OPAQUE_INDEX(i) __asm__("" : "+r"(i))
#include "vector.h"
