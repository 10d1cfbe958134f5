/* RVV 1.0 with registers of 256 bits. */
#define EK_VL 8
#include "rvv.h"
