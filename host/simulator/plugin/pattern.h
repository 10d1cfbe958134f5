// Encodings as printed in the manuals: a string of 32 (or 16) bits from the highest down, in which
// 0 and 1 are fixed, letters are fields, dots are ignored, and blanks are for readability. The
// first matching pattern in a table determines the instruction.
#ifndef EK_PATTERN_H
#define EK_PATTERN_H

#include "insn.h"

struct ek_pattern;
// Handles what the operand syntax cannot express; may set the class to unknown.
typedef void ek_hook(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn);

struct ek_pattern {
    const char *bits;
    uint8_t class, feature;
    const char *operands; // words that the instruction set's decoder understands
    ek_hook *hook;        // called after the operands; or NULL
    uint32_t mask, value; // from `bits`: see ek_prepare
};

#define EK_P(bits, class, feature, operands)                                                       \
    {bits, EK_CLASS_##class, EK_FEATURE_##feature, operands, NULL, 0, 0}
#define EK_H(bits, class, feature, operands, hook)                                                 \
    {bits, EK_CLASS_##class, EK_FEATURE_##feature, operands, hook, 0, 0}

struct ek_table {
    struct ek_pattern *patterns;
    size_t count;
};

#define EK_TABLE(patterns) {patterns, sizeof(patterns) / sizeof(patterns[0])}

// Computes masks and values; must precede the first lookup.
void ek_prepare(const struct ek_table *table);
const struct ek_pattern *ek_find(const struct ek_table *table, uint32_t word);

// The value of field `letter`, whose bits need not be adjacent; 0 if there is no such field.
uint32_t ek_field(const struct ek_pattern *pattern, uint32_t word, char letter);
int64_t ek_signed_field(const struct ek_pattern *pattern, uint32_t word, char letter);
int ek_field_bits(const struct ek_pattern *pattern, char letter);
static inline bool ek_has_field(const struct ek_pattern *pattern, char letter) {
    return ek_field_bits(pattern, letter) > 0;
}

static inline uint32_t ek_bits(uint32_t word, int high, int low) {
    return (word >> low) & ((2u << (high - low)) - 1);
}

int64_t ek_sign_extend(uint64_t value, int bits);

void ek_clear(struct ek_insn *insn, int length); // unknown, without reads or writes
void ek_reject(struct ek_insn *insn);            // likewise, keeping the length
void ek_read(struct ek_insn *insn, int reg);
void ek_write(struct ek_insn *insn, int reg);
void ek_accumulate(struct ek_insn *insn, int reg); // call consecutively for parts of one operand
static inline bool ek_fails(const struct ek_insn *insn) {
    return insn->class == EK_CLASS_unknown;
}

#endif
