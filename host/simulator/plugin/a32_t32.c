// T32: 32-bit instructions, except vectors and VFP, which are shared with A32.
#include "a32.h"

// A plain 12-bit constant, or the simple form of an expanded one.
static void constant(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t value = ek_field(pattern, word, 'i'), from = ek_field(pattern, word, 'n');
    bool plain = word >> 25 & 1;
    if (from == EK_A32_PC || insn->branch || (!plain && value > 255))
        return;
    insn->base = (uint8_t)(EK_REG_INT + from);
    insn->step = word >> 23 & 1 ? -(int32_t)value : (int32_t)value;
    if (!plain)
        insn->step = ek_bits(word, 24, 21) == 8 ? (int32_t)value : -(int32_t)value;
}

// Branch offset; two of its bits are inverted unless it is negative.
static int32_t far(uint32_t word) {
    uint32_t sign = word >> 26 & 1, i1 = ~(word >> 13 ^ sign) & 1, i2 = ~(word >> 11 ^ sign) & 1;
    uint32_t value =
        sign << 24 | i1 << 23 | i2 << 22 | ek_bits(word, 25, 16) << 12 | ek_bits(word, 10, 0) << 1;
    return (int32_t)ek_sign_extend(value, 25);
}

static void direct(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    (void)pattern;
    insn->branch = EK_JUMP;
    if (insn->class == EK_CLASS_call) {
        insn->branch |= EK_CALL;
        ek_write(insn, EK_REG_INT + EK_A32_LR);
        if (!(word >> 12 & 1)) // switches to A32
            insn->target &= ~UINT64_C(3);
    }
    insn->target += (uint64_t)(int64_t)far(word);
}

static void conditional(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    (void)pattern;
    if (ek_bits(word, 25, 23) == 7) {
        ek_reject(insn);
        return;
    }
    uint32_t value = (word >> 26 & 1) << 20 | (word >> 11 & 1) << 19 | (word >> 13 & 1) << 18 |
                     ek_bits(word, 21, 16) << 12 | ek_bits(word, 10, 0) << 1;
    insn->branch = EK_JUMP | EK_CONDITIONAL;
    insn->target += (uint64_t)ek_sign_extend(value, 21);
}

static void extended(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (ek_field(pattern, word, 'n') == EK_A32_PC)
        insn->class = EK_CLASS_bits; // without addition
}

static struct ek_pattern patterns[] = {
    // with shifted register
    EK_H("11101010 0001nnnn0iii1111iittmmmm", alu, base, "rn rm F", ek_a32_shifted),
    EK_H("11101010 1001nnnn0iii1111iittmmmm", alu, base, "rn rm F", ek_a32_shifted),
    EK_H("11101011 0001nnnn0iii1111iittmmmm", alu, base, "rn rm F", ek_a32_shifted),
    EK_H("11101011 1011nnnn0iii1111iittmmmm", alu, base, "rn rm F", ek_a32_shifted),
    EK_H("11101010 010k11110iiiddddiittmmmm", move, base, "rm Rd", ek_a32_shifted),
    EK_H("11101010 011k11110iiiddddiittmmmm", alu, base, "Rd rm", ek_a32_shifted),
    EK_H("11101010 0..knnnn0iiiddddiittmmmm", alu, base, "Rd rn rm", ek_a32_shifted),
    EK_H("11101010 100knnnn0iiiddddiittmmmm", alu, base, "Rd rn rm", ek_a32_shifted),
    EK_P("11101010 1100nnnn0iiiddddii.0mmmm", alu_shift, base, "Rd rn rm"), // pkh
    EK_H("11101011 000knnnn0iiiddddiittmmmm", alu, base, "Rd rn rm", ek_a32_shifted),
    EK_H("11101011 01.knnnn0iiiddddiittmmmm", alu_carry, base, "Rd rn rm f", ek_a32_shifted),
    EK_H("11101011 101knnnn0iiiddddiittmmmm", alu, base, "Rd rn rm", ek_a32_shifted),
    EK_H("11101011 110knnnn0iiiddddiittmmmm", alu, base, "Rd rn rm", ek_a32_shifted),

    // with expanded constant
    EK_P("11110.00 0001nnnn0iii1111iiiiiiii", alu, base, "rn F"),
    EK_P("11110.00 1001nnnn0iii1111iiiiiiii", alu, base, "rn F"),
    EK_P("11110.01 0001nnnn0iii1111iiiiiiii", alu, base, "rn F"),
    EK_P("11110.01 1011nnnn0iii1111iiiiiiii", alu, base, "rn F"),
    EK_P("11110.00 01.k11110iiiddddiiiiiiii", move_imm, base, "Rd"),
    EK_P("11110.00 0..knnnn0iiiddddiiiiiiii", alu, base, "Rd rn"),
    EK_P("11110.00 100knnnn0iiiddddiiiiiiii", alu, base, "Rd rn"),
    EK_H("11110i01 0000nnnn0iiiddddiiiiiiii", alu, base, "Rd rn", constant),
    EK_H("11110i01 1010nnnn0iiiddddiiiiiiii", alu, base, "Rd rn", constant),
    EK_P("11110.01 000knnnn0iiiddddiiiiiiii", alu, base, "Rd rn"),
    EK_P("11110.01 01.knnnn0iiiddddiiiiiiii", alu_carry, base, "Rd rn f"),
    EK_P("11110.01 101knnnn0iiiddddiiiiiiii", alu, base, "Rd rn"),
    EK_P("11110.01 110knnnn0iiiddddiiiiiiii", alu, base, "Rd rn"),

    // with plain constant
    EK_P("11110.10 000011110iiiddddiiiiiiii", move_imm, base, "Rd"), // adr
    EK_P("11110.10 101011110iiiddddiiiiiiii", move_imm, base, "Rd"),
    EK_H("11110i10 0000nnnn0iiiddddiiiiiiii", alu, base, "Rd rn", constant),
    EK_H("11110i10 1010nnnn0iiiddddiiiiiiii", alu, base, "Rd rn", constant),
    EK_P("11110.10 0100....0iiiddddiiiiiiii", move_imm, base, "Rd"),
    EK_P("11110.10 1100....0iiiddddiiiiiiii", alu, base, "Rd rd"),
    EK_P("11110011 .0.0nnnn0iiiddddii0.....", alu_sat, base, "Rd rn"),
    EK_P("11110011 .100nnnn0iiiddddii0.....", bits, base, "Rd rn"),
    EK_P("11110011 0110nnnn0iiiddddii0.....", bits_insert, base, "Rd rd rn"),

    // branches and the system
    EK_P("11110011 1010....10.0.000........", hint, base, ""),
    EK_P("11110011 1011....10.0............", barrier, base, ""),
    EK_P("11110011 100.nnnn10.0............", system, base, "rn F"),
    EK_P("11110011 111.....10.0dddd........", system, base, "Rd f"),
    EK_P("11110111 1111....1010............", unknown, base, ""), // udf
    EK_H("11110... ........10.0............", branch_cond, base, "f", conditional),
    EK_H("11110... ........10.1............", branch, base, "", direct),
    EK_H("11110... ........11.1............", call, base, "", direct),
    EK_H("11110... ........11.0...........0", call, base, "", direct),

    // registers
    EK_P("11111010 0..knnnn1111dddd0000mmmm", shift, base, "Rd rn rm"),
    EK_H("11111010 0...nnnn1111dddd1...mmmm", alu_shift, base, "Rd rn rm", extended),
    EK_P("11111010 1...nnnn1111dddd0.00mmmm", alu_sat, base, "Rd rn rm G"),
    EK_P("11111010 1...nnnn1111dddd0...mmmm", alu_sat, base, "Rd rn rm"),
    EK_P("11111010 1000nnnn1111dddd10..mmmm", alu_sat, base, "Rd rm rn"),
    EK_P("11111010 1001....1111dddd10..mmmm", bits, base, "Rd rm"),
    EK_P("11111010 1010nnnn1111dddd1000mmmm", select, base, "Rd rn rm g"),
    EK_P("11111010 1011....1111dddd1000mmmm", count, base, "Rd rm"),
    EK_P("11111011 0000nnnn1111dddd0000mmmm", mul, base, "Rd rn rm"),
    EK_P("11111011 0000nnnnaaaadddd000.mmmm", mul, base, "Rd rn rm +ra"),
    EK_P("11111011 0111nnnnaaaadddd0000mmmm", alu_sat, base, "Rd rn rm +ra"), // usada8
    EK_P("11111011 0101nnnnaaaadddd000.mmmm", mul_high, base, "Rd rn rm +ra"),
    EK_P("11111011 0110nnnnaaaadddd000.mmmm", mul_high, base, "Rd rn rm +ra"),
    EK_P("11111011 0...nnnnaaaadddd00..mmmm", mul, base, "Rd rn rm +ra"),
    EK_P("11111011 10.1nnnn1111dddd1111mmmm", div, idiv, "Rd rn rm"),
    EK_P("11111011 10.0nnnnllllhhhh0000mmmm", mul_long, base, "Rl Rh rn rm"),
    EK_P("11111011 1110nnnnllllhhhh0110mmmm", mul_long, base, "Rl Rh rn rm rl rh"),
    EK_P("11111011 1100nnnnllllhhhh....mmmm", mul_long, base, "Rl Rh rn rm +rl +rh"),
    EK_P("11111011 1101nnnnllllhhhh110.mmmm", mul_long, base, "Rl Rh rn rm +rl +rh"),
    EK_P("11111011 1110nnnnllllhhhh0000mmmm", mul_long, base, "Rl Rh rn rm +rl +rh"),
};

const struct ek_table ek_t32_core = EK_TABLE(patterns);
