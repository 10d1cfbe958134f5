/* A core with SpacemiT's matrix unit for programs under qemu-user. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <ucontext.h>
#include <unistd.h>

#include "../../host/simulator/runner/madot.h"

static void fail(const char *what) {
    if (write(2, what, strlen(what)) < 0)
        abort();
    _exit(70);
}

static void refused(int number, siginfo_t *info, void *context) {
    ucontext_t *at = context;
    uint32_t instruction;
    (void)number, (void)info;
    memcpy(&instruction, (void *)at->uc_mcontext.__gregs[REG_PC], sizeof instruction);
    if (!madot_execute(instruction))
        fail("madot: expected vmadot by e8, m1, vl = 32 and an even vd, found another "
             "instruction\n");
    at->uc_mcontext.__gregs[REG_PC] += 4;
}

typedef int set_action(int, const struct sigaction *, struct sigaction *);

/* This core refuses nothing that the handler above executes. */
int sigaction(int number, const struct sigaction *own, struct sigaction *before) {
    set_action *set = (set_action *)dlsym(RTLD_NEXT, "sigaction");
    return number == SIGILL ? 0 : set(number, own, before);
}

__attribute__((constructor)) static void install(void) {
    struct sigaction own = {.sa_sigaction = refused, .sa_flags = SA_SIGINFO};
    set_action *set = (set_action *)dlsym(RTLD_NEXT, "sigaction");
    set(SIGILL, &own, NULL);
}
