/* A core with SpacemiT's matrix unit for programs under qemu-user, which has none: executes
 * smt.vmadot on the vector registers when it is refused. After the definition of spacemit-com's
 * riscv-ime-extension-spec: vs1 holds 4 rows of 8 bytes, vs2 4 columns of 8, vd and the register
 * after it 4 x 4 sums, for 8-bit elements and vl = 32. QEMU keeps vector registers during signals.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

enum { BYTES = 32, REGISTERS = 32 };

static _Thread_local uint8_t registers[REGISTERS][BYTES];

#define GROUPS(what)                                                                               \
    ".option push\n.option arch, +v\n" what " v0, (%0)\n" what " v8, (%1)\n" what                  \
    " v16, (%2)\n" what " v24, (%3)\n.option pop"
#define ADDRESSES                                                                                  \
    "r"(registers[0]), "r"(registers[8]), "r"(registers[16]), "r"(registers[24]) : "memory"

static void fail(const char *what) {
    if (write(2, what, strlen(what)) < 0)
        abort();
    _exit(70);
}

static void execute(uint32_t instruction) {
    const int vd = instruction >> 7 & 31, vs1 = instruction >> 15 & 31,
              vs2 = instruction >> 20 & 31;
    unsigned long vl, vtype;
    __asm__ volatile("csrr %0, 0xc20\ncsrr %1, 0xc21" : "=r"(vl), "=r"(vtype));
    if (vl != BYTES || vtype & ~0xc0ul || vd % 2)
        fail("madot: expected e8, m1, vl = 32 and an even vd, found others\n");
    __asm__ volatile(GROUPS("vs8r.v")::ADDRESSES);
    int32_t sums[16];
    memcpy(sums, registers[vd], sizeof sums);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            for (int k = 0; k < 8; k++)
                sums[4 * i + j] +=
                    (int8_t)registers[vs1][8 * i + k] * (int8_t)registers[vs2][8 * j + k];
    memcpy(registers[vd], sums, sizeof sums);
    __asm__ volatile(GROUPS("vl8re8.v")::ADDRESSES);
}

static void refused(int number, siginfo_t *info, void *context) {
    ucontext_t *at = context;
    uint32_t instruction;
    (void)number, (void)info;
    memcpy(&instruction, (void *)at->uc_mcontext.__gregs[REG_PC], sizeof instruction);
    if ((instruction & 0xfe00707f) != 0xe200302b) /* custom-1, funct3 3, funct7 0x71 */
        fail("madot: an instruction that this core does not have\n");
    execute(instruction);
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
