// Stores of full lines, of one word per line, and of lines in three streams; one lap each.
#include "marks.h"

enum { BYTES = 3 << 20, PLACES = 3 };
static char buffer[PLACES * BYTES] __attribute__((aligned(4096)));

static void write_full_lines(char *at, long bytes) {
    __asm__ volatile("1: stp q0, q0, [%0], #32\nstp q0, q0, [%0], #32\n"
                     "subs %1, %1, #64\nb.gt 1b\n"
                     : "+r"(at), "+r"(bytes)::"memory", "cc");
}

static void words(char *at, long bytes) {
    __asm__ volatile("1: str x2, [%0], #64\nsubs %1, %1, #64\nb.gt 1b\n"
                     : "+r"(at), "+r"(bytes)::"memory", "cc");
}

static void three(char *at, long bytes) {
    char *second = at + BYTES, *third = second + BYTES;
    __asm__ volatile("1: str q0, [%0], #16\nstr q0, [%1], #16\nstr q0, [%2], #16\n"
                     "subs %3, %3, #16\nb.gt 1b\n"
                     : "+r"(at), "+r"(second), "+r"(third), "+r"(bytes)::"memory", "cc");
}

void _start(void) {
    mark(WARM);
    words(buffer, sizeof buffer);
    mark(WARM_END);
    mark(BEGIN);
    write_full_lines(buffer, BYTES);
    mark(LAP);
    words(buffer, BYTES);
    mark(LAP);
    three(buffer, BYTES / PLACES);
    mark(END);
    call(94, 0);
}
