// A32 and T32: vector arithmetic. Bit 6 selects 64 or 128 bits.
#include "a32.h"

// Rejects element sizes of 64 and 8 bits where they are not allowed.
static void up_to_words(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    (void)pattern, (void)word;
    if (insn->element == 64)
        ek_reject(insn);
}

static void halves_words(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    (void)pattern, (void)word;
    if (insn->element == 64 || insn->element == 8)
        ek_reject(insn);
}

// The elements of the result or of the operands are twice as wide.
static void two_widths(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    (void)pattern, (void)word;
    insn->element *= 2;
}

static void copied(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    (void)pattern;
    if (ek_a32_double(word, 'n') == ek_a32_double(word, 'm'))
        insn->class = EK_CLASS_v_move;
}

static void looked_up(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    int count = (int)ek_field(pattern, word, 'c') + 1, first = ek_a32_double(word, 'n');
    insn->registers = (uint8_t)count;
    if (first + count > 32) {
        ek_reject(insn);
        return;
    }
    for (int i = 0; i < count; i++)
        ek_a32_vector(insn, ek_read, first + i, 64);
    if (ek_field(pattern, word, 'o')) // vtbx keeps lanes with an index out of range
        ek_a32_vector(insn, ek_read, ek_a32_double(word, 'd'), 64);
}

static void lane_size(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t lane = ek_field(pattern, word, 'i');
    if ((lane & 7) == 0)
        ek_reject(insn);
    else
        insn->element = (uint16_t)(8 << __builtin_ctz(lane));
}

// The element size follows from the highest set bit of field i: 64 bits if bit 7 is set.
static void shift_size(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t high = ek_bits(word, 21, 19);
    if (word >> 7 & 1)
        insn->element = 64;
    else if (high == 0)
        ek_reject(insn);
    else
        insn->element = (uint16_t)(8 << (31 - __builtin_clz(high)));
    (void)pattern;
}

static void shift_two_widths(const struct ek_pattern *pattern, uint32_t word,
                             struct ek_insn *insn) {
    shift_size(pattern, word, insn);
    if (insn->element == 64)
        ek_reject(insn);
    insn->element *= 2;
}

static void constant(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t mode = ek_field(pattern, word, 'c');
    if (mode < 12 && mode & 1) { // vorr, vbic
        insn->class = EK_CLASS_v_logic;
        int number = ek_a32_double(word, 'd'), bits = word >> 6 & 1 ? 128 : 64;
        ek_a32_vector(insn, ek_read, number, bits);
    }
    if (mode == 15 && ek_field(pattern, word, 'o'))
        ek_reject(insn);
}

static struct ek_pattern patterns[] = {
    // three registers of the same type
    EK_H("1111001. 0.eennnndddd0000n.m0mmmm", v_alu_sat, neon, "Vd vn vm", up_to_words),
    EK_P("1111001. 0.eennnndddd00.0n.m1mmmm", v_alu_sat, neon, "Vd vn vm"), // vqadd, vqsub
    EK_H("1111001. 0.eennnndddd0001n.m0mmmm", v_alu_sat, neon, "Vd vn vm", up_to_words),
    EK_H("11110010 0.10nnnndddd0001n.m1mmmm", v_logic, neon, "Vd vn vm", copied),
    EK_P("11110010 0...nnnndddd0001n.m1mmmm", v_logic, neon, "Vd vn vm"),
    EK_P("11110011 0.00nnnndddd0001n.m1mmmm", v_logic, neon, "Vd vn vm"),
    EK_P("11110011 0...nnnndddd0001n.m1mmmm", v_select, neon, "Vd vd vn vm"),
    EK_H("1111001. 0.eennnndddd0010n.m0mmmm", v_alu_sat, neon, "Vd vn vm", up_to_words),
    EK_H("1111001. 0.eennnndddd0011n.m.mmmm", v_compare, neon, "Vd vn vm", up_to_words),
    EK_P("1111001. 0.eennnndddd0100n.m0mmmm", v_shift, neon, "Vd vn vm"),
    EK_P("1111001. 0.eennnndddd010.n.m.mmmm", v_shift_sat, neon, "Vd vn vm"),
    EK_H("1111001. 0.eennnndddd0110n.m.mmmm", v_minmax, neon, "Vd vn vm", up_to_words),
    EK_H("1111001. 0.eennnndddd0111n.m0mmmm", v_abs_diff, neon, "Vd vn vm", up_to_words),
    EK_H("1111001. 0.eennnndddd0111n.m1mmmm", v_abs_diff_acc, neon, "Vd vn vm +vd", up_to_words),
    EK_P("1111001. 0.eennnndddd1000n.m0mmmm", v_alu, neon, "Vd vn vm"),
    EK_H("1111001. 0.eennnndddd1000n.m1mmmm", v_compare, neon, "Vd vn vm", up_to_words),
    EK_H("1111001. 0.eennnndddd1001n.m0mmmm", v_mla, neon, "Vd vn vm +vd", up_to_words),
    EK_H("11110010 0.eennnndddd1001n.m1mmmm", v_mul, neon, "Vd vn vm", up_to_words),
    EK_P("11110011 0.00nnnndddd1001n.m1mmmm", v_mul_poly, neon, "Vd vn vm"),
    EK_H("1111001. 0.eennnndddd1010n0m.mmmm", v_minmax, neon, "Dd dn dm", up_to_words),
    EK_H("1111001. 0.eennnndddd1011n.m0mmmm", v_mul_sat, neon, "Vd vn vm", halves_words),
    EK_H("11110010 0.eennnndddd1011n0m1mmmm", v_pair_add, neon, "Dd dn dm", up_to_words),
    EK_P("11110010 0..0nnnndddd1100n.m1mmmm", v_fma, vfpv4, "e32 Vd vn vm +vd"),
    EK_P("11110010 0..0nnnndddd1101n.m0mmmm", v_fadd, neon, "e32 Vd vn vm"),
    EK_P("11110011 0.00nnnndddd1101n0m0mmmm", v_fpair, neon, "e32 Dd dn dm"),
    EK_P("11110011 0.10nnnndddd1101n.m0mmmm", v_fadd, neon, "e32 Vd vn vm"),
    EK_P("11110010 0..0nnnndddd1101n.m1mmmm", v_fmla, neon, "e32 Vd vn vm +vd"),
    EK_P("11110011 0.00nnnndddd1101n.m1mmmm", v_fmul, neon, "e32 Vd vn vm"),
    EK_P("11110010 0.00nnnndddd1110n.m0mmmm", v_fcompare, neon, "e32 Vd vn vm"),
    EK_P("11110011 0..0nnnndddd1110n.m.mmmm", v_fcompare, neon, "e32 Vd vn vm"),
    EK_P("11110010 0..0nnnndddd1111n.m0mmmm", v_fminmax, neon, "e32 Vd vn vm"),
    EK_P("11110011 0..0nnnndddd1111n0m0mmmm", v_fpair, neon, "e32 Dd dn dm"),
    EK_P("11110010 0..0nnnndddd1111n.m1mmmm", v_festep, neon, "e32 Vd vn vm"),
    EK_P("11110011 0..0nnnndddd1111n.m1mmmm", v_fminmax, v8, "e32 Vd vn vm"),

    // extract, one register, table, lane: bits 21 and 20 are set
    EK_P("11110010 1.11nnnnddddiiiin.m0mmmm", v_permute, neon, "Vd vn vm"),
    EK_P("11110011 1.11ee00dddd0000..m0mmmm", v_permute, neon, "Vd vm"), // vrev64, vrev32
    EK_P("11110011 1.11ee00dddd00010.m0mmmm", v_permute, neon, "Vd vm"),
    EK_H("11110011 1.11ee00dddd0010..m0mmmm", v_pair_add, neon, "Vd vm", two_widths),
    EK_P("11110011 1.11ee00dddd0100..m0mmmm", v_count, neon, "Vd vm"), // vcls, vclz
    EK_P("11110011 1.110000dddd01010.m0mmmm", v_count, neon, "Vd vm"),
    EK_P("11110011 1.110000dddd01011.m0mmmm", v_logic, neon, "Vd vm"),
    EK_H("11110011 1.11ee00dddd0110..m0mmmm", v_pair_acc, neon, "Vd vm +vd", two_widths),
    EK_P("11110011 1.11ee00dddd0111..m0mmmm", v_alu_sat, neon, "Vd vm"),
    EK_P("11110011 1.111001dddd0111..m0mmmm", v_fsign, neon, "e32 Vd vm"),
    EK_P("11110011 1.111001dddd01....m0mmmm", v_fcompare, neon, "e32 Vd vm"),
    EK_P("11110011 1.11ee01dddd0011..m0mmmm", v_alu, neon, "Vd vm"),
    EK_P("11110011 1.11ee01dddd00....m0mmmm", v_compare, neon, "Vd vm"),
    EK_P("11110011 1.11ee10dddd000...m0mmmm", v_permute, neon, "Vd Vm vd vm"),
    EK_H("11110011 1.11ee10dddd0010..m0mmmm", v_narrow, neon, "Dd qm", two_widths),
    EK_H("11110011 1.11ee10dddd001100m0mmmm", v_extend, neon, "Qd dm", two_widths),
    EK_P("11110011 1.110110dddd011000m0mmmm", v_fconvert_size, neon, "e32 Dd qm"),
    EK_P("11110011 1.110110dddd011100m0mmmm", v_fconvert_size, neon, "e32 Qd dm"),
    EK_P("11110011 1.111010dddd01....m0mmmm", v_fround, v8, "e32 Vd vm"),
    EK_P("11110011 1.111011dddd010...m0mmmm", v_festimate, neon, "e32 Vd vm"),
    EK_P("11110011 1.111011dddd011...m0mmmm", v_fconvert, neon, "e32 Vd vm"),
    EK_P("11110011 1.111011dddd00....m0mmmm", v_fconvert, v8, "e32 Vd vm"),
    EK_H("11110011 1.11nnnndddd10ccnom0mmmm", v_table, neon, "e8 Dd dm", looked_up),
    EK_H("11110011 1.11iiiidddd11000.m0mmmm", v_dup, neon, "Vd dm", lane_size),
    EK_P("11110011 1.11...............0....", unknown, base, ""),

    // lengthening and narrowing
    EK_H("1111001. 1.eennnndddd00.0n0m0mmmm", v_alu_long, neon, "Qd dn dm", two_widths),
    EK_H("1111001. 1.eennnndddd00.1n0m0mmmm", v_alu_long, neon, "Qd qn dm", two_widths),
    EK_H("1111001. 1.eennnndddd01.0n0m0mmmm", v_narrow, neon, "Dd qn qm", two_widths),
    EK_H("1111001. 1.eennnndddd0101n0m0mmmm", v_abs_diff_acc, neon, "Qd dn dm +qd", two_widths),
    EK_H("1111001. 1.eennnndddd0111n0m0mmmm", v_abs_diff, neon, "Qd dn dm", two_widths),
    EK_H("1111001. 1.eennnndddd10..n0m0mmmm", v_mla_long, neon, "Qd dn dm +qd", two_widths),
    EK_H("1111001. 1.eennnndddd110.n0m0mmmm", v_mul_long, neon, "Qd dn dm", two_widths),
    EK_H("1111001. 1.eennnndddd1110n0m0mmmm", v_mul_poly, neon, "Qd dn dm", two_widths),

    // by a lane
    EK_P("1111001. 1.00.........1...1.0....", unknown, base, ""),
    EK_P("1111001. 1.10nnnndddd0.01n1m0mmmm", v_fmla, neon, "e32 Wd wn xm +wd"),
    EK_P("1111001. 1.eennnndddd0.00n1m0mmmm", v_mla, neon, "Wd wn xm +wd"),
    EK_H("1111001. 1.eennnndddd0.1.n1m0mmmm", v_mla_long, neon, "Qd dn xm +qd", two_widths),
    EK_P("1111001. 1.10nnnndddd1001n1m0mmmm", v_fmul, neon, "e32 Wd wn xm"),
    EK_P("1111001. 1.eennnndddd1000n1m0mmmm", v_mul, neon, "Wd wn xm"),
    EK_H("1111001. 1.eennnndddd101.n1m0mmmm", v_mul_long, neon, "Qd dn xm", two_widths),
    EK_P("1111001. 1.eennnndddd110.n1m0mmmm", v_mul_sat, neon, "Wd wn xm"),

    // constants and shifts by constants
    EK_H("1111001. 1.000...ddddcccc0.o1....", v_move_imm, neon, "Vd", constant),
    EK_H("1111001. 1.iiiiiidddd0000..m1mmmm", v_shift, neon, "Vd vm", shift_size),
    EK_H("1111001. 1.iiiiiidddd0001..m1mmmm", v_shift_acc, neon, "Vd vm +vd", shift_size),
    EK_H("1111001. 1.iiiiiidddd0010..m1mmmm", v_shift_sat, neon, "Vd vm", shift_size),
    EK_H("1111001. 1.iiiiiidddd0011..m1mmmm", v_shift_acc, neon, "Vd vm +vd", shift_size),
    EK_H("11110011 1.iiiiiidddd010...m1mmmm", v_shift, neon, "Vd vd vm", shift_size),
    EK_H("11110010 1.iiiiiidddd0101..m1mmmm", v_shift, neon, "Vd vm", shift_size),
    EK_H("1111001. 1.iiiiiidddd011...m1mmmm", v_shift_sat, neon, "Vd vm", shift_size),
    EK_H("1111001. 1.iiiiiidddd100.0.m1mmmm", v_narrow, neon, "Dd qm", shift_two_widths),
    EK_H("1111001. 1.iiiiiidddd101000m1mmmm", v_extend, neon, "Qd dm", shift_two_widths),
    EK_P("1111001. 1.1iiiiidddd111.0.m1mmmm", v_fconvert, neon, "e32 Vd vm"),
};

const struct ek_table ek_a32_neon = EK_TABLE(patterns);
