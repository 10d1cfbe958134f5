/* RVV 1.0 with arithmetic in half precision (Zvfh): a vector is sixteen f16, in a register of 256
 * bits or a pair of 128. For the kernels of f16 tensors, beside those of rvv128.h and rvv256.h for
 * all else. */
#define EK_HALF 1
#define EK_VL 16
#include "rvv.h"
