// A64: three-register vector operations.
#include "a64.h"

// Rejects element sizes of 8 and 64 bits.
static void halves_words(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    ek_a64_no_lone_double(pattern, word, insn);
    if (insn->element == 8 || insn->element == 64)
        ek_reject(insn);
}

// The sources are half as wide as the result, or vice versa.
static void two_widths(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (insn->element == 64)
        ek_reject(insn);
    insn->element *= 2;
    insn->width = ek_field(pattern, word, 'h') ? insn->element : 128;
}

static void doubled_widths(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (insn->element == 8 || (ek_field(pattern, word, 'h') && !ek_field(pattern, word, 'q')))
        ek_reject(insn);
    else
        two_widths(pattern, word, insn);
}

// Writes the upper half of the destination, preserving the lower.
static void narrowed(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (ek_field(pattern, word, 'q'))
        ek_read(insn, ek_a64_v(ek_field(pattern, word, 'd')));
    two_widths(pattern, word, insn);
}

static void polynomial(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (insn->element == 16 || insn->element == 32) {
        ek_reject(insn);
    } else {
        if (insn->element == 64)
            insn->feature = EK_FEATURE_pmull;
        insn->element *= 2;
        insn->width = 128;
    }
    (void)pattern, (void)word;
}

static void rotated(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    ek_a64_no_lone_double(pattern, word, insn);
    if (insn->element == 8)
        ek_reject(insn);
}

// ORR of a register with itself is a move.
static void copied(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (ek_field(pattern, word, 'n') == ek_field(pattern, word, 'm'))
        insn->class = EK_CLASS_v_move;
}

static struct ek_pattern patterns[] = {
    // same type: integers
    EK_H("0q.01110 ee1mmmmm000001nnnnnddddd", v_alu_sat, base, "Vd vn vm", ek_a64_up_to_words),
    EK_H("0q.h1110 ee1mmmmm000011nnnnnddddd", v_alu_sat, base, "Vd vn vm", ek_a64_no_lone_double),
    EK_H("0q.01110 ee1mmmmm000101nnnnnddddd", v_alu_sat, base, "Vd vn vm", ek_a64_up_to_words),
    EK_P("0q001110 0.1mmmmm000111nnnnnddddd", v_logic, base, "Vd vn vm"),
    EK_H("0q001110 101mmmmm000111nnnnnddddd", v_logic, base, "Vd vn vm", copied),
    EK_P("0q001110 111mmmmm000111nnnnnddddd", v_logic, base, "Vd vn vm"),
    EK_P("0q101110 001mmmmm000111nnnnnddddd", v_logic, base, "Vd vn vm"),
    EK_P("0q101110 ..1mmmmm000111nnnnnddddd", v_select, base, "Vd vd vn vm"),
    EK_H("0q.01110 ee1mmmmm001001nnnnnddddd", v_alu_sat, base, "Vd vn vm", ek_a64_up_to_words),
    EK_H("0q.h1110 ee1mmmmm001011nnnnnddddd", v_alu_sat, base, "Vd vn vm", ek_a64_no_lone_double),
    EK_H("0q.h1110 ee1mmmmm0011.1nnnnnddddd", v_compare, base, "Vd vn vm", ek_a64_double_scalar),
    EK_H("0q.h1110 ee1mmmmm010001nnnnnddddd", v_shift, base, "Vd vn vm", ek_a64_double_scalar),
    EK_H("0q.h1110 ee1mmmmm010101nnnnnddddd", v_shift_sat, base, "Vd vn vm", ek_a64_double_scalar),
    EK_H("0q.h1110 ee1mmmmm010..1nnnnnddddd", v_shift_sat, base, "Vd vn vm", ek_a64_no_lone_double),
    EK_H("0q.01110 ee1mmmmm0110.1nnnnnddddd", v_minmax, base, "Vd vn vm", ek_a64_up_to_words),
    EK_H("0q.01110 ee1mmmmm011101nnnnnddddd", v_abs_diff, base, "Vd vn vm", ek_a64_up_to_words),
    EK_H("0q.01110 ee1mmmmm011111nnnnnddddd", v_abs_diff_acc, base, "Vd vn vm +vd",
         ek_a64_up_to_words),
    EK_H("0q.h1110 ee1mmmmm100001nnnnnddddd", v_alu, base, "Vd vn vm", ek_a64_double_scalar),
    EK_H("0q.h1110 ee1mmmmm100011nnnnnddddd", v_compare, base, "Vd vn vm", ek_a64_double_scalar),
    EK_H("0q.01110 ee1mmmmm100101nnnnnddddd", v_mla, base, "Vd vn vm +vd", ek_a64_up_to_words),
    EK_H("0q001110 ee1mmmmm100111nnnnnddddd", v_mul, base, "Vd vn vm", ek_a64_up_to_words),
    EK_P("0q101110 001mmmmm100111nnnnnddddd", v_mul_poly, base, "Vd vn vm"),
    EK_H("0q.01110 ee1mmmmm1010.1nnnnnddddd", v_minmax, base, "Vd vn vm", ek_a64_up_to_words),
    EK_H("0q.h1110 ee1mmmmm101101nnnnnddddd", v_mul_sat, base, "Vd vn vm", halves_words),
    EK_H("0q001110 ee1mmmmm101111nnnnnddddd", v_pair_add, base, "Vd vn vm", ek_a64_no_lone_double),

    // floats
    EK_H("0q.01110 .p1mmmmm110001nnnnnddddd", v_fminmax, base, "Vd vn vm", ek_a64_no_lone_double),
    EK_H("0q001110 .p1mmmmm110011nnnnnddddd", v_fma, base, "Vd vn vm +vd", ek_a64_no_lone_double),
    EK_P("0q101110 .01mmmmm110011nnnnnddddd", v_fma_long, asimdfhm, "e32 Vd vn vm +vd"),
    EK_P("0q001110 .01mmmmm111011nnnnnddddd", v_fma_long, asimdfhm, "e32 Vd vn vm +vd"),
    EK_H("0q001110 .p1mmmmm110101nnnnnddddd", v_fadd, base, "Vd vn vm", ek_a64_no_lone_double),
    EK_H("0q101110 0p1mmmmm110101nnnnnddddd", v_fpair, base, "Vd vn vm", ek_a64_no_lone_double),
    EK_H("0q1h1110 1p1mmmmm110101nnnnnddddd", v_fadd, base, "Vd vn vm", ek_a64_no_lone_double),
    EK_H("0q0h1110 0p1mmmmm110111nnnnnddddd", v_fmul, base, "Vd vn vm", ek_a64_no_lone_double),
    EK_H("0q101110 0p1mmmmm110111nnnnnddddd", v_fmul, base, "Vd vn vm", ek_a64_no_lone_double),
    EK_H("0q0h1110 0p1mmmmm111001nnnnnddddd", v_fcompare, base, "Vd vn vm", ek_a64_no_lone_double),
    EK_H("0q1h1110 .p1mmmmm1110.1nnnnnddddd", v_fcompare, base, "Vd vn vm", ek_a64_no_lone_double),
    EK_H("0q.01110 .p1mmmmm111101nnnnnddddd", v_fminmax, base, "Vd vn vm", ek_a64_no_lone_double),
    EK_H("0q0h1110 .p1mmmmm111111nnnnnddddd", v_festep, base, "Vd vn vm", ek_a64_no_lone_double),
    EK_H("0q101110 0p1mmmmm111111nnnnnddddd", v_fdiv, base, "Vd vn vm", ek_a64_no_lone_double),

    // half precision
    EK_P("0q.01110 .10mmmmm000001nnnnnddddd", v_fminmax, asimdhp, "Vd vn vm"),
    EK_P("0q001110 .10mmmmm000011nnnnnddddd", v_fma, asimdhp, "Vd vn vm +vd"),
    EK_P("0q001110 .10mmmmm000101nnnnnddddd", v_fadd, asimdhp, "Vd vn vm"),
    EK_P("0q101110 010mmmmm000101nnnnnddddd", v_fpair, asimdhp, "Vd vn vm"),
    EK_H("0q1h1110 110mmmmm000101nnnnnddddd", v_fadd, asimdhp, "Vd vn vm", ek_a64_no_lone_double),
    EK_H("0q0h1110 010mmmmm000111nnnnnddddd", v_fmul, asimdhp, "Vd vn vm", ek_a64_no_lone_double),
    EK_P("0q101110 010mmmmm000111nnnnnddddd", v_fmul, asimdhp, "Vd vn vm"),
    EK_H("0q0h1110 010mmmmm001001nnnnnddddd", v_fcompare, asimdhp, "Vd vn vm",
         ek_a64_no_lone_double),
    EK_H("0q1h1110 .10mmmmm0010.1nnnnnddddd", v_fcompare, asimdhp, "Vd vn vm",
         ek_a64_no_lone_double),
    EK_P("0q.01110 .10mmmmm001101nnnnnddddd", v_fminmax, asimdhp, "Vd vn vm"),
    EK_H("0q0h1110 .10mmmmm001111nnnnnddddd", v_festep, asimdhp, "Vd vn vm", ek_a64_no_lone_double),
    EK_P("0q101110 010mmmmm001111nnnnnddddd", v_fdiv, asimdhp, "Vd vn vm"),

    // dot products, matrix products, complex numbers
    EK_H("0q1h1110 ee0mmmmm1000.1nnnnnddddd", v_mla_sat, asimdrdm, "Vd vn vm +vd", halves_words),
    EK_P("0q.01110 100mmmmm100101nnnnnddddd", v_dot, asimddp, "Vd vn vm +vd"),
    EK_P("0q001110 100mmmmm100111nnnnnddddd", v_dot, i8mm, "Vd vn vm +vd"),
    EK_P("01.01110 100mmmmm101001nnnnnddddd", v_mmla, i8mm, "q Vd vn vm +vd"),
    EK_P("01001110 100mmmmm101011nnnnnddddd", v_mmla, i8mm, "q Vd vn vm +vd"),
    EK_H("0q101110 ee0mmmmm110..1nnnnnddddd", v_fma, fcma, "Vd vn vm +vd", rotated),
    EK_H("0q101110 ee0mmmmm111.01nnnnnddddd", v_fadd, fcma, "Vd vn vm", rotated),
    EK_P("01101110 010mmmmm111011nnnnnddddd", v_mmla, bf16, "e16 q Vd vn vm +vd"),
    EK_P("0q101110 010mmmmm111111nnnnnddddd", v_dot, bf16, "e16 Vd vn vm +vd"),
    EK_P("0.101110 110mmmmm111111nnnnnddddd", v_fma_long, bf16, "e16 q Vd vn vm +vd"),

    // lengthening and narrowing
    EK_H("0..01110 ee1mmmmm00.000nnnnnddddd", v_alu_long, base, "Vd vn vm", two_widths),
    EK_H("0..01110 ee1mmmmm00.100nnnnnddddd", v_alu_long, base, "Vd vn vm", two_widths),
    EK_H("0q.01110 ee1mmmmm01.000nnnnnddddd", v_narrow, base, "Vd vn vm", narrowed),
    EK_H("0..01110 ee1mmmmm010100nnnnnddddd", v_abs_diff_acc, base, "Vd vn vm +vd", two_widths),
    EK_H("0..01110 ee1mmmmm011100nnnnnddddd", v_abs_diff, base, "Vd vn vm", two_widths),
    EK_H("0..01110 ee1mmmmm10.000nnnnnddddd", v_mla_long, base, "Vd vn vm +vd", two_widths),
    EK_H("0q0h1110 ee1mmmmm10.100nnnnnddddd", v_mla_long, base, "Vd vn vm +vd", doubled_widths),
    EK_H("0..01110 ee1mmmmm110000nnnnnddddd", v_mul_long, base, "Vd vn vm", two_widths),
    EK_H("0q0h1110 ee1mmmmm110100nnnnnddddd", v_mul_long, base, "Vd vn vm", doubled_widths),
    EK_H("0.001110 ee1mmmmm111000nnnnnddddd", v_mul_poly, base, "Vd vn vm", polynomial),

    // cryptography
    EK_P("01001110 00101000010.10nnnnnddddd", v_aes, aes, "q Vd vd vn"), // aese, aesd
    EK_P("01001110 00101000011.10nnnnnddddd", v_aes, aes, "q Vd vn"),
    EK_P("01011110 000mmmmm000000nnnnnddddd", v_sha, sha1, "q Vd vd vn vm"),
    EK_P("01011110 000mmmmm000100nnnnnddddd", v_sha, sha1, "q Vd vd vn vm"),
    EK_P("01011110 000mmmmm001000nnnnnddddd", v_sha, sha1, "q Vd vd vn vm"),
    EK_P("01011110 000mmmmm001100nnnnnddddd", v_sha, sha1, "q Vd vd vn vm"),
    EK_P("01011110 000mmmmm010.00nnnnnddddd", v_sha, sha2, "q Vd vd vn vm"),
    EK_P("01011110 000mmmmm011000nnnnnddddd", v_sha, sha2, "q Vd vd vn vm"),
    EK_P("01011110 00101000000010nnnnnddddd", v_sha, sha1, "q Vd vn"),
    EK_P("01011110 00101000000110nnnnnddddd", v_sha, sha1, "q Vd vd vn"),
    EK_P("01011110 00101000001010nnnnnddddd", v_sha, sha2, "q Vd vd vn"),
    EK_P("11001110 00.mmmmm0aaaaannnnnddddd", v_logic, sha3, "q Vd vn vm va"), // eor3, bcax
    EK_P("11001110 010mmmmm0aaaaannnnnddddd", v_sha, sm3, "q Vd vn vm va"),
    EK_P("11001110 010mmmmm10....nnnnnddddd", v_sha, sm3, "q Vd vd vn vm"),
    EK_P("11001110 011mmmmm100011nnnnnddddd", v_logic, sha3, "q Vd vn vm"),
    EK_P("11001110 100mmmmm......nnnnnddddd", v_logic, sha3, "q Vd vn vm"),
    EK_P("11001110 011mmmmm1000..nnnnnddddd", v_sha, sha512, "q Vd vd vn vm"),
    EK_P("11001110 11000000100000nnnnnddddd", v_sha, sha512, "q Vd vd vn"),
    EK_P("11001110 11000000100001nnnnnddddd", v_aes, sm4, "q Vd vd vn"),
    EK_P("11001110 011mmmmm110010nnnnnddddd", v_aes, sm4, "q Vd vn vm"),
    EK_P("11001110 011mmmmm11000.nnnnnddddd", v_sha, sm3, "q Vd vd vn vm"),
};

const struct ek_table ek_a64_vector = EK_TABLE(patterns);
