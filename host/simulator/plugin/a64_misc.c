// A64: single-register vector operations, constants, shifts by constants.
#include "a64.h"

// The reversed container must be larger than an element.
static void reversed(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t operation = ek_field(pattern, word, 'o') << 1 | ek_field(pattern, word, 'u');
    if (insn->element >= (operation == 0 ? 64 : operation == 1 ? 32 : 16) || operation > 2)
        ek_reject(insn);
}

// Doubles the element width.
static void widened(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    (void)pattern, (void)word;
    if (insn->element == 64)
        ek_reject(insn);
    insn->element *= 2;
}

static void extended(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    widened(pattern, word, insn);
    insn->width = 128;
}

// Narrows into the lower half, or into the upper half preserving the lower.
static void narrowed(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    bool scalar = ek_field(pattern, word, 'h');
    if (scalar && !ek_field(pattern, word, 'q'))
        ek_reject(insn);
    else if (ek_field(pattern, word, 'q') && !scalar)
        ek_read(insn, ek_a64_v(ek_field(pattern, word, 'd')));
    widened(pattern, word, insn);
    insn->width = scalar ? insn->element : 128;
}

// Conversions between float types: field k selects the wider one.
static void float_size(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    insn->element = ek_field(pattern, word, 'k') ? 64 : 32;
    insn->width = 128;
    if (insn->class == EK_CLASS_v_fconvert_size && ek_has_field(pattern, 'u') &&
        ek_field(pattern, word, 'u'))
        ek_read(insn, ek_a64_v(ek_field(pattern, word, 'd')));
}

static void constant(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t mode = ek_field(pattern, word, 'c'), inverted = ek_field(pattern, word, 'o');
    bool half = ek_field(pattern, word, 'k');
    if (half && (mode != 15 || inverted))
        ek_reject(insn);
    else if (mode == 15 && inverted && !ek_field(pattern, word, 'q'))
        ek_reject(insn);
    else if (half)
        insn->feature = EK_FEATURE_asimdhp;
    else if (mode < 12 && mode & 1) { // orr, bic
        insn->class = EK_CLASS_v_logic;
        ek_read(insn, ek_a64_v(ek_field(pattern, word, 'd')));
    }
}

// The element size follows from the highest set bit of field i; at least `smallest` bits.
static bool shift_size(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn,
                       int smallest) {
    uint32_t high = ek_field(pattern, word, 'i');
    bool scalar = ek_field(pattern, word, 'h'), full = ek_field(pattern, word, 'q');
    int bits = high ? 8 << (31 - __builtin_clz(high)) : 0;
    if (bits < smallest || (scalar && !full)) {
        ek_reject(insn);
        return false;
    }
    insn->element = (uint16_t)bits;
    if (scalar)
        insn->width = insn->element;
    return true;
}

static void any_scalar(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (shift_size(pattern, word, insn, 8))
        ek_a64_no_lone_double(pattern, word, insn);
}

static void shifted(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (shift_size(pattern, word, insn, 8))
        ek_a64_double_scalar(pattern, word, insn);
}

static void fixed_point(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (!shift_size(pattern, word, insn, 16))
        return;
    if (insn->element == 16)
        insn->feature = EK_FEATURE_asimdhp;
    ek_a64_no_lone_double(pattern, word, insn);
}

static void shift_narrowed(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (shift_size(pattern, word, insn, 8))
        narrowed(pattern, word, insn);
}

static void shift_extended(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (shift_size(pattern, word, insn, 8))
        extended(pattern, word, insn);
}

static struct ek_pattern patterns[] = {
    // integers
    EK_H("0qu01110 ee100000000o10nnnnnddddd", v_permute, base, "Vd vn", reversed),
    EK_H("0q.01110 ee100000001010nnnnnddddd", v_pair_add, base, "Vd vn", widened),
    EK_H("0q.h1110 ee100000001110nnnnnddddd", v_alu_sat, base, "Vd vd vn", ek_a64_no_lone_double),
    EK_H("0q.01110 ee100000010010nnnnnddddd", v_count, base, "Vd vn", ek_a64_up_to_words),
    EK_P("0q001110 00100000010110nnnnnddddd", v_count, base, "Vd vn"),
    EK_P("0q101110 00100000010110nnnnnddddd", v_logic, base, "Vd vn"),
    EK_P("0q101110 01100000010110nnnnnddddd", v_count, base, "Vd vn"),
    EK_H("0q.01110 ee100000011010nnnnnddddd", v_pair_acc, base, "Vd vn +vd", widened),
    EK_H("0q.h1110 ee100000011110nnnnnddddd", v_alu_sat, base, "Vd vn", ek_a64_no_lone_double),
    EK_H("0q.h1110 ee100000100.10nnnnnddddd", v_compare, base, "Vd vn", ek_a64_double_scalar),
    EK_H("0q0h1110 ee100000101010nnnnnddddd", v_compare, base, "Vd vn", ek_a64_double_scalar),
    EK_H("0q.h1110 ee100000101110nnnnnddddd", v_alu, base, "Vd vn", ek_a64_double_scalar),
    EK_H("0q001110 ee100001001010nnnnnddddd", v_narrow, base, "Vd vn", narrowed),
    EK_H("0q1h1110 ee100001001010nnnnnddddd", v_narrow, base, "Vd vn", narrowed),
    EK_H("0.101110 ee100001001110nnnnnddddd", v_extend, base, "Vd vn", extended),
    EK_H("0q.h1110 ee100001010010nnnnnddddd", v_narrow, base, "Vd vn", narrowed),

    // floats
    EK_H("0u001110 0k100001011010nnnnnddddd", v_fconvert_size, base, "Vd vn", float_size),
    EK_H("0u101110 01100001011010nnnnnddddd", v_fconvert_size, base, "Vd vn", float_size),
    EK_P("01111110 01100001011010nnnnnddddd", v_fconvert_size, base, "Vd vn"),
    EK_H("0u001110 10100001011010nnnnnddddd", v_fconvert_size, bf16, "Vd vn", float_size),
    EK_H("0.001110 0k100001011110nnnnnddddd", v_fconvert_size, base, "Vd vn", float_size),
    EK_H("0q.h1110 1p100000110.10nnnnnddddd", v_fcompare, base, "Vd vn", ek_a64_no_lone_double),
    EK_H("0q0h1110 1p100000111010nnnnnddddd", v_fcompare, base, "Vd vn", ek_a64_no_lone_double),
    EK_H("0q.01110 1p100000111110nnnnnddddd", v_fsign, base, "Vd vn", ek_a64_no_lone_double),
    EK_H("0q.01110 0p100001100.10nnnnnddddd", v_fround, base, "Vd vn", ek_a64_no_lone_double),
    EK_H("0q001110 1p100001100.10nnnnnddddd", v_fround, base, "Vd vn", ek_a64_no_lone_double),
    EK_H("0q101110 1p100001100110nnnnnddddd", v_fround, base, "Vd vn", ek_a64_no_lone_double),
    EK_H("0q.h1110 .p100001101.10nnnnnddddd", v_fconvert, base, "Vd vn", ek_a64_no_lone_double),
    EK_H("0q.h1110 0p100001110.10nnnnnddddd", v_fconvert, base, "Vd vn", ek_a64_no_lone_double),
    EK_P("0q.01110 10100001110010nnnnnddddd", v_festimate, base, "Vd vn"),
    EK_H("0q.h1110 1p100001110110nnnnnddddd", v_festimate, base, "Vd vn", ek_a64_no_lone_double),
    EK_H("0q.01110 0p100001111.10nnnnnddddd", v_fround, frint, "Vd vn", ek_a64_no_lone_double),
    EK_H("0q101110 1p100001111110nnnnnddddd", v_fsqrt, base, "Vd vn", ek_a64_no_lone_double),
    EK_P("01011110 1p100001111110nnnnnddddd", v_festimate, base, "Vd vn"),

    // half precision
    EK_H("0q.h1110 11111000110.10nnnnnddddd", v_fcompare, asimdhp, "Vd vn", ek_a64_no_lone_double),
    EK_H("0q0h1110 11111000111010nnnnnddddd", v_fcompare, asimdhp, "Vd vn", ek_a64_no_lone_double),
    EK_P("0q.01110 11111000111110nnnnnddddd", v_fsign, asimdhp, "Vd vn"),
    EK_P("0q.01110 01111001100.10nnnnnddddd", v_fround, asimdhp, "Vd vn"),
    EK_P("0q001110 11111001100.10nnnnnddddd", v_fround, asimdhp, "Vd vn"),
    EK_P("0q101110 11111001100110nnnnnddddd", v_fround, asimdhp, "Vd vn"),
    EK_H("0q.h1110 .1111001101.10nnnnnddddd", v_fconvert, asimdhp, "Vd vn", ek_a64_no_lone_double),
    EK_H("0q.h1110 01111001110.10nnnnnddddd", v_fconvert, asimdhp, "Vd vn", ek_a64_no_lone_double),
    EK_H("0q.h1110 11111001110110nnnnnddddd", v_festimate, asimdhp, "Vd vn", ek_a64_no_lone_double),
    EK_P("0q101110 11111001111110nnnnnddddd", v_fsqrt, asimdhp, "Vd vn"),
    EK_P("01011110 11111001111110nnnnnddddd", v_festimate, asimdhp, "Vd vn"),

    // constants
    EK_H("0qo01111 00000...cccck1.....ddddd", v_move_imm, base, "Vd", constant),

    // shifts by constants: the highest bit of the four determines the element size
    EK_H("0q.h1111 0iiii...000001nnnnnddddd", v_shift, base, "Vd vn", shifted),
    EK_H("0q.h1111 0iiii...000101nnnnnddddd", v_shift_acc, base, "Vd vn +vd", shifted),
    EK_H("0q.h1111 0iiii...001001nnnnnddddd", v_shift_sat, base, "Vd vn", shifted),
    EK_H("0q.h1111 0iiii...001101nnnnnddddd", v_shift_acc, base, "Vd vn +vd", shifted),
    EK_H("0q1h1111 0iiii...010.01nnnnnddddd", v_shift, base, "Vd vd vn", shifted),
    EK_H("0q0h1111 0iiii...010101nnnnnddddd", v_shift, base, "Vd vn", shifted),
    EK_H("0q1h1111 0iiii...011001nnnnnddddd", v_shift_sat, base, "Vd vn", any_scalar),
    EK_H("0q.h1111 0iiii...011101nnnnnddddd", v_shift_sat, base, "Vd vn", any_scalar),
    EK_H("0q001111 0iiii...100001nnnnnddddd", v_narrow, base, "Vd vn", shift_narrowed),
    EK_H("0q001111 0iiii...100011nnnnnddddd", v_narrow, base, "Vd vn", shift_narrowed),
    EK_H("0q1h1111 0iiii...1000.1nnnnnddddd", v_narrow, base, "Vd vn", shift_narrowed),
    EK_H("0q.h1111 0iiii...1001.1nnnnnddddd", v_narrow, base, "Vd vn", shift_narrowed),
    EK_H("0..01111 0iiii...101001nnnnnddddd", v_extend, base, "Vd vn", shift_extended),
    EK_H("0q.h1111 0iiii...111001nnnnnddddd", v_fconvert, base, "Vd vn", fixed_point),
    EK_H("0q.h1111 0iiii...111111nnnnnddddd", v_fconvert, base, "Vd vn", fixed_point),
};

const struct ek_table ek_a64_misc = EK_TABLE(patterns);
