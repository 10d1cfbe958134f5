// Loops with known timing on a core: one lap each, in the order of LAPS in the test.
#include "marks.h"

static char buffer[8 << 20] __attribute__((aligned(4096)));

#define LOOP(times, body)                                                                          \
    do {                                                                                           \
        long n = (times);                                                                          \
        __asm__ volatile("1: subs %0, %0, #1\n" body "b.ne 1b\n"                                   \
                         : "+r"(n)::"memory", "cc", "x1", "x2", "x3", "x4", "v0", "v1", "v2",      \
                           "v3", "v4", "v5", "v6", "v7");                                          \
    } while (0)
#define FOUR(x) x x x x
#define FMLA(n) "fmla v" #n ".4s, v16.4s, v17.4s\n"

static void read_lines(long bytes, int times) {
    for (int i = 0; i < times; i++) {
        char *at = buffer;
        long n = bytes / 64;
        __asm__ volatile("1: ldp q0, q1, [%0], #32\nldp q2, q3, [%0], #32\n"
                         "subs %1, %1, #1\nb.ne 1b\n"
                         : "+r"(at), "+r"(n)::"memory", "cc", "v0", "v1", "v2", "v3");
    }
}

// A branch every few instructions, always in one direction or by unpredictable bits.
static void branches(long times, unsigned long state) {
    __asm__ volatile("1: eor %0, %0, %0, lsl #13\neor %0, %0, %0, lsr #7\n"
                     "eor %0, %0, %0, lsl #17\ntbz %0, #5, 2f\nnop\n2: subs %1, %1, #1\nb.ne 1b\n"
                     : "+r"(state), "+r"(times)::"cc");
}

// Pointer chasing: each load's address depends on the previous load; steps of a page and a line.
static void chase(long bytes, long times) {
    long step = 4096 + 64, places = bytes / step;
    for (long i = 0; i < places; i++)
        *(char **)(buffer + i * step) = buffer + (i + 7) % places * step;
    mark(LAP);
    char *at = buffer;
    for (long i = 0; i < times; i++)
        at = *(char *volatile *)at;
    __asm__ volatile("" ::"r"(at));
    mark(LAP);
}

void _start(void) {
    mark(WARM);
    read_lines(sizeof buffer, 1);
    read_lines(16 << 10, 1);
    mark(WARM_END);
    mark(BEGIN);
    LOOP(1000, FOUR("add x1, x1, x2\n"));
    mark(LAP);
    LOOP(1000, FOUR(FMLA(0)));
    mark(LAP);
    LOOP(500, FMLA(0) FMLA(1) FMLA(2) FMLA(3) FMLA(4) FMLA(5) FMLA(6) FMLA(7));
    mark(LAP);
    read_lines(16 << 10, 8); // line from L1
    mark(LAP);
    read_lines(192 << 10, 1);
    mark(LAP);
    read_lines(192 << 10, 1); // line from L2
    mark(LAP);
    read_lines(4 << 20, 1); // line from DRAM
    mark(LAP);
    branches(2000, 0);
    mark(LAP);
    branches(2000, 88172645463325252);
    mark(LAP);
    chase(32 << 10, 2000);
    chase(8 << 20, 2000);
    mark(END);
    call(94, 0);
}
