/* Signals of programs for RISC-V: libraries try instructions, and qemu-user lacks some. */
#ifdef __riscv
#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include <ucontext.h>

#include "madot.h"
#include "runner.h"
#include "system.h"

/* The kernel's structure has other members than the C library's. */
typedef struct {
    void *handler;
    unsigned long flags, mask;
} kernel_action;

typedef void refusal(int, siginfo_t *, void *);

static refusal *asked; /* the library's handler of SIGILL */

/* An instruction that nobody executes ends the program, at its own address. */
static void refused(int number, siginfo_t *info, void *context) {
    ucontext_t *at = context;
    uint32_t instruction;
    memcpy(&instruction, (void *)at->uc_mcontext.__gregs[REG_PC], sizeof instruction);
    if (madot_execute(instruction)) {
        at->uc_mcontext.__gregs[REG_PC] += sizeof instruction;
    } else if (asked) {
        asked(number, info, context);
    } else {
        const kernel_action usual = {0};
        CALL(SYS_rt_sigaction, number, (long)&usual, 0, sizeof usual.mask);
    }
}

void handle_refusals(void) {
    const kernel_action own = {(void *)refused, SA_SIGINFO, 0};
    CALL(SYS_rt_sigaction, SIGILL, (long)&own, 0, sizeof own.mask);
}

/* Libraries handle only SIGILL. */
int sigaction(int number, const struct sigaction *new, struct sigaction *old) {
    if (number != SIGILL)
        return -1;
    if (old)
        *old = (struct sigaction){.sa_sigaction = asked, .sa_flags = SA_SIGINFO};
    asked = new->sa_sigaction;
    return 0;
}
#endif
