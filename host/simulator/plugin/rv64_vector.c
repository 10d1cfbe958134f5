// RV64: vector arithmetic (V 1.0, parts of Zvbb). Field t is the second source, s the first.
#include "rv64.h"

// Merges and vmv.v, which share encodings; the latter read no vector, or copy one.
static void merged(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t form = ek_bits(word, 14, 12), from = ek_field(pattern, word, 't');
    if (!ek_field(pattern, word, 'k')) {
        insn->class = EK_CLASS_v_select;
        ek_rv64_group(insn, from, 8, false);
        return;
    }
    if (from != 0)
        ek_reject(insn);
    else
        insn->class = form == 0   ? EK_CLASS_v_move
                      : form == 3 ? EK_CLASS_v_move_imm
                      : form == 5 ? EK_CLASS_v_dup
                                  : EK_CLASS_v_dup_int;
}

// Whole-register moves: 1, 2, 4 or 8 registers regardless of vtype.
static void whole_copied(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t count = ek_field(pattern, word, 'n') + 1;
    insn->registers = (uint8_t)count;
    if (count & (count - 1))
        ek_reject(insn);
    else
        for (int i = 0; i < insn->groups; i++)
            insn->group[i].fields = (uint8_t)count;
}

// 16-bit indices regardless of SEW.
static void short_indices(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    ek_rv64_group(insn, ek_field(pattern, word, 's'), 8, false)->bits = 16;
}

// The mask register holds carries.
static void carried(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    (void)pattern, (void)word;
    ek_rv64_group(insn, 0, 0, false);
}

// clang-format off
static struct ek_pattern opi[] = {
    EK_P("0000.0ktttttsssss.00ddddd1010111", v_alu, v, "L Vd vt os"), // add, sub
    EK_P("000011ktttttsssss100ddddd1010111", v_alu, v, "L Vd vt xs"),
    EK_P("000011ktttttsssss011ddddd1010111", v_alu, v, "L Vd vt"),
    EK_P("000000ktttttsssss011ddddd1010111", v_alu, v, "L Vd vt"),
    EK_P("000001ktttttsssss.00ddddd1010111", v_logic, zvbb, "L Vd vt os"),
    EK_P("0001..ktttttsssss.00ddddd1010111", v_minmax, v, "L Vd vt os"),
    EK_P("001000...................1010111", unknown, base, ""),
    EK_P("0010..ktttttsssss...ddddd1010111", v_logic, v, "L Vd vt os"),
    EK_P("001100ktttttsssss...ddddd1010111", v_gather, v, "L Vd vt os"),
    EK_H("001110ktttttsssss000ddddd1010111", v_gather, v, "L Vd vt", short_indices),
    EK_P("001110ktttttsssss100ddddd1010111", v_slide, v, "L Vd vd vt xs"),
    EK_P("001110ktttttsssss011ddddd1010111", v_slide, v, "L Vd vd vt"),
    EK_P("001111ktttttsssss100ddddd1010111", v_slide, v, "L Vd vt xs"),
    EK_P("001111ktttttsssss011ddddd1010111", v_slide, v, "L Vd vt"),
    EK_H("0100000tttttsssss...ddddd1010111", v_alu, v, "L Vd vt os", carried), // with carry
    EK_P("010001ktttttsssss...ddddd1010111", v_compare, v, "L Vdm vt os"),
    EK_H("0100100tttttsssss.00ddddd1010111", v_alu, v, "L Vd vt os", carried),
    EK_P("010011ktttttsssss.00ddddd1010111", v_compare, v, "L Vdm vt os"),
    EK_P("01010.ktttttsssss.00ddddd1010111", v_shift, zvbb, "L Vd vt os"),
    EK_P("01010iktttttsssss011ddddd1010111", v_shift, zvbb, "L Vd vt"),
    EK_H("010111ktttttsssss...ddddd1010111", v_select, v, "L Vd os", merged),
    EK_P("01100.ktttttsssss...ddddd1010111", v_compare, v, "L Vdm vt os"),
    EK_P("01101.ktttttsssss.00ddddd1010111", v_compare, v, "L Vdm vt os"),
    EK_P("01110.ktttttsssss...ddddd1010111", v_compare, v, "L Vdm vt os"),
    EK_P("01111.ktttttsssss100ddddd1010111", v_compare, v, "L Vdm vt os"),
    EK_P("01111.ktttttsssss011ddddd1010111", v_compare, v, "L Vdm vt"),
    EK_P("10000.ktttttsssss...ddddd1010111", v_alu_sat, v, "L Vd vt os"),
    EK_P("10001.ktttttsssss.00ddddd1010111", v_alu_sat, v, "L Vd vt os"),
    EK_P("100101ktttttsssss...ddddd1010111", v_shift, v, "L Vd vt os"),
    EK_P("100111ktttttsssss.00ddddd1010111", v_mul_sat, v, "L Vd vt os"),
    EK_H("1001111ttttt00nnn011ddddd1010111", v_move, v, "Vdm vtm", whole_copied),
    EK_P("10100.ktttttsssss...ddddd1010111", v_shift, v, "L Vd vt os"),
    EK_P("10101.ktttttsssss...ddddd1010111", v_shift_sat, v, "L Vd vt os"),
    EK_P("1011..ktttttsssss...ddddd1010111", v_narrow, v, "L Vd vtw os"),
    EK_P("11000.ktttttsssss000ddddd1010111", v_reduce, v, "L Vdm vt vsm"),
    EK_P("110101ktttttsssss...ddddd1010111", v_extend, zvbb, "L Vdw vt os"),
};

static struct ek_pattern opm[] = {
    EK_P("000...ktttttsssss010ddddd1010111", v_reduce, v, "L Vdm vt vsm"),
    EK_P("0010..ktttttsssss.10ddddd1010111", v_alu_sat, v, "L Vd vt os"), // averages
    EK_P("00111.ktttttsssss110ddddd1010111", v_slide, v, "L Vd vt xs"),
    EK_P("0100001ttttt00000010ddddd1010111", v_to_int, v, "Xd vtm"),
    EK_P("010000kttttt1000.010ddddd1010111", v_mask, v, "L Xd vtm"), // count, first
    EK_P("010000100000sssss110ddddd1010111", v_insert_int, v, "L Vdm vdm xs"),
    EK_P("010010kttttt0001.010ddddd1010111", v_extend, v, "L Vd vte"),
    EK_P("010010kttttt0010.010ddddd1010111", v_extend, v, "L Vd vtq"),
    EK_P("010010kttttt0011.010ddddd1010111", v_extend, v, "L Vd vtn"),
    EK_P("010010kttttt010..010ddddd1010111", v_count, zvbb, "L Vd vt"),
    EK_P("010010kttttt011..010ddddd1010111", v_count, zvbb, "L Vd vt"),
    EK_P("010100k0000010001010ddddd1010111", v_mask, v, "L Vd"), // vid
    EK_P("010100kttttt10000010ddddd1010111", v_mask, v, "L Vd vtm"), // viota
    EK_P("010100kttttt00001010ddddd1010111", v_mask, v, "L Vdm vtm"),
    EK_P("010100kttttt0001.010ddddd1010111", v_mask, v, "L Vdm vtm"),
    EK_P("0101111tttttsssss010ddddd1010111", v_compress, v, "L Vd vt vsm"),
    EK_P("011...1tttttsssss010ddddd1010111", v_mask, v, "L Vdm vtm vsm"),
    EK_P("1000..ktttttsssss.10ddddd1010111", v_div, v, "L Vd vt os"),
    EK_P("1001..ktttttsssss.10ddddd1010111", v_mul, v, "L Vd vt os"),
    EK_P("101001ktttttsssss.10ddddd1010111", v_mla, v, "L Vd vd os +vt"), // multiplies destination
    EK_P("101011ktttttsssss.10ddddd1010111", v_mla, v, "L Vd vd os +vt"),
    EK_P("1011.1ktttttsssss.10ddddd1010111", v_mla, v, "L Vd vt os +vd"),
    EK_P("1100..ktttttsssss.10ddddd1010111", v_alu_long, v, "L Vdw vt os"),
    EK_P("1101..ktttttsssss.10ddddd1010111", v_alu_long, v, "L Vdw vtw os"),
    EK_P("1110.0ktttttsssss.10ddddd1010111", v_mul_long, v, "L Vdw vt os"),
    EK_P("111011ktttttsssss.10ddddd1010111", v_mul_long, v, "L Vdw vt os"),
    EK_P("111110ktttttsssss110ddddd1010111", v_mla_long, v, "L Vdw vt xs +vdw"),
    EK_P("1111.1ktttttsssss.10ddddd1010111", v_mla_long, v, "L Vdw vt os +vdw"),
    EK_P("111100ktttttsssss.10ddddd1010111", v_mla_long, v, "L Vdw vt os +vdw"),
};

static struct ek_pattern opf[] = {
    EK_P("0000.0ktttttsssss.01ddddd1010111", v_fadd, v, "L Vd vt os"),
    EK_P("000011ktttttsssss001ddddd1010111", v_freduce_ordered, v, "L Vdm vt vsm"),
    EK_P("000..1ktttttsssss001ddddd1010111", v_freduce, v, "L Vdm vt vsm"),
    EK_P("0001.0ktttttsssss.01ddddd1010111", v_fminmax, v, "L Vd vt os"),
    EK_P("00100.ktttttsssss.01ddddd1010111", v_fsign, v, "L Vd vt os"),
    EK_P("001010ktttttsssss.01ddddd1010111", v_fsign, v, "L Vd vt os"),
    EK_P("00111.ktttttsssss101ddddd1010111", v_slide, v, "L Vd vt fs"),
    EK_P("0100001ttttt00000001ddddd1010111", v_to_int, v, "Fd vtm"),
    EK_P("010000100000sssss101ddddd1010111", v_insert, v, "L Vdm vdm fs"),
    EK_P("010010kttttt000..001ddddd1010111", v_fconvert, v, "L Vd vt"),
    EK_P("010010kttttt0011.001ddddd1010111", v_fconvert, v, "L Vd vt"),
    EK_P("010010kttttt010..001ddddd1010111", v_fconvert_size, v, "L Vdw vt"),
    EK_P("010010kttttt01100001ddddd1010111", v_fconvert_size, v, "L Vdw vt"),
    EK_P("010010kttttt0111.001ddddd1010111", v_fconvert_size, v, "L Vdw vt"),
    EK_P("010010kttttt10...001ddddd1010111", v_fconvert_size, v, "L Vd vtw"),
    EK_P("010011kttttt00000001ddddd1010111", v_fsqrt, v, "L Vd vt"),
    EK_P("010011kttttt0010.001ddddd1010111", v_festimate, v, "L Vd vt"),
    EK_P("010011kttttt10000001ddddd1010111", v_fcompare, v, "L Vd vt"), // classification
    EK_H("010111ktttttsssss101ddddd1010111", v_select, v, "L Vd fs", merged),
    EK_P("01100.ktttttsssss.01ddddd1010111", v_fcompare, v, "L Vdm vt os"),
    EK_P("011011ktttttsssss.01ddddd1010111", v_fcompare, v, "L Vdm vt os"),
    EK_P("011100ktttttsssss.01ddddd1010111", v_fcompare, v, "L Vdm vt os"),
    EK_P("0111.1ktttttsssss101ddddd1010111", v_fcompare, v, "L Vdm vt fs"),
    EK_P("100000ktttttsssss.01ddddd1010111", v_fdiv, v, "L Vd vt os"),
    EK_P("100001ktttttsssss101ddddd1010111", v_fdiv, v, "L Vd vt fs"),
    EK_P("100100ktttttsssss.01ddddd1010111", v_fmul, v, "L Vd vt os"),
    EK_P("100111ktttttsssss101ddddd1010111", v_fadd, v, "L Vd vt fs"),
    EK_P("1010..ktttttsssss.01ddddd1010111", v_fma, v, "L Vd vd os +vt"), // multiplies destination
    EK_P("1011..ktttttsssss.01ddddd1010111", v_fma, v, "L Vd vt os +vd"),
    EK_P("1100.0ktttttsssss.01ddddd1010111", v_fadd, v, "L Vdw vt os"),
    EK_P("110001ktttttsssss001ddddd1010111", v_freduce, v, "L Vdm vt vsm"),
    EK_P("110011ktttttsssss001ddddd1010111", v_freduce_ordered, v, "L Vdm vt vsm"),
    EK_P("1101.0ktttttsssss.01ddddd1010111", v_fadd, v, "L Vdw vtw os"),
    EK_P("111000ktttttsssss.01ddddd1010111", v_fmul, v, "L Vdw vt os"),
    EK_P("1111..ktttttsssss.01ddddd1010111", v_fma_long, v, "L Vdw vt os +vdw"),
};

// SpacemiT's XSMTVDot: sums of four rows and four columns of bytes, in two registers.
static struct ek_pattern matrix[] = {
    EK_P("1110001tttttsssss011ddddd0101011", v_mmla, xsmtvdot, "L Vdw vt vs +vdw"),
};
// clang-format on

const struct ek_table ek_rv64_opi = EK_TABLE(opi);
const struct ek_table ek_rv64_opm = EK_TABLE(opm);
const struct ek_table ek_rv64_opf = EK_TABLE(opf);
const struct ek_table ek_rv64_matrix = EK_TABLE(matrix);
