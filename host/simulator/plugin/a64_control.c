// A64: branches, hints, barriers, system registers.
#include "a64.h"

static void direct(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    insn->branch = EK_JUMP;
    if (insn->class == EK_CLASS_call)
        insn->branch |= EK_CALL;
    if (insn->class == EK_CLASS_branch_cond)
        insn->branch |= EK_CONDITIONAL;
    insn->target += (uint64_t)(ek_signed_field(pattern, word, 'i') * 4);
    if (insn->class == EK_CLASS_call)
        ek_write(insn, EK_REG_INT + 30);
}

// Testing a bit above bit 31 needs the 64-bit register.
static void tested_bit(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    direct(pattern, word, insn);
    insn->width = insn->element = ek_field(pattern, word, 'z') ? 64 : 32;
}

static void indirect(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    (void)pattern, (void)word;
    insn->branch = EK_JUMP | EK_INDIRECT;
    if (insn->class == EK_CLASS_ret)
        insn->branch |= EK_RETURN;
    if (insn->class == EK_CLASS_call) {
        insn->branch |= EK_CALL;
        ek_write(insn, EK_REG_INT + 30);
    }
}

static void returns(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    ek_read(insn, EK_REG_INT + 30);
    indirect(pattern, word, insn);
}

static void counter(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    (void)pattern, (void)word;
    insn->reads_counter = true;
}

// The block zeroed by dc zva: 64 bytes on all cores with a description.
static void zeroed(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    insn->memory = EK_STORE;
    insn->bytes = 64;
    insn->base = (uint8_t)(EK_REG_INT + ek_field(pattern, word, 't'));
}

static struct ek_pattern patterns[] = {
    EK_H("000101ii iiiiiiiiiiiiiiiiiiiiiiii", branch, base, "", direct),
    EK_H("100101ii iiiiiiiiiiiiiiiiiiiiiiii", call, base, "", direct),
    EK_H("01010100 iiiiiiiiiiiiiiiiiii0....", branch_cond, base, "f", direct),
    EK_H("z011010. iiiiiiiiiiiiiiiiiiittttt", branch_cond, base, "xt", direct),
    EK_H("z011011. .....iiiiiiiiiiiiiittttt", branch_cond, base, "xt", tested_bit),
    EK_H("11010110 00011111000000nnnnn00000", branch_indirect, base, "xn", indirect),
    EK_H("11010110 00111111000000nnnnn00000", call, base, "xn", indirect),
    EK_H("11010110 01011111000000nnnnn00000", ret, base, "xn", indirect),
    EK_H("11010110 0001111100001.nnnnn11111", branch_indirect, paca, "xn", indirect),
    EK_H("11010111 0001111100001.nnnnnmmmmm", branch_indirect, paca, "xn sm", indirect),
    EK_H("11010110 0011111100001.nnnnn11111", call, paca, "xn", indirect),
    EK_H("11010111 0011111100001.nnnnnmmmmm", call, paca, "xn sm", indirect),
    EK_H("11010110 0101111100001.1111111111", ret, paca, "", returns),

    EK_P("11010100 000iiiiiiiiiiiiiiii00001", system, base, ""), // svc
    EK_P("11010100 000iiiiiiiiiiiiiiii0001.", system, base, ""), // hvc, smc
    EK_P("11010100 001iiiiiiiiiiiiiiii00000", system, base, ""), // brk
    EK_P("11010100 010iiiiiiiiiiiiiiii00000", system, base, ""), // hlt
    EK_P("11010101 000000110010.......11111", hint, base, ""),
    EK_P("11010101 000000110011....01011111", barrier, base, ""), // clrex
    EK_P("11010101 000000110011....1.011111", barrier, base, ""), // dsb, isb
    EK_P("11010101 000000110011....10111111", barrier, base, ""), // dmb
    EK_P("11010101 00000011001100001111 1111", barrier, sb, ""),
    EK_P("11010101 00000000010000000001 1111", alu, flagm, "f F"),
    EK_P("11010101 0000000001000000001. 1111", alu, flagm2, "f F"),
    EK_P("11010101 00000...0100.......11111", system, base, ""),
    EK_H("11010101 0000101101110100001ttttt", store_zero, base, "xt", zeroed),
    EK_P("11010101 00001..............ttttt", system, base, "xt"),    // sys
    EK_P("11010101 00101..............ttttt", system, base, "Xt"),    // sysl
    EK_P("11010101 000110110100001000 0ttttt", system, base, "xt F"), // nzcv
    EK_P("11010101 001110110100001000 0ttttt", system, base, "Xt f"),
    EK_H("11010101 001110111110000000 1ttttt", system, base, "Xt", counter), // cntpct
    EK_H("11010101 001110111110000001 0ttttt", system, base, "Xt", counter), // cntvct
    EK_H("11010101 001110111110000011 0ttttt", system, base, "Xt", counter), // cntvctss
    EK_H("11010101 001110111001110100 0ttttt", system, base, "Xt", counter), // pmccntr
    EK_P("11010101 0001...............ttttt", system, base, "xt"),           // msr
    EK_P("11010101 0011...............ttttt", system, base, "Xt"),           // mrs

    // SVE: no core with a description has it.
    EK_P("...0010. ........................", unknown, sve, ""),
    EK_P("1..0000. ........................", unknown, sve, ""),
};

const struct ek_table ek_a64_control = EK_TABLE(patterns);
