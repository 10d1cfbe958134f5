/* RVV 1.0 with arithmetic in half precision (Zvfh) and registers of 512 bits: a vector is 32 f16.
 * For the kernels of f16 tensors, beside those of rvv512.h for all else. */
#define EK_HALF 1
#define EK_VL 32
#include "rvv.h"
