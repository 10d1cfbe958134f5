/* Clock for operator stamps: the core's counter where user code may read it, because a clock system
 * call can cost more than a small operator. */
#ifndef EK_CLOCK_H
#define EK_CLOCK_H
#include <stdint.h>
#include <time.h>

static inline uint64_t ek_nanoseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t ek_ticks(void) {
#if defined __x86_64__
    return __builtin_ia32_rdtsc();
#elif defined __aarch64__
    uint64_t t;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
    return t;
#elif defined __riscv
    uint64_t t;
    __asm__ volatile("rdtime %0" : "=r"(t));
    return t;
#else
    return ek_nanoseconds();
#endif
}
#endif
