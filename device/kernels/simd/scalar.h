/* Cores without vectors: plain C, which the compiler schedules best. */
/* One element alone would wait for each of its results. */
#define EK_VECTOR_LOOP _Pragma("clang loop unroll_count(4)")
#define EK_VL 1
#define EK_FMA 1
#define EK_LANES 0
#define EK_I8 EK_I8_WIDE16
#include "vector.h"
