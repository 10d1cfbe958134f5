// One lap for each few instructions, over and over, in the order of PAIRS in the test.
#include "marks.h"

static char buffer[4096] __attribute__((aligned(64)));

#define EIGHT(x) x x x x x x x x
#define LAP_OF(body)                                                                               \
    do {                                                                                           \
        long n = 100;                                                                              \
        __asm__ volatile("1: subs %0, %0, #1\n" EIGHT(body) EIGHT(body) EIGHT(body)                \
                             EIGHT(body) "b.ne 1b\n"                                               \
                         : "+r"(n)                                                                 \
                         : "r"(buffer)                                                             \
                         : "memory", "cc", "x2", "v0", "v1", "v2", "v3");                          \
        mark(LAP);                                                                                 \
    } while (0)
#define LOAD_D "ldr d0, [%1]\n"
#define LOAD_Q "ldr q0, [%1]\n"
#define LOAD_X "ldr x2, [%1]\n"
#define STORE_D "str d3, [%1, #64]\n"
#define STORE_Q "str q3, [%1, #64]\n"
#define INSERT(v) "ins v" #v ".d[1], x3\n"
#define WHOLE "fadd v1.4s, v4.4s, v4.4s\n"
#define HALF "fadd v1.2s, v4.2s, v4.2s\n"

void _start(void) {
    for (unsigned i = 0; i < sizeof buffer; i += 64)
        ((volatile char *)buffer)[i] = 1;
    mark(BEGIN);
    LAP_OF(LOAD_D);
    LAP_OF(LOAD_Q);
    LAP_OF(LOAD_D WHOLE);
    LAP_OF(LOAD_D HALF);
    LAP_OF(WHOLE LOAD_X);
    LAP_OF(LOAD_D INSERT(1));
    LAP_OF(LOAD_D INSERT(0));
    LAP_OF(INSERT(0) INSERT(1));
    LAP_OF(INSERT(1) STORE_Q);
    LAP_OF(WHOLE STORE_Q);
    LAP_OF(LOAD_D STORE_D);
    LAP_OF(LOAD_D "fadd v0.4s, v0.4s, v0.4s\n");
    LAP_OF(LOAD_Q "fadd v0.4s, v0.4s, v0.4s\n");
    mark(END);
    call(94, 0);
}
