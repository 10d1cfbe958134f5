// A64: integer instructions.
#include "a64.h"

// Addition and subtraction of a constant, which the model needs to follow addresses.
static void constant(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    int32_t value = (int32_t)ek_field(pattern, word, 'i')
                    << (ek_field(pattern, word, 'l') ? 12 : 0);
    insn->base = (uint8_t)(EK_REG_INT + ek_field(pattern, word, 'n'));
    insn->step = ek_field(pattern, word, 'o') ? -value : value;
}

static void shifted(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t amount = ek_field(pattern, word, 'i');
    bool left = ek_field(pattern, word, 't') == 0;
    if (amount >= insn->width)
        ek_reject(insn);
    else if (!left || amount > 4)
        insn->class = EK_CLASS_alu_shift;
    else if (amount > 0)
        insn->class = EK_CLASS_alu_shift_small;
}

static void extended(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (ek_field(pattern, word, 'i') > 4)
        ek_reject(insn);
}

// Shifts by a constant are aliases of bit field moves.
static void bit_field(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t rotation = ek_field(pattern, word, 'r'), last = ek_field(pattern, word, 'l');
    if (ek_field(pattern, word, 'k') != ek_field(pattern, word, 'z') || rotation >= insn->width ||
        last >= insn->width)
        ek_reject(insn);
    else if (last == insn->width - 1u || last + 1 == rotation)
        insn->class = EK_CLASS_shift;
}

static void bits_inserted(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    bit_field(pattern, word, insn);
    if (!ek_fails(insn))
        insn->class = EK_CLASS_bits_insert;
}

static void logical_constant(const struct ek_pattern *pattern, uint32_t word,
                             struct ek_insn *insn) {
    uint32_t set = ek_field(pattern, word, 'k') << 6 | (~ek_field(pattern, word, 'l') & 63);
    if (insn->width == 32 && set & 64)
        ek_reject(insn);
    else if (set < 2) // no valid element size
        ek_reject(insn);
    else {
        uint32_t size = 64; // all ones is not encodable
        while (!(set & size))
            size >>= 1;
        if ((ek_field(pattern, word, 'l') & (size - 1)) == size - 1)
            ek_reject(insn);
    }
}

static void extracted(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (ek_field(pattern, word, 'k') != ek_field(pattern, word, 'z') ||
        ek_field(pattern, word, 'i') >= insn->width)
        ek_reject(insn);
    else if (ek_field(pattern, word, 'n') == ek_field(pattern, word, 'm'))
        insn->class = EK_CLASS_shift;
}

static void moved_wide(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (insn->width == 32 && ek_field(pattern, word, 'w') > 1)
        ek_reject(insn);
}

static struct ek_pattern patterns[] = {
    // constants
    EK_P(".ii10000 iiiiiiiiiiiiiiiiiii ddddd", move_imm, base, "Xd"),
    EK_H("zo010001 0liiiiiiiiiiiinnnnnddddd", alu, base, "Sd sn", constant),
    EK_H("zo110001 0liiiiiiiiiiiinnnnnddddd", alu, base, "Xd sn F", constant),
    EK_P("1.010001 10iiiiii..iiiinnnnnddddd", alu, mte, "Sd sn"),
    EK_H("z0110010 0krrrrrrllllll11111ddddd", move_imm, base, "Sd", logical_constant),
    EK_H("z1110010 0krrrrrrllllllnnnnnddddd", alu, base, "Xd xn F", logical_constant),
    EK_H("z..10010 0krrrrrrllllllnnnnnddddd", alu, base, "Sd xn", logical_constant),
    EK_H("z.010010 1wwiiiiiiiiiiiiiiiiddddd", move_imm, base, "Xd", moved_wide),
    EK_H("z1110010 1wwiiiiiiiiiiiiiiiiddddd", alu, base, "Xd xd", moved_wide),
    EK_H("z0110011 0krrrrrrllllllnnnnnddddd", bits, base, "Xd xd xn", bits_inserted),
    EK_H("z.010011 0krrrrrrllllllnnnnnddddd", bits, base, "Xd xn", bit_field),
    EK_H("z0010011 1k0mmmmmiiiiiinnnnnddddd", bits, base, "Xd xn xm", extracted),

    // registers
    EK_P("z0101010 000mmmmm00000011111ddddd", move, base, "Xd xm"),
    EK_H("z1101010 tt.mmmmmiiiiiinnnnnddddd", alu, base, "Xd xn xm F", shifted),
    EK_H("z..01010 tt.mmmmmiiiiiinnnnnddddd", alu, base, "Xd xn xm", shifted),
    EK_P("z..01011 110.....................", unknown, base, ""), // reserved shift type
    EK_H("z.001011 tt0mmmmmiiiiiinnnnnddddd", alu, base, "Xd xn xm", shifted),
    EK_H("z.101011 tt0mmmmmiiiiiinnnnnddddd", alu, base, "Xd xn xm F", shifted),
    EK_H("z.001011 001mmmmm...iiinnnnnddddd", alu_shift, base, "Sd sn xm", extended),
    EK_H("z.101011 001mmmmm...iiinnnnnddddd", alu_shift, base, "Xd sn xm F", extended),
    EK_P("z.011010 000mmmmm000000nnnnnddddd", alu_carry, base, "Xd xn xm f"),
    EK_P("z.111010 000mmmmm000000nnnnnddddd", alu_carry, base, "Xd xn xm f F"),
    EK_P("10111010 000iiiiii00001nnnnn0....", bits, flagm, "xn f F"),
    EK_P("00111010 000000000.0010nnnnn01101", bits, flagm, "xn f F"),
    EK_P("z.111010 010mmmmmcccc00nnnnn0iiii", select, base, "xn xm f F"),
    EK_P("z.111010 010iiiiicccc10nnnnn0iiii", select, base, "xn f F"),
    EK_P("z.011010 100mmmmmcccc0.nnnnnddddd", select, base, "Xd xn xm f"),
    EK_P("z0011010 110mmmmm00001.nnnnnddddd", div, base, "Xd xn xm"),
    EK_P("z0011010 110mmmmm0010..nnnnnddddd", shift, base, "Xd xn xm"),
    EK_P("10011010 110mmmmm010.11nnnnnddddd", crc, crc32, "Xd xn xm"),
    EK_P("00011010 110mmmmm010.0.nnnnnddddd", crc, crc32, "Xd xn xm"),
    EK_P("00011010 110mmmmm010.10nnnnnddddd", crc, crc32, "Xd xn xm"),
    EK_P("10011010 110mmmmm000000nnnnnddddd", alu, mte, "Xd sn sm"),
    EK_P("10111010 110mmmmm000000nnnnnddddd", alu, mte, "Xd sn sm F"),
    EK_P("10011010 110mmmmm000100nnnnnddddd", alu, mte, "Sd sn xm"),
    EK_P("10011010 110mmmmm000101nnnnnddddd", alu, mte, "Xd sn xm"),
    EK_P("10011010 110mmmmm001100nnnnnddddd", alu, paca, "Xd xn sm"),
    EK_P("z1011010 110000000000 0.nnnnnddddd", bits, base, "Xd xn"),
    EK_P("z1011010 110000000000 10nnnnnddddd", bits, base, "Xd xn"),
    EK_P("11011010 110000000000 11nnnnnddddd", bits, base, "Xd xn"),
    EK_P("z1011010 110000000001 0.nnnnnddddd", count, base, "Xd xn"),
    EK_P("11011010 11000001000 ...nnnnnddddd", alu, paca, "Xd xd sn"),
    EK_P("11011010 11000001001 ...11111ddddd", alu, paca, "Xd xd"),
    EK_P("11011010 11000001010 00.11111ddddd", alu, paca, "Xd xd"),
    EK_P("z0011011 000mmmmm.aaaaannnnnddddd", mul, base, "Xd xn xm +xa"),
    EK_P("10011011 .01mmmmm.aaaaannnnnddddd", mul_long, base, "Xd xn xm +xa"),
    EK_P("10011011 .10mmmmm0.....nnnnnddddd", mul_high, base, "Xd xn xm"),
};

const struct ek_table ek_a64_integer = EK_TABLE(patterns);
