// Timing marks and exit for programs without a C library.
#if defined(__aarch64__)
static inline long call(long number, long argument) {
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = argument;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8) : "memory", "cc");
    return x0;
}
#elif defined(__riscv)
static inline long call(long number, long argument) {
    register long a7 __asm__("a7") = number;
    register long a0 __asm__("a0") = argument;
    __asm__ volatile("ecall" : "+r"(a0) : "r"(a7) : "memory");
    return a0;
}
#endif
enum { BEGIN = 777001, END, LAP, WARM, WARM_END };
static inline void mark(long which) {
    call(57, which);
}
