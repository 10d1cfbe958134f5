/* 32-bit ARM with NEON and VFPv4: 16 registers of 128 bits. */
#include "neon.h"
