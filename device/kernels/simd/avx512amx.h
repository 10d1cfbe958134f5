/* avx512vnni.h plus AMX tile registers for 8-bit products (gemm/x86/i8_amx.h). */
#include "avx512vnni.h"
#define EK_AMX
