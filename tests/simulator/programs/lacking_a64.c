// An 8-bit dot-product instruction, which some cores lack.
#include "marks.h"

void _start(void) {
    mark(BEGIN);
    __asm__ volatile(".arch armv8.2-a+dotprod\nsdot v0.4s, v1.16b, v2.16b\n" ::: "v0");
    mark(END);
    call(94, 0);
}
