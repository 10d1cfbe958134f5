// RV64: scalar floating point: F, D, Zfh.
#include "rv64.h"

static void load(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    int memory = insn->class == EK_CLASS_store_v ? EK_STORE : EK_LOAD;
    ek_rv64_access(insn, memory, 1u << ek_bits(word, 14, 12), ek_field(pattern, word, 's'),
                   (int)ek_signed_field(pattern, word, 'i'));
}

// Converts from the type in field t to that in field y.
static void converted(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    static const uint8_t bits[] = {32, 64, 16, 0};
    uint32_t from = ek_field(pattern, word, 't'), to = ek_field(pattern, word, 'y');
    if (from > 2 || from == to) {
        ek_reject(insn);
        return;
    }
    if (bits[from] > insn->width)
        insn->width = insn->element = bits[from];
    insn->feature = from == 2 || to == 2 ? EK_FEATURE_zfhmin : EK_FEATURE_d;
}

static void with_integer(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (ek_field(pattern, word, 'l'))
        insn->width = 64;
}

static struct ek_pattern patterns[] = {
    EK_H("iiiiiiiiiiiisssss001ddddd 0000111", load_v, zfhmin, "Fd", load),
    EK_H("iiiiiiiiiiiisssss010ddddd 0000111", load_v, f, "Fd", load),
    EK_H("iiiiiiiiiiiisssss011ddddd 0000111", load_v, d, "Fd", load),
    EK_H("iiiiiiitttttsssss001iiiii 0100111", store_v, zfhmin, "ft", load),
    EK_H("iiiiiiitttttsssss010iiiii 0100111", store_v, f, "ft", load),
    EK_H("iiiiiiitttttsssss011iiiii 0100111", store_v, d, "ft", load),
    EK_P("rrrrryytttttsssss...ddddd 100..11", f_fma, base, "Fd fs ft +fr"),
    EK_P("0000.yytttttsssss...ddddd 1010011", f_add, base, "Fd fs ft"),
    EK_P("00010yytttttsssss...ddddd 1010011", f_mul, base, "Fd fs ft"),
    EK_P("00011yytttttsssss...ddddd 1010011", f_div, base, "Fd fs ft"),
    EK_P("01011yy00000sssss...ddddd 1010011", f_sqrt, base, "Fd fs"),
    EK_P("00100yytttttsssss00.ddddd 1010011", f_move, base, "Fd fs ft"),
    EK_P("00100yytttttsssss010ddddd 1010011", f_move, base, "Fd fs ft"),
    EK_P("00101yytttttsssss00.ddddd 1010011", f_minmax, base, "Fd fs ft"),
    EK_H("01000yytttttsssss...ddddd 1010011", f_convert, base, "Fd fs", converted),
    EK_P("10100yytttttsssss00.ddddd 1010011", f_compare, base, "Xd fs ft"),
    EK_P("10100yytttttsssss010ddddd 1010011", f_compare, base, "Xd fs ft"),
    EK_H("11000yy000l.sssss...ddddd 1010011", f_convert_to_int, base, "Xd fs", with_integer),
    EK_H("11010yy000l.sssss...ddddd 1010011", f_convert_from_int, base, "Fd xs", with_integer),
    EK_P("111001000000sssss000ddddd 1010011", f_to_int, zfhmin, "Xd fs"),
    EK_P("11100yy00000sssss000ddddd 1010011", f_to_int, base, "Xd fs"),
    EK_P("11100yy00000sssss001ddddd 1010011", f_compare, base, "Xd fs"), // classification
    EK_P("111101000000sssss000ddddd 1010011", int_to_f, zfhmin, "Fd xs"),
    EK_P("11110yy00000sssss000ddddd 1010011", int_to_f, base, "Fd xs"),
};

const struct ek_table ek_rv64_float = EK_TABLE(patterns);
