/* avx512vnni.h, and the tile registers of AMX for products of bytes (gemm/x86/i8_amx.h). */
#include "avx512vnni.h"
#define EK_AMX
