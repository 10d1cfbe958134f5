/* SpacemiT's matrix unit for programs under qemu-user, which has none: a handler of SIGILL executes
 * smt.vmadot on the vector registers, which QEMU keeps during signals. After the definition of
 * spacemit-com's riscv-ime-extension-spec: vs1 holds 4 rows of 8 bytes, vs2 4 columns of 8, vd and
 * the register after it 4 x 4 sums, for 8-bit elements and vl = 32. */
#ifndef EK_MADOT_H
#define EK_MADOT_H
#include <stdint.h>
#include <string.h>

#define EK_GROUPS(what)                                                                            \
    ".option push\n.option arch, +v\n" what " v0, (%0)\n" what " v8, (%1)\n" what                  \
    " v16, (%2)\n" what " v24, (%3)\n.option pop"
#define EK_ADDRESSES(of) "r"((of)[0]), "r"((of)[8]), "r"((of)[16]), "r"((of)[24]) : "memory"

/* Executes an instruction; returns whether it is one of the unit, and in a form defined above. */
static int madot_execute(uint32_t instruction) {
    enum { BYTES = 32, REGISTERS = 32 };
    uint8_t registers[REGISTERS][BYTES];
    const uint32_t vd = instruction >> 7 & 31, vs1 = instruction >> 15 & 31,
                   vs2 = instruction >> 20 & 31;
    unsigned long vl, vtype;
    int32_t sums[16];
    if ((instruction & 0xfe00707f) != 0xe200302b) /* custom-1, funct3 3, funct7 0x71 */
        return 0;
    __asm__ volatile("csrr %0, 0xc20\ncsrr %1, 0xc21" : "=r"(vl), "=r"(vtype));
    if (vl != BYTES || vtype & ~0xc0ul || vd % 2)
        return 0;
    __asm__ volatile(EK_GROUPS("vs8r.v")::EK_ADDRESSES(registers));
    memcpy(sums, registers[vd], sizeof sums);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            for (int k = 0; k < 8; k++)
                sums[4 * i + j] +=
                    (int8_t)registers[vs1][8 * i + k] * (int8_t)registers[vs2][8 * j + k];
    memcpy(registers[vd], sums, sizeof sums);
    __asm__ volatile(EK_GROUPS("vl8re8.v")::EK_ADDRESSES(registers));
    return 1;
}

#endif
