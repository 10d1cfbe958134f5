// A32 and T32: scalar floats, their loads and stores, and register transfers.
#include "a32.h"

static void scalar_vector(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn,
                          bool load) {
    (void)pattern;
    bool wide = word >> 8 & 1;
    int number = ek_a32_double(word, 'd');
    ek_a32_vector(insn, load ? ek_write : ek_read, wide ? number : (number & 15) << 1 | number >> 4,
                  wide ? 64 : 32);
}

static void one(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    bool load = ek_field(pattern, word, 'l'), up = ek_field(pattern, word, 'u');
    int distance = (int)ek_field(pattern, word, 'i') * 4;
    insn->class = load ? EK_CLASS_load_v : EK_CLASS_store_v;
    ek_a32_access(insn, load, word >> 8 & 1 ? 8 : 4, 1, ek_field(pattern, word, 'n'));
    insn->offset = up ? distance : -distance;
    scalar_vector(pattern, word, insn, load);
}

// Consecutive registers, ascending or descending from the base.
static void several(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    bool load = ek_field(pattern, word, 'l'), wide = word >> 8 & 1, up = word >> 23 & 1;
    bool before = word >> 24 & 1, updates = word >> 21 & 1;
    int words = (int)ek_field(pattern, word, 'i'), first = ek_a32_double(word, 'd');
    int count = wide ? words / 2 : words, bytes = words * 4;
    if (!wide)
        first = (first & 15) << 1 | first >> 4;
    if (before == up || (before && !updates) || count == 0 || first + count > 32 ||
        (wide && count > 16)) {
        ek_reject(insn);
        return;
    }
    insn->class = load ? (count == 1 ? EK_CLASS_load_v : EK_CLASS_load_v_multi)
                       : (count == 1 ? EK_CLASS_store_v : EK_CLASS_store_v_multi);
    ek_a32_access(insn, load, wide ? 8 : 4, (unsigned)count, ek_field(pattern, word, 'n'));
    insn->bytes = (uint16_t)bytes;
    insn->offset = before ? -bytes : 0;
    for (int i = 0; i < count; i++)
        ek_a32_vector(insn, load ? ek_write : ek_read, first + i, wide ? 64 : 32);
    if (updates)
        ek_a32_write_back(insn, before ? EK_BEFORE : EK_AFTER, up ? bytes : -bytes);
}

static void pair_to_singles(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    int number = ek_a32_double(word, 'm'), first = (number & 15) << 1 | number >> 4;
    bool to_core = ek_field(pattern, word, 'l');
    for (int i = 0; i < 2; i++)
        ek_a32_vector(insn, to_core ? ek_read : ek_write, (first + i) & 31, 32);
}

static void to_lane(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    (void)pattern;
    uint32_t size = ek_bits(word, 22, 21) << 2 | ek_bits(word, 6, 5);
    insn->element = size & 8 ? 8 : size & 1 ? 16 : 32;
    insn->width = 64;
}

static void all_lanes(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    (void)pattern;
    bool quad = word >> 21 & 1;
    insn->element = word >> 22 & 1 ? 8 : word >> 5 & 1 ? 16 : 32;
    insn->width = quad ? 128 : 64;
    ek_a32_vector(insn, ek_write, (int)(ek_bits(word, 7, 7) << 4 | ek_bits(word, 19, 16)),
                  insn->width);
}

// Transfers the flags of VFP comparisons, for conditions.
static void flags_moved(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t to = ek_field(pattern, word, 't');
    if (to == EK_A32_PC)
        ek_write(insn, EK_REG_FLAGS);
    else
        ek_write(insn, EK_REG_INT + (int)to);
}

static void fixed_point(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    (void)pattern;
    int number = ek_a32_double(word, 'd'), bits = word >> 8 & 1 ? 64 : 32;
    if (bits == 32)
        number = (number & 15) << 1 | number >> 4;
    ek_a32_vector(insn, ek_read, number, bits);
    ek_a32_vector(insn, ek_write, number, bits);
}

static void counter(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    (void)pattern, (void)word;
    insn->reads_counter = true;
}

static struct ek_pattern patterns[] = {
    EK_P("....1110 0.00nnnndddd101zn.m0mmmm", f_mla, vfp, "Td tn tm +td"),
    EK_P("....1110 0.01nnnndddd101zn.m0mmmm", f_mla, vfp, "Td tn tm +td"),
    EK_P("....1110 0.10nnnndddd101zn.m0mmmm", f_mul, vfp, "Td tn tm"),
    EK_P("....1110 0.11nnnndddd101zn.m0mmmm", f_add, vfp, "Td tn tm"),
    EK_P("....1110 1.00nnnndddd101zn0m0mmmm", f_div, vfp, "Td tn tm"),
    EK_P("....1110 1.01nnnndddd101zn.m0mmmm", f_fma, vfpv4, "Td tn tm +td"),
    EK_P("....1110 1.10nnnndddd101zn.m0mmmm", f_fma, vfpv4, "Td tn tm +td"),
    EK_P("....1110 1.11iiiidddd101z0000iiii", f_move, vfp, "Td"),
    EK_P("....1110 1.110000dddd101z.1m0mmmm", f_move, vfp, "Td tm"), // vmov, vabs
    EK_P("....1110 1.110001dddd101z01m0mmmm", f_move, vfp, "Td tm"),
    EK_P("....1110 1.110001dddd101z11m0mmmm", f_sqrt, vfp, "Td tm"),
    EK_P("....1110 1.110010dddd1010.1m0mmmm", f_convert, vfp, "Sd sm"), // from half
    EK_P("....1110 1.110011dddd1010.1m0mmmm", f_convert, vfp, "Sd sd sm"),
    EK_P("....1110 1.110100dddd101z.1m0mmmm", f_compare, vfp, "P td tm"),
    EK_P("....1110 1.110101dddd101z.1000000", f_compare, vfp, "P td"),
    EK_P("....1110 1.110111dddd101011m0mmmm", f_convert, vfp, "e64 Dd sm"),
    EK_P("....1110 1.110111dddd101111m0mmmm", f_convert, vfp, "e64 Sd dm"),
    EK_P("....1110 1.11011.dddd101z.1m0mmmm", f_convert, v8, "Td tm"), // vrint
    EK_P("....1110 1.111000dddd101z.1m0mmmm", f_convert, vfp, "Td sm"),
    EK_P("....1110 1.11110.dddd101z.1m0mmmm", f_convert, vfp, "Sd tm"),
    EK_H("....1110 1.111.1.dddd101z.1.0....", f_convert, vfp, "", fixed_point),

    EK_P("....1110 0000nnnntttt1010n0010000", int_to_f, vfp, "Sn rt"),
    EK_P("....1110 0001nnnntttt1010n0010000", f_to_int, vfp, "Rt sn"),
    EK_H("....1110 0..0nnnntttt1011n..10000", v_insert_int, neon, "Dn dn rt", to_lane),
    EK_H("....1110 1.00nnnntttt1011n0.10000", v_dup_int, neon, "rt", all_lanes),
    EK_H("....1110 1.10nnnntttt1011n0.10000", v_dup_int, neon, "rt", all_lanes),
    EK_H("....1110 ...1nnnntttt1011n..10000", v_to_int, neon, "Rt dn", to_lane),
    EK_H("....1110 11110001tttt101000010000", f_to_int, vfp, "p", flags_moved),
    EK_P("....1110 1111....tttt101000010000", system, vfp, "Rt"),
    EK_P("....1110 1110....tttt101000010000", system, vfp, "P rt"),
    EK_H("....1100 0100uuuutttt101000m1mmmm", int_to_f, vfp, "rt ru", pair_to_singles),
    EK_H("....1100 0101uuuutttt101000m1mmmm", f_to_int, vfp, "Rt Ru", pair_to_singles),
    EK_P("....1100 0100uuuutttt101100m1mmmm", int_to_f, vfp, "Dm rt ru"),
    EK_P("....1100 0101uuuutttt101100m1mmmm", f_to_int, vfp, "Rt Ru dm"),
    EK_H("....1101 u.0lnnnndddd101.iiiiiiii", load_v, vfp, "", one),
    EK_H("....110. ...lnnnndddd101.iiiiiiii", load_v_multi, vfp, "", several),

    // other coprocessors: system registers
    EK_H("....1100 0101uuuutttt111100011110", system, base, "Rt Ru", counter), // cntvct
    EK_H("....1110 00011001tttt111100011101", system, base, "Rt", counter),    // pmccntr
    EK_P("....1110 ...0nnnntttt111....1mmmm", system, base, "rt"),
    EK_P("....1110 ...1nnnntttt111....1mmmm", system, base, "Rt"),
    EK_P("....1100 0100uuuutttt111.....mmmm", system, base, "rt ru"),
    EK_P("....1100 0101uuuutttt111.....mmmm", system, base, "Rt Ru"),
};

const struct ek_table ek_a32_vfp = EK_TABLE(patterns);
