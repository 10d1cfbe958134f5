/* RVV 1.0 with half-precision arithmetic (Zvfh): a vector is sixteen f16, in a 256-bit register or
 * two 128-bit ones. For kernels of f16 tensors; all others use rvv128.h or rvv256.h. */
#define EK_HALF 1
#define EK_VL 16
#include "rvv.h"
