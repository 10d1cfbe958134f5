// Vector loops with LMUL 1 and LMUL 4.
#include "marks.h"

static char buffer[4096] __attribute__((aligned(4096)));

#define LOOP(kind, body)                                                                           \
    do {                                                                                           \
        long n = 1000;                                                                             \
        __asm__ volatile("vsetvli t0, zero, e32, " kind ", ta, ma\n1:\n" body                      \
                         "addi %0, %0, -1\nbnez %0, 1b\n"                                          \
                         : "+r"(n)                                                                 \
                         : "r"(buffer)                                                             \
                         : "memory", "t0");                                                        \
        mark(LAP);                                                                                 \
    } while (0)

void _start(void) {
    mark(BEGIN);
    LOOP("m1", "vfmacc.vv v0, v8, v16\n");
    LOOP("m1", "vfmacc.vv v0, v8, v16\nvfmacc.vv v1, v8, v16\n"
               "vfmacc.vv v2, v8, v16\nvfmacc.vv v3, v8, v16\n");
    LOOP("m4", "vfmacc.vv v0, v8, v16\nvfmacc.vv v4, v8, v16\n"
               "vfmacc.vv v20, v8, v16\nvfmacc.vv v24, v8, v16\n");
    LOOP("m1", "vle32.v v0, (%1)\n");
    LOOP("m4", "vle32.v v0, (%1)\n");
    mark(END);
    call(94, 0);
}
