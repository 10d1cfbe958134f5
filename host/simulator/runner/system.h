/* System calls: the runner links to no C library, because building one would take the compiler far
 * longer than the runner. Its other C files define the functions that are needed. */
#ifndef EK_SYSTEM_H
#define EK_SYSTEM_H
#include <sys/syscall.h>

/* The result of a system call; -errno if it failed. */
#define CALL(number, ...) system_call(number, (const long[6]){__VA_ARGS__})

static inline long system_call(long number, const long argument[6]) {
#if defined __aarch64__
    register long n __asm__("x8") = number, a __asm__("x0") = argument[0];
    register long b __asm__("x1") = argument[1], c __asm__("x2") = argument[2];
    register long d __asm__("x3") = argument[3], e __asm__("x4") = argument[4];
    register long f __asm__("x5") = argument[5];
#define TRAP "svc 0"
#elif defined __arm__
    register long n __asm__("r7") = number, a __asm__("r0") = argument[0];
    register long b __asm__("r1") = argument[1], c __asm__("r2") = argument[2];
    register long d __asm__("r3") = argument[3], e __asm__("r4") = argument[4];
    register long f __asm__("r5") = argument[5];
#define TRAP "svc 0"
#elif defined __riscv
    register long n __asm__("a7") = number, a __asm__("a0") = argument[0];
    register long b __asm__("a1") = argument[1], c __asm__("a2") = argument[2];
    register long d __asm__("a3") = argument[3], e __asm__("a4") = argument[4];
    register long f __asm__("a5") = argument[5];
#define TRAP "ecall"
#endif
    __asm__ volatile(TRAP : "+r"(a) : "r"(n), "r"(b), "r"(c), "r"(d), "r"(e), "r"(f) : "memory");
    return a;
}

/* Memory that is zero; NULL if there is none. Returned by unmap_memory. */
void *map_memory(size_t bytes);
void unmap_memory(void *memory, size_t bytes);

#endif
