// Reading uncached memory by one thread, then by two in parallel, each from its own buffer.
#include "threads.h"

enum { BYTES = 2 << 20 };
static _Atomic int started, done;
static thread other;
static volatile char memory[3][BYTES];

static void read_all(int which) {
    for (int i = 0; i < BYTES; i += 64)
        (void)memory[which][i];
}

static void helper(long nothing) {
    (void)nothing;
    while (!atomic_load(&started))
        __asm__ volatile("yield");
    read_all(1);
    atomic_store(&done, 1);
}

void _start(void) {
    start_thread(&other, helper, 0);
    mark(BEGIN);
    read_all(0);
    mark(LAP);
    atomic_store(&started, 1);
    read_all(2);
    while (!atomic_load(&done))
        __asm__ volatile("yield");
    mark(LAP);
    mark(END);
    join(&other);
    call(94, 0);
}
