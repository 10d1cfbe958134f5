/* 32-bit ARM with NEON and VFPv4: 16 registers of 128 bits. */
/* Its vectors take denormals for 0, as all code here that is written with them does: compilers do
 * not make them of plain loops by themselves. */
#define EK_VECTOR_LOOP _Pragma("clang loop vectorize(enable)")
#include "neon.h"
