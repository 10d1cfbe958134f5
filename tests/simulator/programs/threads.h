// Threads and a mutex for AArch64 programs without a C library.
#include <stdatomic.h>

#include "marks.h"

enum { STACK = 16 << 10, WAIT = 128, WAKE, EVERYBODY = 1 << 30 };
enum { SHARED = 0x50f00 }; // memory, files, signals

typedef struct {
    void (*run)(long);
    long argument;
    _Atomic int ended;
    char stack[STACK] __attribute__((aligned(16)));
} thread;

// Without a timeout.
static inline void futex(_Atomic int *at, long operation, long value) {
    register long x8 __asm__("x8") = 98, x0 __asm__("x0") = (long)at, x1 __asm__("x1") = operation;
    register long x2 __asm__("x2") = value, x3 __asm__("x3") = 0;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory", "cc");
}

static inline void wait_while(_Atomic int *at, int value) {
    futex(at, WAIT, value);
}

static inline void wake(_Atomic int *at, int most) {
    futex(at, WAKE, most);
}

// Says itself that it ends: when the kernel would say so depends on the machine.
static inline void run_thread(thread *self) {
    self->run(self->argument);
    self->ended = 1;
    wake(&self->ended, 1);
    call(93, 0);
}

static inline void start_thread(thread *made, void (*run)(long), long argument) {
    made->run = run;
    made->argument = argument;
    register long x8 __asm__("x8") = 220, x0 __asm__("x0") = SHARED;
    register char *x1 __asm__("x1") = made->stack + STACK;
    __asm__ volatile("svc 0\ncbnz x0, 1f\nmov x0, %[self]\nblr %[run]\n1:\n"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), [self] "r"(made), [run] "r"(run_thread)
                     : "memory", "cc");
}

static inline void join(thread *made) {
    while (!made->ended)
        wait_while(&made->ended, 0);
}

static inline void lock(_Atomic int *mutex) {
    int free = 0;
    if (atomic_compare_exchange_strong(mutex, &free, 1))
        return;
    while (atomic_exchange(mutex, 2))
        wait_while(mutex, 2);
}

static inline void unlock(_Atomic int *mutex) {
    if (atomic_exchange(mutex, 0) == 2)
        wake(mutex, 1);
}
