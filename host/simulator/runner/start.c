/* The program's entry point, and what it asks of the kernel. */
#define _GNU_SOURCE
#include <elf.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "runner.h"
#include "system.h"

int main(int argc, char **argv);

static const unsigned long *auxiliary; /* pairs of type and value, up to AT_NULL */

/* The kernel passes everything on the stack. */
__attribute__((naked, noreturn)) void _start(void) {
#if defined __aarch64__
    __asm__("mov x0, sp\n\tb runner_start");
#elif defined __arm__
    __asm__("mov r0, sp\n\tb runner_start");
#elif defined __riscv
    __asm__(".option push\n\t.option norelax\n\tlla gp, __global_pointer$\n\t.option pop\n\t"
            "mv a0, sp\n\ttail runner_start");
#endif
}

/* stack: argc, argv, NULL, environment, NULL, auxiliary vector */
_Noreturn void runner_start(long *stack) {
    char **argv = (char **)(stack + 1), **end = argv + stack[0] + 1;
    while (*end++)
        ;
    auxiliary = (const unsigned long *)end;
#ifdef __riscv
    handle_refusals();
#endif
    exit(main((int)stack[0], argv));
}

unsigned long getauxval(unsigned long type) {
    const unsigned long *at = auxiliary;
    while (at[0] != AT_NULL && at[0] != type)
        at += 2;
    return at[0] == type ? at[1] : 0;
}

_Noreturn void exit(int code) {
    CALL(SYS_exit_group, code);
    __builtin_trap();
}

_Noreturn void abort(void) {
    fail("the library", "gave up");
}

void *map_memory(size_t bytes) {
#ifdef SYS_mmap2
    const long number = SYS_mmap2; /* of 32-bit ARM */
#else
    const long number = SYS_mmap;
#endif
    const unsigned long made = (unsigned long)CALL(number, 0, (long)bytes, PROT_READ | PROT_WRITE,
                                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return made > -4096ul ? NULL : (void *)made;
}

void unmap_memory(void *memory, size_t bytes) {
    CALL(SYS_munmap, (long)memory, (long)bytes);
}

int madvise(void *memory, size_t bytes, int advice) {
    return (int)CALL(SYS_madvise, (long)memory, (long)bytes, advice);
}
