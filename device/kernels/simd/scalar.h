/* Cores without vectors: plain C, which the compiler schedules best. */
#define EK_VL 1
#define EK_FMA 1
#define EK_LANES 0
#define EK_I8 EK_I8_WIDE16
#include "vector.h"
