// A32 and T32 decoders: pattern lookup, operand interpretation, conditions.
#include "a32.h"

#include <ctype.h>

static const struct ek_table *const tables[] = {
    &ek_a32_core, &ek_a32_always,     &ek_a32_memory, &ek_a32_hints,  &ek_a32_vfp,
    &ek_a32_neon, &ek_a32_structures, &ek_t32_core,   &ek_t32_memory, &ek_t16};

__attribute__((constructor)) static void prepare(void) {
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        ek_prepare(tables[i]);
}

void ek_a32_vector(struct ek_insn *insn, void (*use)(struct ek_insn *, int), int number, int bits) {
    if (bits == 128) {
        ek_a32_vector(insn, use, number, 64);
        ek_a32_vector(insn, use, number + 1, 64);
    } else if (bits == 32) {
        use(insn, EK_REG_FLOAT + number);
    } else if (number < 16) {
        use(insn, EK_REG_FLOAT + 2 * number);
        use(insn, EK_REG_FLOAT + 2 * number + 1);
    } else {
        use(insn, EK_REG_VECTOR + (number - 16) % 16);
    }
}

void ek_a32_jump(struct ek_insn *insn, bool returns) {
    insn->branch = EK_JUMP | EK_INDIRECT;
    if (returns)
        insn->branch |= EK_RETURN;
    if (!insn->memory)
        insn->class = returns ? EK_CLASS_ret : EK_CLASS_branch_indirect;
}

void ek_a32_integer(struct ek_insn *insn, uint32_t number, bool written) {
    if (number != EK_A32_PC)
        (written ? ek_write : ek_read)(insn, EK_REG_INT + (int)number);
    else if (written)
        ek_a32_jump(insn, insn->class == EK_CLASS_move && insn->source[0] == EK_A32_LR);
}

int ek_a32_double(uint32_t word, char place) {
    switch (place) {
    case 'd':
        return (int)(ek_bits(word, 22, 22) << 4 | ek_bits(word, 15, 12));
    case 'n':
        return (int)(ek_bits(word, 7, 7) << 4 | ek_bits(word, 19, 16));
    default:
        return (int)(ek_bits(word, 5, 5) << 4 | ek_bits(word, 3, 0));
    }
}

void ek_a32_access(struct ek_insn *insn, bool load, unsigned bytes, unsigned registers,
                   uint32_t base) {
    insn->memory = load ? EK_LOAD : EK_STORE;
    insn->bytes = (uint16_t)(bytes * registers);
    insn->registers = (uint8_t)registers;
    insn->width = insn->element = (uint16_t)(bytes * 8);
    if (base == EK_A32_PC)
        return;
    insn->base = (uint8_t)(EK_REG_INT + base);
    ek_read(insn, insn->base);
}

void ek_a32_transfer(struct ek_insn *insn, uint32_t number, bool load) {
    bool returns = insn->base == EK_A32_SP;
    ek_a32_integer(insn, number, load);
    if (load && number == EK_A32_PC)
        ek_a32_jump(insn, returns);
}

enum ek_class ek_a32_class_of_several(bool load, int count) {
    if (count == 1)
        return load ? EK_CLASS_load : EK_CLASS_store;
    if (count == 2)
        return load ? EK_CLASS_load_pair : EK_CLASS_store_pair;
    return load ? EK_CLASS_load_multiple : EK_CLASS_store_multiple;
}

void ek_a32_shifted(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t amount = ek_field(pattern, word, 'i'), type = ek_field(pattern, word, 't');
    if (type == 3 && amount == 0)
        ek_read(insn, EK_REG_FLAGS); // rotated through carry
    if (type == 0 && amount == 0)
        return;
    if (insn->class == EK_CLASS_move)
        insn->class = EK_CLASS_shift;
    else if (insn->class == EK_CLASS_alu)
        insn->class = type == 0 && amount <= 4 ? EK_CLASS_alu_shift_small : EK_CLASS_alu_shift;
}

void ek_a32_write_back(struct ek_insn *insn, int when, int step) {
    if (insn->base == EK_NO_REG) {
        ek_reject(insn);
        return;
    }
    insn->write_back = (uint8_t)when;
    insn->step = step;
    ek_write(insn, insn->base);
}

static void vector(char kind, char place, uint32_t word, bool written, bool accumulates,
                   struct ek_insn *insn) {
    int number = ek_a32_double(word, place), bits = 64;
    void (*use)(struct ek_insn *, int) = accumulates ? ek_accumulate : written ? ek_write : ek_read;
    if (kind == 'x') { // a lane of d0..d7 for 16 bits, of d0..d15 for 32
        ek_a32_vector(insn, use, number & (insn->element == 16 ? 7 : 15), 64);
        return;
    }
    if (kind == 't')
        kind = word >> 8 & 1 ? 'd' : 's';
    if (kind == 'q' || (kind == 'v' && word >> 6 & 1) || (kind == 'w' && word >> 24 & 1))
        bits = 128;
    if (kind == 's') {
        bits = 32;
        number = (number & 15) << 1 | number >> 4;
    }
    if (bits == 128 && number & 1)
        ek_reject(insn);
    else
        ek_a32_vector(insn, use, number, bits);
}

static const char *element(const char *text, struct ek_insn *insn) {
    for (insn->element = 0; isdigit((unsigned char)*text); text++)
        insn->element = (uint16_t)(insn->element * 10 + *text - '0');
    return text;
}

// Interprets flag operands; false if `kind` is something else.
static bool flags(char kind, struct ek_insn *insn) {
    static const char kinds[] = "fpg";
    static const uint8_t regs[] = {EK_REG_FLAGS, EK_REG_FP_FLAGS, EK_REG_GE};
    for (int i = 0; kinds[i]; i++)
        if (tolower((unsigned char)kind) == kinds[i]) {
            (kind == kinds[i] ? ek_read : ek_write)(insn, regs[i]);
            return true;
        }
    if (kind == 'K' && !insn->predicated)
        ek_write(insn, EK_REG_FLAGS);
    return kind == 'K';
}

// Interprets one word of the operands; returns the rest of the text.
static const char *operand(const char *text, const struct ek_pattern *pattern, uint32_t word,
                           struct ek_insn *insn) {
    bool accumulates = *text == '+';
    text += accumulates;
    if (flags(*text, insn))
        return text + 1;
    if (*text == 'e')
        return element(text + 1, insn);
    char kind = (char)tolower((unsigned char)*text);
    bool written = *text != kind;
    if (kind != 'r' && kind != 'l') {
        vector(kind, text[1], word, written, accumulates, insn);
        return text + 2;
    }
    uint32_t number = ek_field(pattern, word, text[1]);
    if (accumulates && number != EK_A32_PC)
        ek_accumulate(insn, EK_REG_INT + (int)number);
    else
        ek_a32_integer(insn, number, written);
    return text + 2;
}

static void widths(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (ek_has_field(pattern, 'e'))
        insn->element = (uint16_t)(8 << ek_field(pattern, word, 'e'));
    if (ek_has_field(pattern, 'z'))
        insn->width = insn->element = ek_field(pattern, word, 'z') ? 64 : 32;
}

// Sets a width that nothing else set, to that of the longest operand.
static void default_widths(struct ek_insn *insn, const char *operands, uint32_t word) {
    bool starts = true;
    for (const char *text = operands; *text; text++) {
        char kind = (char)tolower((unsigned char)*text);
        int bits = !starts       ? 0
                   : kind == 'v' ? 64 << (word >> 6 & 1)
                   : kind == 'w' ? 64 << (word >> 24 & 1)
                   : kind == 'q' ? 128
                   : kind == 'd' ? 64
                                 : 32;
        if (bits > insn->width)
            insn->width = (uint16_t)bits;
        starts = *text == ' ' || *text == '+';
    }
    if (insn->width == 0)
        insn->width = 32;
    if (insn->element == 0)
        insn->element = insn->width > 32 ? 8 : 32;
}

static void interpret(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    insn->class = pattern->class;
    insn->feature = pattern->feature;
    widths(pattern, word, insn);
    for (const char *text = pattern->operands; *text && !ek_fails(insn);)
        text = *text == ' ' ? text + 1 : operand(text, pattern, word, insn);
    if (ek_field(pattern, word, 'k'))
        ek_write(insn, EK_REG_FLAGS);
    if (pattern->hook && !ek_fails(insn))
        pattern->hook(pattern, word, insn);
    if (!ek_fails(insn) && !insn->memory)
        default_widths(insn, pattern->operands, word);
    if (!insn->branch || (insn->branch & EK_INDIRECT))
        insn->target = 0;
}

static void conditional(struct ek_insn *insn) {
    if (ek_fails(insn))
        return;
    ek_read(insn, EK_REG_FLAGS);
    if (insn->branch)
        insn->branch |= EK_CONDITIONAL;
    if (insn->class == EK_CLASS_branch)
        insn->class = EK_CLASS_branch_cond;
    insn->predicated = !insn->branch;
}

static void decode(const struct ek_table *const *searched, size_t count, uint32_t word,
                   struct ek_insn *out) {
    const struct ek_pattern *pattern = NULL;
    for (size_t i = 0; i < count && !pattern; i++)
        pattern = ek_find(searched[i], word);
    if (pattern)
        interpret(pattern, word, out);
}

int ek_decode_a32(const uint8_t *code, size_t bytes, uint64_t pc, struct ek_insn *out) {
    static const struct ek_table *const searched[] = {&ek_a32_memory, &ek_a32_core, &ek_a32_vfp};
    static const struct ek_table *const always[] = {&ek_a32_neon, &ek_a32_structures, &ek_a32_hints,
                                                    &ek_a32_always};
    if (bytes < 4)
        return 0;
    uint32_t word = code[0] | code[1] << 8 | code[2] << 16 | (uint32_t)code[3] << 24;
    uint32_t condition = word >> 28;
    ek_clear(out, 4);
    out->target = pc + 8; // hooks of direct branches add to it
    if (condition == 15)
        decode(always, 4, word, out);
    else
        decode(searched, 3, word, out);
    if (condition < 14)
        conditional(out);
    return 4;
}

// Vector instructions are encoded as in A32, except for the highest byte.
static uint32_t as_a32(uint32_t word) {
    if ((word & 0xef000000) == 0xef000000)
        return 0xf2000000 | (word >> 28 & 1) << 24 | (word & 0xffffff);
    return 0xf4000000 | (word & 0xffffff);
}

static void decode_wide(uint32_t word, struct ek_insn *out) {
    static const struct ek_table *const vectors[] = {&ek_a32_neon, &ek_a32_structures};
    static const struct ek_table *const others[] = {&ek_t32_memory, &ek_t32_core, &ek_a32_vfp};
    bool vector = (word & 0xef000000) == 0xef000000 || (word & 0xff100000) == 0xf9000000;
    if (vector)
        decode(vectors, 2, as_a32(word), out);
    else // the highest bits of a VFP instruction are the condition in A32
        decode(others, word >> 28 == 14 ? 3 : 2, word, out);
}

// Advances the state of an IT block: three fixed condition bits, then one bit per instruction.
static void advance(uint8_t *it) {
    *it = *it & 7 ? (uint8_t)((*it & 0xe0) | (*it << 1 & 0x1f)) : 0;
}

int ek_decode_t32(const uint8_t *code, size_t bytes, uint64_t pc, uint8_t *it,
                  struct ek_insn *out) {
    static const struct ek_table *const narrow[] = {&ek_t16};
    if (bytes < 2)
        return 0;
    uint32_t word = code[0] | (uint32_t)code[1] << 8;
    int length = word >> 11 >= 0x1d ? 4 : 2;
    if (bytes < (size_t)length)
        return 0;
    ek_clear(out, length);
    out->target = pc + 4;
    bool in_block = *it & 15, always = *it >> 5 == 7;
    out->predicated = in_block; // flag-setting instructions depend on it
    if (length == 4)
        decode_wide(word << 16 | code[2] | (uint32_t)code[3] << 8, out);
    else
        decode(narrow, 1, word, out);
    out->predicated = false;
    if (in_block) {
        if (!always)
            conditional(out);
        advance(it);
    } else if (length == 2 && (word & 0xff00) == 0xbf00 && word & 15) {
        *it = word & 0xff;
    }
    return length;
}

// Scores evidence against A32. Most A32 instructions are unconditional or the branch at the end;
// the first halves of T32 branches and calls are rare in A32.
static unsigned speaks_against_a32(const uint8_t *code, bool last) {
    struct ek_insn insn;
    ek_decode_a32(code, 4, 0, &insn);
    bool conditional = code[3] >> 4 < 14 && !insn.branch, exchanges = code[3] >> 1 == 0xfa >> 1;
    bool half_branch = code[1] >> 3 == 0xf0 >> 3 && code[3] >> 7;
    bool impossible = ek_fails(&insn) || (insn.branch && !last);
    return impossible ? 2 : conditional || exchanges || half_branch;
}

bool ek_is_t32(const uint8_t *code, size_t bytes) {
    struct ek_insn insn;
    size_t against_a32 = 0, unknown_t32 = 0;
    uint8_t it = 0;
    if (bytes % 4)
        return true;
    for (size_t at = 0; at < bytes; at += 4)
        against_a32 += speaks_against_a32(code + at, at + 4 == bytes);
    for (size_t at = 0; at < bytes; at += insn.length) {
        if (!ek_decode_t32(code + at, bytes - at, 0, &it, &insn))
            return false;
        unknown_t32 += ek_fails(&insn);
    }
    return unknown_t32 * 4 < against_a32 && against_a32 * 8 > bytes;
}
