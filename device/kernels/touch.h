/* Loads whose value nobody reads. */
#ifndef EK_TOUCH_H
#define EK_TOUCH_H
#include "kernel.h"

/* Loads a line into no register. A prefetch would do, but board time does not see where it goes. */
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
