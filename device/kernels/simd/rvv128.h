/* RVV 1.0 with registers of 128 bits, used in pairs: 16 registers of 256 bits. */
#define EK_VL 8
#include "rvv.h"
