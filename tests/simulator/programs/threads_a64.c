// The same work by one thread, then split between two that synchronize by flags and a futex.
#include "threads.h"

static _Atomic int started, done;
static thread other;
static volatile long kept[2];

static void work(long times, int who) {
    long x = who + 1;
    for (long i = 0; i < times; i++)
        __asm__ volatile("mul %0, %0, %0" : "+r"(x));
    kept[who] = x;
}

static void helper(long times) {
    while (!atomic_load(&started))
        __asm__ volatile("yield");
    work(times, 1);
    atomic_store(&done, 1);
}

void _start(void) {
    enum { TIMES = 200000 };
    start_thread(&other, helper, TIMES / 2);
    mark(BEGIN);
    work(TIMES, 0);
    mark(LAP);
    atomic_store(&started, 1);
    work(TIMES / 2, 0);
    while (!atomic_load(&done))
        __asm__ volatile("yield");
    mark(LAP);
    mark(END);
    join(&other);
    call(94, 0);
}
