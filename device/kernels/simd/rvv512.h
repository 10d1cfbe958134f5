/* RVV 1.0 with registers of 512 bits. */
#define EK_VL 16
#include "rvv.h"
