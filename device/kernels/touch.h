/* Loads that warm the cache and discard the value. */
#ifndef EK_TOUCH_H
#define EK_TOUCH_H
#include "kernel.h"

/* Loads a cache line without a destination register. A prefetch would do the same, but the board
 * simulator cannot see its address. */
EK_INLINE void ek_touch(const float *p) {
#if defined __aarch64__
    __asm__ volatile("ldr wzr, %0" ::"m"(*p));
#elif defined __riscv
    __asm__ volatile("lw zero, %0" ::"m"(*p));
#else
    __builtin_prefetch(p);
#endif
}
#endif
