/* Pause between two polls in a spin loop. */
#ifndef EK_RELAX_H
#define EK_RELAX_H

static inline void ek_relax(void) {
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__ || defined __arm__
    __asm__ volatile("yield");
#endif
}
#endif
