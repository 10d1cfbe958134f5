// RV64: integers, control flow, memory, atomics; M, A, Zba, Zbb, Zbs, Zicond, cache hints.
#include "rv64.h"

static bool is_link(uint32_t reg) {
    return reg == 1 || reg == 5;
}

// A scrambled constant; `places` has the position of each bit of the field, highest bit first.
static int64_t unscrambled(uint32_t field, int bits, const uint8_t *places, int signed_bits) {
    uint64_t value = 0;
    for (int i = 0; i < bits; i++)
        value |= (uint64_t)(field >> (bits - 1 - i) & 1) << places[i];
    return ek_sign_extend(value, signed_bits);
}

static void jump(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    static const uint8_t places[] = {20, 10, 9,  8,  7,  6,  5,  4,  3,  2,
                                     1,  11, 19, 18, 17, 16, 15, 14, 13, 12};
    insn->branch = EK_JUMP;
    if (is_link(ek_field(pattern, word, 'd'))) {
        insn->branch |= EK_CALL;
        insn->class = EK_CLASS_call;
    }
    insn->target += (uint64_t)unscrambled(ek_field(pattern, word, 'i'), 20, places, 21);
}

static void jump_to_register(const struct ek_pattern *pattern, uint32_t word,
                             struct ek_insn *insn) {
    uint32_t link = ek_field(pattern, word, 'd'), to = ek_field(pattern, word, 's');
    insn->branch = EK_JUMP | EK_INDIRECT;
    if (is_link(link)) {
        insn->branch |= EK_CALL;
        insn->class = EK_CLASS_call;
    } else if (is_link(to)) {
        insn->branch |= EK_RETURN;
        insn->class = EK_CLASS_ret;
    }
}

static void branch(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    static const uint8_t places[] = {12, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 11};
    insn->branch = EK_JUMP | EK_CONDITIONAL;
    insn->target += (uint64_t)unscrambled(ek_field(pattern, word, 'i'), 12, places, 13);
}

static void load(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    ek_rv64_access(insn, EK_LOAD, 1u << ek_field(pattern, word, 'w'), ek_field(pattern, word, 's'),
                   (int)ek_signed_field(pattern, word, 'i'));
}

static void store(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    load(pattern, word, insn);
    insn->memory = EK_STORE;
}

static void atomic(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    int memory = insn->class == EK_CLASS_atomic ? EK_LOAD | EK_STORE
                 : ek_has_field(pattern, 't')   ? EK_STORE
                                                : EK_LOAD;
    unsigned bytes = ek_field(pattern, word, 'w') ? 8 : 4;
    ek_rv64_access(insn, memory, bytes, ek_field(pattern, word, 's'), 0);
}

static void prefetched(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    ek_rv64_access(insn, EK_PREFETCH, 0, ek_field(pattern, word, 's'),
                   (int)ek_signed_field(pattern, word, 'i') * 32);
}

static void zeroed(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    ek_rv64_access(insn, EK_STORE, 64, ek_field(pattern, word, 's'), 0);
    insn->width = insn->element = 64;
}

static void added(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t from = ek_field(pattern, word, 's');
    int32_t value = (int32_t)ek_signed_field(pattern, word, 'i');
    if (ek_field(pattern, word, 'd') == 0) {
        insn->class = EK_CLASS_hint;
    } else if (from == 0) {
        insn->class = EK_CLASS_move_imm;
    } else if (value == 0) {
        insn->class = EK_CLASS_move;
    } else {
        insn->base = (uint8_t)ek_rv64_x(from);
        insn->step = value;
    }
}

static void control_register(const struct ek_pattern *pattern, uint32_t word,
                             struct ek_insn *insn) {
    uint32_t number = ek_field(pattern, word, 'c');
    insn->reads_counter = number == 0xc00 || number == 0xc01;
    if (number == 0xc20 || number == 0xc21)
        ek_read(insn, EK_REG_VL);
}

static struct ek_pattern patterns[] = {
    EK_P("iiiiiiiiiiiiiiiiiiiiddddd 0110111", move_imm, base, "Xd"),
    EK_P("iiiiiiiiiiiiiiiiiiiiddddd 0010111", move_imm, base, "Xd"),
    EK_H("iiiiiiiiiiiiiiiiiiiiddddd 1101111", branch, base, "Xd", jump),
    EK_H("iiiiiiiiiiiisssss000ddddd 1100111", branch_indirect, base, "Xd xs", jump_to_register),
    EK_H("iiiiiiitttttsssss00.iiiii 1100011", branch_cond, base, "xs xt", branch),
    EK_H("iiiiiiitttttsssss1..iiiii 1100011", branch_cond, base, "xs xt", branch),
    EK_P("............sssss111ddddd 0000011", unknown, base, ""),
    EK_H("iiiiiiiiiiiisssss.wwddddd 0000011", load, base, "Xd", load),
    EK_H("iiiiiiitttttsssss0wwiiiii 0100011", store, base, "xt", store),

    EK_H("iiiiiii00000sssss11000000 0010011", prefetch, zicbop, "", prefetched),
    EK_H("iiiiiii00001sssss11000000 0010011", prefetch, zicbop, "", prefetched),
    EK_H("iiiiiii00011sssss11000000 0010011", prefetch, zicbop, "", prefetched),
    EK_H("iiiiiiiiiiiisssss000ddddd 0010011", alu, base, "Xd xs", added),
    EK_P("iiiiiiiiiiiisssss01.ddddd 0010011", alu, base, "Xd xs"),
    EK_P("iiiiiiiiiiiisssss1.0ddddd 0010011", alu, base, "Xd xs"),
    EK_P("iiiiiiiiiiiisssss111ddddd 0010011", alu, base, "Xd xs"),
    EK_P("000000iiiiiisssss001ddddd 0010011", shift, base, "Xd xs"),
    EK_P("0.0000iiiiiisssss101ddddd 0010011", shift, base, "Xd xs"),
    EK_P("01100000000.sssss001ddddd 0010011", count, zbb, "Xd xs"), // clz, ctz
    EK_P("011000000010sssss001ddddd 0010011", count, zbb, "Xd xs"),
    EK_P("01100000010.sssss001ddddd 0010011", bits, zbb, "Xd xs"),
    EK_P("011000iiiiiisssss101ddddd 0010011", shift, zbb, "Xd xs"),
    EK_P("001010000111sssss101ddddd 0010011", bits, zbb, "Xd xs"),
    EK_P("011010111000sssss101ddddd 0010011", bits, zbb, "Xd xs"),
    EK_P("0.1010iiiiiisssss001ddddd 0010011", bits, zbs, "Xd xs"),
    EK_P("010010iiiiiisssss.01ddddd 0010011", bits, zbs, "Xd xs"),

    EK_P("iiiiiiiiiiiisssss000ddddd 0011011", alu, base, "32 Xd xs"),
    EK_P("0000000iiiiisssss001ddddd 0011011", shift, base, "32 Xd xs"),
    EK_P("0.00000iiiiisssss101ddddd 0011011", shift, base, "32 Xd xs"),
    EK_P("000010iiiiiisssss001ddddd 0011011", shift, zba, "Xd xs"),
    EK_P("01100000000.sssss001ddddd 0011011", count, zbb, "32 Xd xs"),
    EK_P("011000000010sssss001ddddd 0011011", count, zbb, "32 Xd xs"),
    EK_P("0110000iiiiisssss101ddddd 0011011", shift, zbb, "32 Xd xs"),

    EK_P("0000000tttttsssss.01ddddd 0110011", shift, base, "Xd xs xt"),
    EK_P("0000000tttttsssss...ddddd 0110011", alu, base, "Xd xs xt"),
    EK_P("0100000tttttsssss000ddddd 0110011", alu, base, "Xd xs xt"),
    EK_P("0100000tttttsssss101ddddd 0110011", shift, base, "Xd xs xt"),
    EK_P("0100000tttttsssss100ddddd 0110011", alu, zbb, "Xd xs xt"),
    EK_P("0100000tttttsssss11.ddddd 0110011", alu, zbb, "Xd xs xt"),
    EK_P("0000001tttttsssss000ddddd 0110011", mul, m, "Xd xs xt"),
    EK_P("0000001tttttsssss0..ddddd 0110011", mul_high, m, "Xd xs xt"),
    EK_P("0000001tttttsssss1..ddddd 0110011", div, m, "Xd xs xt"),
    EK_P("0010000tttttsssss010ddddd 0110011", alu_shift_small, zba, "Xd xs xt"),
    EK_P("0010000tttttsssss1.0ddddd 0110011", alu_shift_small, zba, "Xd xs xt"),
    EK_P("0000101tttttsssss1..ddddd 0110011", minmax, zbb, "Xd xs xt"),
    EK_P("0000101tttttsssss001ddddd 0110011", mul, zbc, "Xd xs xt"),
    EK_P("0000101tttttsssss01.ddddd 0110011", mul, zbc, "Xd xs xt"),
    EK_P("0110000tttttsssss.01ddddd 0110011", shift, zbb, "Xd xs xt"),
    EK_P("0100100tttttsssss.01ddddd 0110011", bits, zbs, "Xd xs xt"),
    EK_P("0.10100tttttsssss001ddddd 0110011", bits, zbs, "Xd xs xt"),
    EK_P("0000111tttttsssss1.1ddddd 0110011", select, zicond, "Xd xs xt"),

    EK_P("0.00000tttttsssss000ddddd 0111011", alu, base, "32 Xd xs xt"),
    EK_P("0000000tttttsssss001ddddd 0111011", shift, base, "32 Xd xs xt"),
    EK_P("0.00000tttttsssss101ddddd 0111011", shift, base, "32 Xd xs xt"),
    EK_P("0000001tttttsssss000ddddd 0111011", mul, m, "32 Xd xs xt"),
    EK_P("0000001tttttsssss1..ddddd 0111011", div, m, "32 Xd xs xt"),
    EK_P("0000100tttttsssss000ddddd 0111011", alu, zba, "Xd xs xt"),
    EK_P("000010000000sssss100ddddd 0111011", bits, zbb, "Xd xs"),
    EK_P("0010000tttttsssss010ddddd 0111011", alu_shift_small, zba, "Xd xs xt"),
    EK_P("0010000tttttsssss1.0ddddd 0111011", alu_shift_small, zba, "Xd xs xt"),
    EK_P("0110000tttttsssss.01ddddd 0111011", shift, zbb, "32 Xd xs xt"),

    EK_P("00000001000000000000 00000 0001111", hint, base, ""), // pause
    EK_P(".................000..... 0001111", barrier, base, ""),
    EK_P(".................001..... 0001111", barrier, base, ""),
    EK_P("00000000000.sssss01000000 0001111", system, zicbom, "xs"),
    EK_P("000000000010sssss01000000 0001111", system, zicbom, "xs"),
    EK_H("000000000100sssss01000000 0001111", store_zero, zicboz, "", zeroed),
    EK_P("00000000000.00000000 00000 1110011", system, base, ""), // ecall, ebreak
    EK_H("ccccccccccccsssss0..ddddd 1110011", system, base, "Xd xs", control_register),
    EK_H("ccccccccccccsssss1..ddddd 1110011", system, base, "Xd", control_register),

    EK_H("00010..00000sssss01wddddd 0101111", exclusive, a, "Xd", atomic),
    EK_H("00011..tttttsssss01wddddd 0101111", exclusive, a, "Xd xt", atomic),
    EK_H("00001..tttttsssss01wddddd 0101111", atomic, a, "Xd xt", atomic),
    EK_H("...00..tttttsssss01wddddd 0101111", atomic, a, "Xd xt", atomic),
};

const struct ek_table ek_rv64_integer = EK_TABLE(patterns);
