/* ek_missing_feature: always compiled for the baseline architecture.
 *
 * Compile-time parameters: EK_FEATURES, a comma-separated list of names as printed in
 * /proc/cpuinfo; EK_VLEN_BITS, the RVV register length that the kernels require. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_setaffinity */
#endif
#include <stdint.h>
#include <string.h>
#include "../ek.h"

typedef struct {
    const char *name;
    int word, bit; /* position of the feature's bit; read_words fills the words */
} feature;

#if defined __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
/* words: cpuid 1 ecx, 7.0 ebx, 7.0 ecx, 7.0 edx, without features whose state the OS does not save
 * (xgetbv) */
static const feature known[] = {
    {"fma", 0, 12},      {"f16c", 0, 29},     {"bmi1", 1, 3},         {"avx2", 1, 5},
    {"bmi2", 1, 8},      {"avx512f", 1, 16},  {"avx512dq", 1, 17},    {"avx512cd", 1, 28},
    {"avx512bw", 1, 30}, {"avx512vl", 1, 31}, {"avx512_vnni", 2, 11}, {"amx_tile", 3, 24},
    {"amx_int8", 3, 25},
};
/* Linux saves tile registers only for processes that request it, if it supports the request. */
#define REQUEST_PERMISSION 0x1023
#define TILE_DATA 18
static int may_use_tiles(void) {
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
static void read_words(uint64_t *w) {
    unsigned a, b, c, d, low, high;
    if (__get_cpuid(1, &a, &b, &c, &d))
        w[0] = c;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        w[1] = b;
        w[2] = c;
        w[3] = d;
    }
    if (!(w[0] >> 27 & 1)) { /* no xgetbv: the OS saves no wide registers */
        w[1] = w[2] = w[3] = 0;
        w[0] &= ~(1u << 12);
        return;
    }
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 0x6) != 0x6)
        w[0] = w[1] = w[2] = w[3] = 0;
    else if ((low & 0xe6) != 0xe6) {
        w[1] &= 0xffff;
        w[2] = w[3] = 0;
    } else if ((low & 0x60000) != 0x60000 || !strstr(EK_FEATURES, "amx_tile") || !may_use_tiles())
        w[3] = 0;
}
#else
#include <sys/auxv.h>
/* words: AT_HWCAP; on ARM AT_HWCAP2, on RISC-V what `runs` finds */
static const feature known[] = {
#if defined __aarch64__
    {"asimd", 0, 1},
    {"asimdhp", 0, 10},
    {"asimddp", 0, 20},
    {"i8mm", 1, 13},
#elif defined __arm__
    {"neon", 0, 12},
    {"vfpv4", 0, 16},
#elif defined __riscv
    {"v", 0, 'v' - 'a'},
    {"zvfh", 1, 0},
    {"xsmtvdot", 1, 1},
#endif
};
#ifdef __riscv
#include <sched.h>
#include <signal.h>
#include <ucontext.h>
static volatile int refusals;
/* Skips the illegal instruction, which has four bytes. */
static void refused(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    refusals++;
    ((ucontext_t *)context)->uc_mcontext.__gregs[REG_PC] += 4;
}
/* Whether this core runs the instructions of `attempt`. */
static int runs(void (*attempt)(void)) {
    struct sigaction own = {.sa_sigaction = refused, .sa_flags = SA_SIGINFO}, before;
    refusals = 0;
    sigaction(SIGILL, &own, &before);
    attempt();
    sigaction(SIGILL, &before, NULL);
    return !refusals;
}
/* Kernels before 6.8 do not report Zvfh: a vector instruction, and a scalar one (Zfhmin), which it
 * includes. */
static void compute_half(void) {
    __asm__ volatile(".option push\n.option arch, +v, +zvfh\nvsetivli zero, 1, e16, m1, ta, ma\n"
                     "vfadd.vv v8, v8, v8\nfmv.x.h a0, fa0\n.option pop" ::
                         : "a0", "memory");
}
/* No kernel reports XSMTVDot. */
static void multiply_matrices(void) {
    __asm__ volatile(".option push\n.option arch, +v, +xsmtvdot\n"
                     "vsetvli a0, zero, e8, m1, ta, ma\nsmt.vmadot v8, v10, v11\n.option pop" ::
                         : "a0", "memory");
}
/* Keeps this thread, and those that it starts, to the cores that run `attempt`; returns whether
 * there are any. */
static int keep_to_cores(void (*attempt)(void)) {
    cpu_set_t all, found, one;
    CPU_ZERO(&found);
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return runs(attempt);
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &all))
            continue;
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        if (sched_setaffinity(0, sizeof one, &one) == 0 && runs(attempt))
            CPU_SET(core, &found);
    }
    const int any = CPU_COUNT(&found) > 0;
    sched_setaffinity(0, sizeof all, any ? &found : &all);
    return any;
}
#endif
static void read_words(uint64_t *w) {
    w[0] = getauxval(AT_HWCAP);
#ifdef __riscv
    if (!(w[0] >> ('v' - 'a') & 1))
        return;
    w[1] = strstr(EK_FEATURES, "zvfh") && runs(compute_half);
    w[1] |= strstr(EK_FEATURES, "xsmtvdot") && keep_to_cores(multiply_matrices) ? 2 : 0;
#else
    w[1] = getauxval(AT_HWCAP2);
#endif
}
#endif

#if defined __riscv && EK_VLEN_BITS
static unsigned long vlen_bits(void) {
    unsigned long bytes;
    __asm__(".option push\n.option arch, +v\ncsrr %0, vlenb\n.option pop" : "=r"(bytes));
    return bytes * 8;
}
#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)
static const char *too_short(char text[64], unsigned long found) {
    static const char wanted[] =
        "vector registers of at least " TEXT(EK_VLEN_BITS) " bits, not of ";
    memcpy(text, wanted, sizeof wanted);
    char *at = text + sizeof wanted - 1;
    unsigned long unit = 1;
    while (found / unit >= 10)
        unit *= 10;
    for (; unit; unit /= 10)
        *at++ = (char)('0' + found / unit % 10);
    *at = 0;
    return text;
}
#endif

const char *ek_missing_feature(void) {
    static char missing[64];
    uint64_t words[4] = {0};
    read_words(words);
    for (const char *at = EK_FEATURES; *at;) {
        size_t n = strcspn(at, ",");
        int has = 0;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            if (strlen(known[i].name) == n && !strncmp(known[i].name, at, n))
                has = words[known[i].word] >> known[i].bit & 1;
        if (!has) {
            n = n < sizeof missing ? n : sizeof missing - 1;
            memcpy(missing, at, n);
            missing[n] = 0;
            return missing;
        }
        at += at[n] ? n + 1 : n;
    }
#if defined __riscv && EK_VLEN_BITS
    if (vlen_bits() < EK_VLEN_BITS)
        return too_short(missing, vlen_bits());
#endif
    return NULL;
}
