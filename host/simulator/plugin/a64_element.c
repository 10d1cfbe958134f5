// A64: operations by one vector element; lane moves, permutations, table lookups, reductions.
#include "a64.h"

static void scalar_is_full(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (ek_field(pattern, word, 'h') && !ek_field(pattern, word, 'q'))
        ek_reject(insn);
}

// Products are twice as wide as their operands.
static void widened(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    scalar_is_full(pattern, word, insn);
    insn->element *= 2;
    insn->width = ek_field(pattern, word, 'h') ? insn->element : 128;
}

static void pairs_of_doubles(const struct ek_pattern *pattern, uint32_t word,
                             struct ek_insn *insn) {
    if (insn->element == 64 && ek_field(pattern, word, 'l')) // lane index out of range
        ek_reject(insn);
    if (insn->element == 64 && !ek_field(pattern, word, 'q') && !ek_field(pattern, word, 'h'))
        ek_reject(insn);
    scalar_is_full(pattern, word, insn);
}

// A 64-bit register holds two half-precision complex numbers.
static void complex_lane(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (insn->width == 64 && ek_field(pattern, word, 'k'))
        ek_reject(insn);
}

// The element size follows from the lowest set bit of field i.
static bool lane_size(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t lane = ek_field(pattern, word, 'i');
    if ((lane & 15) == 0) {
        ek_reject(insn);
        return false;
    }
    insn->element = (uint16_t)(8 << __builtin_ctz(lane));
    return true;
}

static void lane(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (!lane_size(pattern, word, insn))
        return;
    if (insn->class == EK_CLASS_v_insert || insn->class == EK_CLASS_v_insert_int)
        insn->width = 128;
    else if (!ek_has_field(pattern, 'q'))
        insn->width = insn->element;
    else if (insn->element == 64 && insn->width == 64)
        ek_reject(insn);
}

static void lane_to_integer(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    bool extends = !ek_field(pattern, word, 'u');
    if (!lane_size(pattern, word, insn))
        return;
    if (extends ? insn->element * 2 > insn->width : (insn->element == 64) != (insn->width == 64))
        ek_reject(insn);
}

static void extracted(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (insn->width == 64 && ek_field(pattern, word, 'i') >= 8)
        ek_reject(insn);
}

static void looked_up(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t first = ek_field(pattern, word, 'n'), more = ek_field(pattern, word, 'l');
    insn->registers = (uint8_t)(more + 1);
    insn->element = 8;
    for (uint32_t i = 0; i <= more; i++)
        ek_read(insn, ek_a64_v(first + i));
    if (ek_field(pattern, word, 'x')) // tbx keeps lanes with an index out of range
        ek_read(insn, ek_a64_v(ek_field(pattern, word, 'd')));
}

static void full_sum(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    (void)pattern, (void)word;
    if (insn->element == 64 || (insn->element == 32 && insn->width == 64))
        ek_reject(insn);
}

static struct ek_pattern patterns[] = {
    // by element: for 16-bit elements, the indexed register is at most v15
    EK_H("0q0h1111 00..mmmm0.01.0nnnnnddddd", v_fma, asimdhp, "Vd vn vm +vd", scalar_is_full),
    EK_H("0q.h1111 00..mmmm1001.0nnnnnddddd", v_fmul, asimdhp, "Vd vn vm", scalar_is_full),
    EK_H("0q0h1111 1plmmmmm0.01.0nnnnnddddd", v_fma, base, "Vd vn vm +vd", pairs_of_doubles),
    EK_H("0q.h1111 1plmmmmm1001.0nnnnnddddd", v_fmul, base, "Vd vn vm", pairs_of_doubles),
    EK_P("0q001111 10..mmmm0.00.0nnnnnddddd", v_fma_long, asimdfhm, "e32 Vd vn vm +vd"),
    EK_P("0q101111 10..mmmm1.00.0nnnnnddddd", v_fma_long, asimdfhm, "e32 Vd vn vm +vd"),
    EK_H("0q101111 01lmmmmm0..1k0nnnnnddddd", v_fma, fcma, "e16 Vd vn vm +vd", complex_lane),
    EK_P("01101111 100mmmmm0..1.0nnnnnddddd", v_fma, fcma, "q e32 Vd vn vm +vd"),
    EK_P("0q101111 01..mmmm0.00.0nnnnnddddd", v_mla, base, "e16 Vd vn vm +vd"),
    EK_P("0q101111 10.mmmmm0.00.0nnnnnddddd", v_mla, base, "e32 Vd vn vm +vd"),
    EK_P("0q001111 01..mmmm1000.0nnnnnddddd", v_mul, base, "e16 Vd vn vm"),
    EK_P("0q001111 10.mmmmm1000.0nnnnnddddd", v_mul, base, "e32 Vd vn vm"),
    EK_P("0..01111 01..mmmm0.10.0nnnnnddddd", v_mla_long, base, "e32 q Vd vn vm +vd"),
    EK_P("0..01111 10.mmmmm0.10.0nnnnnddddd", v_mla_long, base, "e64 q Vd vn vm +vd"),
    EK_P("0..01111 01..mmmm1010.0nnnnnddddd", v_mul_long, base, "e32 q Vd vn vm"),
    EK_P("0..01111 10.mmmmm1010.0nnnnnddddd", v_mul_long, base, "e64 q Vd vn vm"),
    EK_H("0q0h1111 01..mmmm0.11.0nnnnnddddd", v_mla_long, base, "e16 Vd vn vm +vd", widened),
    EK_H("0q0h1111 10.mmmmm0.11.0nnnnnddddd", v_mla_long, base, "e32 Vd vn vm +vd", widened),
    EK_H("0q0h1111 01..mmmm1011.0nnnnnddddd", v_mul_long, base, "e16 Vd vn vm", widened),
    EK_H("0q0h1111 10.mmmmm1011.0nnnnnddddd", v_mul_long, base, "e32 Vd vn vm", widened),
    EK_H("0q0h1111 01..mmmm110..0nnnnnddddd", v_mul_sat, base, "e16 Vd vn vm", scalar_is_full),
    EK_H("0q0h1111 10.mmmmm110..0nnnnnddddd", v_mul_sat, base, "e32 Vd vn vm", scalar_is_full),
    EK_H("0q1h1111 01..mmmm11.1.0nnnnnddddd", v_mla_sat, asimdrdm, "e16 Vd vn vm +vd",
         scalar_is_full),
    EK_H("0q1h1111 10.mmmmm11.1.0nnnnnddddd", v_mla_sat, asimdrdm, "e32 Vd vn vm +vd",
         scalar_is_full),
    EK_P("0q.01111 10.mmmmm1110.0nnnnnddddd", v_dot, asimddp, "Vd vn vm +vd"),
    EK_P("0q001111 .0.mmmmm1111.0nnnnnddddd", v_dot, i8mm, "Vd vn vm +vd"),
    EK_P("0q001111 01.mmmmm1111.0nnnnnddddd", v_dot, bf16, "e16 Vd vn vm +vd"),
    EK_P("0.001111 11..mmmm1111.0nnnnnddddd", v_fma_long, bf16, "e16 q Vd vn vm +vd"),

    // lanes
    EK_H("0q001110 000iiiii000001nnnnnddddd", v_dup, base, "Vd vn", lane),
    EK_H("01011110 000iiiii000001nnnnnddddd", v_dup, base, "Vd vn", lane),
    EK_H("0q001110 000iiiii000011nnnnnddddd", v_dup_int, base, "Vd xn", lane),
    EK_H("01001110 000iiiii000111nnnnnddddd", v_insert_int, base, "Vd xn +vd", lane),
    EK_H("01101110 000iiiii0....1nnnnnddddd", v_insert, base, "Vd vd vn", lane),
    EK_H("0z001110 000iiiii001u11nnnnnddddd", v_to_int, base, "Xd vn", lane_to_integer),

    // permutations
    EK_H("0q001110 ee0mmmmm0.1010nnnnnddddd", v_permute, base, "Vd vn vm", pairs_of_doubles),
    EK_H("0q001110 ee0mmmmm0..110nnnnnddddd", v_permute, base, "Vd vn vm", pairs_of_doubles),
    EK_H("0q101110 000mmmmm0iiii0nnnnnddddd", v_permute, base, "Vd vn vm", extracted),
    EK_H("0q001110 000mmmmm0llx00nnnnnddddd", v_table, base, "Vd vm", looked_up),

    // across all lanes
    EK_H("0q.01110 ee110000001110nnnnnddddd", v_reduce, base, "Vd vn", full_sum),
    EK_H("0q.01110 ee11000.101010nnnnnddddd", v_reduce, base, "Vd vn", full_sum),
    EK_H("0q001110 ee110001101110nnnnnddddd", v_reduce, base, "Vd vn", full_sum),
    EK_P("01101110 .0110000110010nnnnnddddd", v_freduce, base, "q e32 Vd vn"),
    EK_P("01101110 .0110000111110nnnnnddddd", v_freduce, base, "q e32 Vd vn"),
    EK_P("0q001110 .0110000110010nnnnnddddd", v_freduce, asimdhp, "Vd vn"),
    EK_P("0q001110 .0110000111110nnnnnddddd", v_freduce, asimdhp, "Vd vn"),
    EK_P("01011110 11110001101110nnnnnddddd", v_pair_add, base, "Vd vn"),
    EK_P("01111110 .p110000110010nnnnnddddd", v_fpair, base, "Vd vn"),
    EK_P("01111110 0p110000110110nnnnnddddd", v_fpair, base, "Vd vn"),
    EK_P("01111110 .p110000111110nnnnnddddd", v_fpair, base, "Vd vn"),
    EK_P("01011110 .0110000110010nnnnnddddd", v_fpair, asimdhp, "Vd vn"),
    EK_P("01011110 00110000110110nnnnnddddd", v_fpair, asimdhp, "Vd vn"),
    EK_P("01011110 .0110000111110nnnnnddddd", v_fpair, asimdhp, "Vd vn"),
};

const struct ek_table ek_a64_element = EK_TABLE(patterns);
