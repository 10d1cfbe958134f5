// Vector, then integer instructions: a core that dispatches vector instructions no faster than it
// executes them has no backlog to overlap with dispatching the integer instructions.
#include "marks.h"

void _start(void) {
    long n = 1000;
    mark(BEGIN);
    __asm__ volatile("1: subs %0, %0, #1\n"
                     "fmla v0.4s, v16.4s, v17.4s\nfmla v1.4s, v16.4s, v17.4s\n"
                     "fmla v2.4s, v16.4s, v17.4s\nfmla v3.4s, v16.4s, v17.4s\n"
                     "fmla v4.4s, v16.4s, v17.4s\nfmla v5.4s, v16.4s, v17.4s\n"
                     "add x1, x8, x8\nadd x2, x8, x8\nadd x3, x8, x8\n"
                     "add x4, x8, x8\nadd x5, x8, x8\nadd x6, x8, x8\nb.ne 1b\n"
                     : "+r"(n)::"cc", "x1", "x2", "x3", "x4", "x5", "x6", "v0", "v1", "v2", "v3",
                       "v4", "v5");
    mark(END);
    call(94, 0);
}
