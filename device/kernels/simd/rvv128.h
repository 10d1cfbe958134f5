/* RVV 1.0 with registers of at least 128 bits, used in pairs: 16 registers of 256 bits. */
#define EK_VL 8
#define EK_FMA 1
#define EK_LANES 0
#define EK_I8 EK_I8_WIDE16
#include "vector.h"
