// RV64 decoder: pattern lookup and operand interpretation.
#include "rv64.h"

#include <ctype.h>

static const struct ek_table *const tables[] = {
    &ek_rv64_integer, &ek_rv64_float, &ek_rv64_vmemory, &ek_rv64_compressed,
    &ek_rv64_opi,     &ek_rv64_opm,   &ek_rv64_opf,     &ek_rv64_matrix};

__attribute__((constructor)) static void prepare(void) {
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        ek_prepare(tables[i]);
}

void ek_rv64_access(struct ek_insn *insn, int memory, unsigned bytes, uint32_t base, int offset) {
    insn->memory = (uint8_t)memory;
    insn->bytes = (uint16_t)bytes;
    insn->registers = 1;
    insn->width = insn->element = (uint16_t)(bytes * 8);
    insn->offset = offset;
    if (ek_rv64_x(base) != EK_NO_REG) {
        insn->base = (uint8_t)ek_rv64_x(base);
        ek_read(insn, insn->base);
    }
}

struct ek_group *ek_rv64_group(struct ek_insn *insn, uint32_t number, int scale, bool written) {
    int reg = EK_REG_VECTOR + (int)number;
    (written ? ek_write : ek_read)(insn, reg);
    struct ek_group *group = &insn->group[insn->groups++];
    *group = (struct ek_group){
        .reg = (uint8_t)reg, .scale = (uint8_t)scale, .fields = 1, .written = written};
    group->single = scale == 0;
    return group;
}

static void accumulator_group(struct ek_insn *insn, uint32_t number, int scale) {
    int sources = insn->sources;
    struct ek_group *group = ek_rv64_group(insn, number, scale, false);
    insn->sources = (uint8_t)sources;
    ek_accumulate(insn, group->reg);
    group->added = true;
}

static void float_type(struct ek_insn *insn, uint32_t type) {
    static const uint8_t bits[] = {32, 64, 16, 0};
    static const uint8_t features[] = {EK_FEATURE_f, EK_FEATURE_d, EK_FEATURE_zfh, 0};
    insn->width = insn->element = bits[type];
    if (type == 3)
        ek_reject(insn);
    else if (insn->feature != EK_FEATURE_zfhmin)
        insn->feature = features[type];
}

static int scale_of(char suffix) {
    switch (suffix) {
    case 'w':
        return 4;
    case 'n':
        return 16;
    case 'q':
        return 32;
    case 'e':
        return 64;
    case 'm':
        return 0;
    default:
        return 8;
    }
}

static const char *vector(const char *text, uint32_t number, bool written, bool accumulates,
                          struct ek_insn *insn) {
    int scale = scale_of(*text);
    text += scale != 8;
    if (accumulates)
        accumulator_group(insn, number, scale);
    else
        ek_rv64_group(insn, number, scale, written);
    return text;
}

static void scalar(char kind, uint32_t number, bool written, bool accumulates,
                   struct ek_insn *insn) {
    int reg = kind == 'x'   ? ek_rv64_x(number)
              : kind == 'c' ? ek_rv64_x(number + 8)
              : kind == 'g' ? EK_REG_FLOAT + (int)number + 8
                            : EK_REG_FLOAT + (int)number;
    if (reg != EK_NO_REG)
        (accumulates ? ek_accumulate : written ? ek_write : ek_read)(insn, reg);
}

// Interprets one word of the operands; returns the rest of the text.
static const char *operand(const char *text, const struct ek_pattern *pattern, uint32_t word,
                           struct ek_insn *insn) {
    static const char kinds[] = "vvvcxfx"; // by funct3; c: constant
    bool accumulates = *text == '+';
    text += accumulates;
    if (*text == 'L') {
        ek_read(insn, EK_REG_VL);
        return text + 1;
    }
    if (*text == '3') { // 32
        insn->width = insn->element = 32;
        return text + 2;
    }
    char kind = (char)tolower((unsigned char)*text);
    bool written = *text != kind;
    uint32_t number = ek_field(pattern, word, text[1]);
    text += 2;
    if (kind == 'o') {
        kind = kinds[ek_bits(word, 14, 12)];
        if (kind == 'c')
            return text;
    }
    if (kind == 'v')
        return vector(text, number, written, accumulates, insn);
    scalar(kind, number, written, accumulates, insn);
    return text;
}

// Masked-out elements keep their previous values; a merge takes them from another operand.
static void masked(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (!ek_has_field(pattern, 'k') || ek_field(pattern, word, 'k'))
        return;
    ek_read(insn, EK_REG_VECTOR);
    for (int i = 0, groups = insn->groups; i < groups; i++) {
        struct ek_group group = insn->group[i];
        if (group.written && insn->groups < EK_MAX_GROUPS && !insn->accumulators &&
            insn->class != EK_CLASS_v_select) {
            group.written = false;
            insn->group[insn->groups++] = group;
            ek_read(insn, group.reg);
        }
    }
}

static void interpret(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    insn->class = pattern->class;
    insn->feature = pattern->feature;
    if (ek_has_field(pattern, 'y'))
        float_type(insn, ek_field(pattern, word, 'y'));
    for (const char *text = pattern->operands; *text && !ek_fails(insn);)
        text = *text == ' ' ? text + 1 : operand(text, pattern, word, insn);
    if (pattern->hook && !ek_fails(insn))
        pattern->hook(pattern, word, insn);
    if (ek_fails(insn))
        return;
    masked(pattern, word, insn);
    if (insn->groups == 0 && insn->width == 0)
        insn->width = insn->element = 64;
}

static const struct ek_pattern *find(uint32_t word) {
    static const struct ek_table *const by_form[] = {&ek_rv64_opi, &ek_rv64_opf,    &ek_rv64_opm,
                                                     &ek_rv64_opi, &ek_rv64_opi,    &ek_rv64_opf,
                                                     &ek_rv64_opm, &ek_rv64_vmemory};
    if ((word & 3) != 3)
        return ek_find(&ek_rv64_compressed, word);
    if ((word & 127) == 0x2b)
        return ek_find(&ek_rv64_matrix, word);
    if ((word & 127) == 0x57)
        return ek_find(by_form[ek_bits(word, 14, 12)], word);
    const struct ek_pattern *pattern = ek_find(&ek_rv64_integer, word);
    if (!pattern)
        pattern = ek_find(&ek_rv64_float, word);
    return pattern ? pattern : ek_find(&ek_rv64_vmemory, word);
}

int ek_decode_rv64(const uint8_t *code, size_t bytes, uint64_t pc, struct ek_insn *out) {
    if (bytes < 2)
        return 0;
    int length = (code[0] & 3) == 3 ? 4 : 2;
    if (bytes < (size_t)length)
        return 0;
    uint32_t word = code[0] | (uint32_t)code[1] << 8;
    if (length == 4)
        word |= (uint32_t)code[2] << 16 | (uint32_t)code[3] << 24;
    ek_clear(out, length);
    out->target = pc; // hooks of direct branches add to it
    const struct ek_pattern *pattern = find(word);
    if (pattern)
        interpret(pattern, word, out);
    if (!out->branch || (out->branch & EK_INDIRECT))
        out->target = 0;
    return length;
}
