// A64: scalar floating point.
#include "a64.h"

// Conversions have two widths: the float's and the integer register's.
static void wider(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint16_t integer = ek_field(pattern, word, 'z') ? 64 : 32;
    if (integer > insn->width)
        insn->width = integer;
}

static void from_fixed(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (!ek_field(pattern, word, 'z') && ek_field(pattern, word, 's') < 32)
        ek_reject(insn);
    else
        wider(pattern, word, insn);
}

// Moves need registers of equal size, except that any register can hold 16 bits.
static void copied(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t integer = ek_field(pattern, word, 'z') ? 64 : 32;
    if (insn->element != 16 && insn->element != integer)
        ek_reject(insn);
}

// Conversions between float types; those of half precision predate half-precision arithmetic.
static void converted(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    static const uint8_t bits[] = {32, 64, 0, 16};
    uint32_t from = ek_field(pattern, word, 'y'), to = ek_field(pattern, word, 't');
    insn->feature = EK_FEATURE_base;
    if (bits[to] > insn->element)
        insn->element = insn->width = bits[to];
    if (from == to || to == 2)
        ek_reject(insn);
}

static void rounded(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (ek_field(pattern, word, 'r') == 5)
        ek_reject(insn);
}

static struct ek_pattern patterns[] = {
    // With integer registers; rounding mode in bits 20 and 19, operation in the next three.
    EK_H("z0011110 yy10001.000000nnnnnddddd", f_convert_from_int, base, "Vd xn", wider),
    EK_H("z0011110 yy10010.000000nnnnnddddd", f_convert_to_int, base, "Xd vn", wider),
    EK_H("z0011110 yy100110000000nnnnnddddd", f_to_int, base, "Xd vn", copied),
    EK_H("z0011110 yy100111000000nnnnnddddd", int_to_f, base, "Vd xn", copied),
    EK_H("z0011110 yy1..00.000000nnnnnddddd", f_convert_to_int, base, "Xd vn", wider),
    EK_P("00011110 01111110000000nnnnnddddd", f_convert_to_int, jscvt, "Xd vn F"),
    EK_P("10011110 10101110000000nnnnnddddd", f_to_int, base, "Xd vn"),
    EK_P("10011110 10101111000000nnnnnddddd", int_to_f, base, "Vd vd xn"),
    EK_H("z0011110 yy00001.ssssssnnnnnddddd", f_convert_from_int, base, "Vd xn", from_fixed),
    EK_H("z0011110 yy01100.ssssssnnnnnddddd", f_convert_to_int, base, "Xd vn", from_fixed),

    // One source; operation in bits 20 to 15.
    EK_P("00011110 yy100000010000nnnnnddddd", f_move, base, "Vd vn"), // fmov, fabs, fneg
    EK_P("00011110 yy100000110000nnnnnddddd", f_move, base, "Vd vn"),
    EK_P("00011110 yy100001010000nnnnnddddd", f_move, base, "Vd vn"),
    EK_P("00011110 yy100001110000nnnnnddddd", f_sqrt, base, "Vd vn"),
    EK_P("00011110 01100011010000nnnnnddddd", f_convert, bf16, "e16 Vd vn"),
    EK_H("00011110 yy10001tt10000nnnnnddddd", f_convert, base, "Vd vn", converted),
    EK_H("00011110 yy1001rrr10000nnnnnddddd", f_convert, base, "Vd vn", rounded),
    EK_P("00011110 0.10100..10000nnnnnddddd", f_convert, frint, "Vd vn"),

    EK_P("00011110 yy1mmmmm001000nnnnn.0000", f_compare, base, "vn vm F"),
    EK_P("00011110 yy1.....001000nnnnn.1000", f_compare, base, "vn F"), // with zero
    EK_P("00011110 yy1iiiiiiii10000000ddddd", f_move, base, "Vd"),
    EK_P("00011110 yy1mmmmmcccc01nnnnn.iiii", f_compare, base, "vn vm f F"),
    EK_P("00011110 yy1mmmmm.00010nnnnnddddd", f_mul, base, "Vd vn vm"),
    EK_P("00011110 yy1mmmmm000110nnnnnddddd", f_div, base, "Vd vn vm"),
    EK_P("00011110 yy1mmmmm001.10nnnnnddddd", f_add, base, "Vd vn vm"),
    EK_P("00011110 yy1mmmmm01..10nnnnnddddd", f_minmax, base, "Vd vn vm"),
    EK_P("00011110 yy1mmmmmcccc11nnnnnddddd", f_select, base, "Vd vn vm f"),
    EK_P("00011111 yy.mmmmm.aaaaannnnnddddd", f_fma, base, "Vd vn vm +va"),
};

const struct ek_table ek_a64_float = EK_TABLE(patterns);
