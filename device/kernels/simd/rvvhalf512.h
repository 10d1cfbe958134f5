/* RVV 1.0 with half-precision arithmetic (Zvfh) and registers of 512 bits: a vector is 32 f16. For
 * kernels of f16 tensors; all others use rvv512.h. */
#define EK_HALF 1
#define EK_VL 32
#include "rvv.h"
