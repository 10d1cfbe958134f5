// A32: integer, branch and system instructions.
#include "a32.h"

static void constant(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t value = ek_field(pattern, word, 'i'), right = ek_field(pattern, word, 'r') * 2;
    uint32_t from = ek_field(pattern, word, 'n');
    if (from == EK_A32_PC || insn->branch)
        return;
    value = right ? value >> right | value << (32 - right) : value;
    insn->base = (uint8_t)(EK_REG_INT + from);
    insn->step = ek_bits(word, 23, 21) == 2 ? -(int32_t)value : (int32_t)value;
}

static void direct(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    insn->branch = EK_JUMP;
    if (insn->class == EK_CLASS_call) {
        insn->branch |= EK_CALL;
        ek_write(insn, EK_REG_INT + EK_A32_LR);
    }
    insn->target += (uint64_t)(ek_signed_field(pattern, word, 'i') * 4);
}

// Switches to T32; bit h adds a halfword to the offset.
static void exchanged(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    direct(pattern, word, insn);
    insn->target += ek_field(pattern, word, 'h') * 2;
}

static void indirect(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    bool calls = insn->class == EK_CLASS_call;
    ek_a32_jump(insn, !calls && ek_field(pattern, word, 'm') == EK_A32_LR);
    if (calls) {
        insn->class = EK_CLASS_call;
        insn->branch |= EK_CALL;
        ek_write(insn, EK_REG_INT + EK_A32_LR);
    }
}

static void extended(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (ek_field(pattern, word, 'n') == EK_A32_PC)
        insn->class = EK_CLASS_bits; // without addition
}

static struct ek_pattern patterns[] = {
    // products, quotients
    EK_P("....0000 000kdddd....ssss1001mmmm", mul, base, "Rd rm rs"),
    EK_P("....0000 001kddddaaaassss1001mmmm", mul, base, "Rd rm rs +ra"),
    EK_P("....0000 0100hhhhllllssss1001mmmm", mul_long, base, "Rl Rh rm rs rl rh"),
    EK_P("....0000 0110ddddaaaassss1001mmmm", mul, base, "Rd rm rs +ra"),
    EK_P("....0000 1.0khhhhllllssss1001mmmm", mul_long, base, "Rl Rh rm rs"),
    EK_P("....0000 1.1khhhhllllssss1001mmmm", mul_long, base, "Rl Rh rm rs +rl +rh"),
    EK_P("....0001 0000ddddaaaassss1..0mmmm", mul, base, "Rd rm rs +ra"),
    EK_P("....0001 0010ddddaaaassss1.00mmmm", mul, base, "Rd rm rs +ra"),
    EK_P("....0001 0010dddd....ssss1.10mmmm", mul, base, "Rd rm rs"),
    EK_P("....0001 0100hhhhllllssss1..0mmmm", mul_long, base, "Rl Rh rm rs +rl +rh"),
    EK_P("....0001 0110dddd....ssss1..0mmmm", mul, base, "Rd rm rs"),
    EK_P("....0111 0000ddddaaaassss0..1mmmm", mul, base, "Rd rm rs +ra"), // smlad
    EK_P("....0111 0100hhhhllllssss0..1mmmm", mul_long, base, "Rl Rh rm rs +rl +rh"),
    EK_P("....0111 0101ddddaaaassss...1mmmm", mul_high, base, "Rd rm rs +ra"),
    EK_P("....0111 0001dddd1111ssss0001mmmm", div, idiv, "Rd rm rs"),
    EK_P("....0111 0011dddd1111ssss0001mmmm", div, idiv, "Rd rm rs"),
    EK_P("....0111 1000ddddaaaassss0001mmmm", alu_sat, base, "Rd rm rs +ra"), // usada8

    // lanes, bits
    EK_P("....0110 0.01nnnndddd1111...1mmmm", alu_sat, base, "Rd rn rm G"),
    EK_P("....0110 0.1.nnnndddd1111...1mmmm", alu_sat, base, "Rd rn rm"),
    EK_P("....0110 1000nnnndddd11111011mmmm", select, base, "Rd rn rm g"),
    EK_P("....0110 1000nnnnddddiiiiit01mmmm", alu_shift, base, "Rd rn rm"), // pkh
    EK_P("....0110 1.1iiiiiddddiiiii.01mmmm", alu_sat, base, "Rd rm"),
    EK_P("....0110 1.10iiiidddd11110011mmmm", alu_sat, base, "Rd rm"),
    EK_P("....0110 1011....dddd1111.011mmmm", bits, base, "Rd rm"), // rev, rev16
    EK_P("....0110 1111....dddd1111.011mmmm", bits, base, "Rd rm"), // rbit, revsh
    EK_H("....0110 1...nnnndddd....0111mmmm", alu_shift, base, "Rd rn rm", extended),
    EK_P("....0111 110iiiiiddddiiiii0011111", bits_insert, base, "Rd rd"),
    EK_P("....0111 110iiiiiddddiiiii001mmmm", bits_insert, base, "Rd rd rm"),
    EK_P("....0111 1.1iiiiiddddiiiii101mmmm", bits, base, "Rd rm"),
    EK_P("....0001 0110....dddd....0001mmmm", count, base, "Rd rm"),
    EK_P("....0001 0..0nnnndddd00000101mmmm", alu_sat, base, "Rd rm rn"),

    // control
    EK_H("....0001 0010............0001mmmm", branch_indirect, base, "rm", indirect),
    EK_H("....0001 0010............0011mmmm", call, base, "rm", indirect),
    EK_H("....1010 iiiiiiiiiiiiiiiiiiiiiiii", branch, base, "", direct),
    EK_H("....1011 iiiiiiiiiiiiiiiiiiiiiiii", call, base, "", direct),
    EK_P("....1111 ........................", system, base, ""), // svc
    EK_P("....0001 0010............0111....", system, base, ""), // bkpt
    EK_P("....0001 0000....dddd000000000000", system, base, "Rd f"),
    EK_P("....0001 0.10....111100000000mmmm", system, base, "rm F"),
    EK_P("....0011 001000001111............", hint, base, ""),
    EK_P("....0011 0.10....1111............", system, base, "F"),

    // with shifted register
    EK_H("....0001 101k....ddddiiiiitt0mmmm", move, base, "rm Rd", ek_a32_shifted),
    EK_H("....0001 111k....ddddiiiiitt0mmmm", alu, base, "Rd rm", ek_a32_shifted),
    EK_H("....0001 0..1nnnn....iiiiitt0mmmm", alu, base, "rn rm F", ek_a32_shifted),
    EK_P("....0001 0..0....................", unknown, base, ""),
    EK_H("....0000 101knnnnddddiiiiitt0mmmm", alu_carry, base, "Rd rn rm f", ek_a32_shifted),
    EK_H("....0000 11.knnnnddddiiiiitt0mmmm", alu_carry, base, "Rd rn rm f", ek_a32_shifted),
    EK_H("....000. ...knnnnddddiiiiitt0mmmm", alu, base, "Rd rn rm", ek_a32_shifted),
    EK_P("....0001 101k....ddddssss0..1mmmm", shift, base, "Rd rm rs"),
    EK_P("....0001 111k....ddddssss0..1mmmm", alu_shift, base, "Rd rm rs"),
    EK_P("....0001 0..1nnnn....ssss0..1mmmm", alu_shift, base, "rn rm rs F"),
    EK_P("....0000 101knnnnddddssss0..1mmmm", alu_carry, base, "Rd rn rm rs f"),
    EK_P("....0000 11.knnnnddddssss0..1mmmm", alu_carry, base, "Rd rn rm rs f"),
    EK_P("....000. ...knnnnddddssss0..1mmmm", alu_shift, base, "Rd rn rm rs"),

    // with constant
    EK_P("....0011 0000iiiiddddiiiiiiiiiiii", move_imm, base, "Rd"),
    EK_P("....0011 0100iiiiddddiiiiiiiiiiii", alu, base, "Rd rd"),
    EK_P("....0011 1.1k....ddddiiiiiiiiiiii", move_imm, base, "Rd"),
    EK_P("....0011 0..1nnnn....iiiiiiiiiiii", alu, base, "rn F"),
    EK_P("....0011 0..0....................", unknown, base, ""),
    EK_P("....0010 101knnnnddddiiiiiiiiiiii", alu_carry, base, "Rd rn f"),
    EK_P("....0010 11.knnnnddddiiiiiiiiiiii", alu_carry, base, "Rd rn f"),
    EK_H("....0010 0100nnnnddddrrrriiiiiiii", alu, base, "Rd rn", constant),
    EK_H("....0010 1000nnnnddddrrrriiiiiiii", alu, base, "Rd rn", constant),
    EK_P("....001. ...knnnnddddiiiiiiiiiiii", alu, base, "Rd rn"),
};

static struct ek_pattern always[] = {
    EK_H("1111101h iiiiiiiiiiiiiiiiiiiiiiii", call, base, "", exchanged),
    EK_P("11110101 0111111111110000........", barrier, base, ""),
    EK_P("11110001 0000................0...", system, base, ""), // cps, setend
};

const struct ek_table ek_a32_core = EK_TABLE(patterns);
const struct ek_table ek_a32_always = EK_TABLE(always);
