// A64 decoder: pattern lookup and operand interpretation.
#include "a64.h"

#include <ctype.h>

static const struct ek_table *const tables[] = {
    &ek_a64_memory, &ek_a64_integer, &ek_a64_control, &ek_a64_float,
    &ek_a64_vector, &ek_a64_element, &ek_a64_misc,
};

enum { TABLES = sizeof tables / sizeof tables[0] };

__attribute__((constructor)) static void prepare(void) {
    for (int i = 0; i < TABLES; i++)
        ek_prepare(tables[i]);
}

void ek_a64_no_lone_double(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    bool scalar = ek_field(pattern, word, 'h'), full = ek_field(pattern, word, 'q');
    if (!full && (scalar || insn->element == 64))
        ek_reject(insn);
}

void ek_a64_up_to_words(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    ek_a64_no_lone_double(pattern, word, insn);
    if (insn->element == 64)
        ek_reject(insn);
}

void ek_a64_double_scalar(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    ek_a64_no_lone_double(pattern, word, insn);
    if (ek_field(pattern, word, 'h') && insn->element != 64)
        ek_reject(insn);
}

static void float_type(struct ek_insn *insn, uint32_t type) {
    static const uint8_t bits[] = {32, 64, 0, 16};
    insn->element = insn->width = bits[type];
    if (type == 2)
        ek_reject(insn);
    if (type == 3 && insn->feature == EK_FEATURE_base)
        insn->feature = EK_FEATURE_asimdhp;
}

static void widths(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (ek_has_field(pattern, 'z'))
        insn->width = insn->element = ek_field(pattern, word, 'z') ? 64 : 32;
    if (ek_has_field(pattern, 'q'))
        insn->width = ek_field(pattern, word, 'q') ? 128 : 64;
    if (ek_has_field(pattern, 'e'))
        insn->element = (uint16_t)(8 << ek_field(pattern, word, 'e'));
    if (ek_has_field(pattern, 'p'))
        insn->element = ek_field(pattern, word, 'p') ? 64 : 32;
    if (insn->feature == EK_FEATURE_asimdhp)
        insn->element = 16;
    if (ek_has_field(pattern, 'y'))
        float_type(insn, ek_field(pattern, word, 'y'));
    if (ek_field(pattern, word, 'h'))
        insn->width = insn->element;
}

static int register_of(char kind, uint32_t number) {
    if (kind == 'v')
        return ek_a64_v(number);
    return kind == 'x' && number == 31 ? EK_NO_REG : EK_REG_INT + (int)number;
}

// Interprets one word of the operands; returns the rest of the text.
static const char *operand(const char *text, const struct ek_pattern *pattern, uint32_t word,
                           struct ek_insn *insn) {
    bool accumulates = *text == '+';
    text += accumulates;
    char kind = *text++, small = (char)tolower(kind);
    if (small == 'f') {
        (kind == 'F' ? ek_write : ek_read)(insn, EK_REG_FLAGS);
    } else if (kind == 'q') {
        insn->width = 128;
    } else if (kind == 'e') {
        for (insn->element = 0; isdigit((unsigned char)*text); text++)
            insn->element = (uint16_t)(insn->element * 10 + *text - '0');
    } else {
        int reg = register_of(small, ek_field(pattern, word, *text++));
        if (reg == EK_NO_REG)
            return text;
        (accumulates ? ek_accumulate : kind != small ? ek_write : ek_read)(insn, reg);
    }
    return text;
}

int ek_decode_a64(const uint8_t *code, size_t bytes, uint64_t pc, struct ek_insn *out) {
    if (bytes < 4)
        return 0;
    uint32_t word = code[0] | code[1] << 8 | code[2] << 16 | (uint32_t)code[3] << 24;
    ek_clear(out, 4);
    out->target = pc; // hooks of direct branches add to it
    const struct ek_pattern *pattern = NULL;
    for (int i = 0; i < TABLES && !pattern; i++)
        pattern = ek_find(tables[i], word);
    if (pattern) {
        out->class = pattern->class;
        out->feature = pattern->feature;
        widths(pattern, word, out);
        for (const char *text = pattern->operands; *text && !ek_fails(out);)
            text = *text == ' ' ? text + 1 : operand(text, pattern, word, out);
        if (pattern->hook && !ek_fails(out))
            pattern->hook(pattern, word, out);
        if (out->width == 0 && !ek_fails(out))
            out->width = 64;
        if (out->element == 0 && !ek_fails(out))
            out->element = out->width > 64 || ek_has_field(pattern, 'q') ? 8 : out->width;
    }
    if (!out->branch || (out->branch & EK_INDIRECT))
        out->target = 0;
    return 4;
}
