// Pattern tables of A64, one file per group of encodings, and their operand syntax.
//
// Operands are words: a kind of register and the letter of its field, uppercase if it is written:
// x (31 is the zero register), s (31 is the stack pointer), v. Prefix `+`: accumulator. `f`, `F`:
// flags. Other words: `q` width of 128 bits, `e32` elements of 32 bits (default 8). Fields with
// special meaning: z (32 or 64 bits), q (64 or 128 bits), e (element size 8 << e), p (float
// element of 32 or 64 bits), y (type of a scalar float), h (scalar in a vector register).
#ifndef EK_A64_H
#define EK_A64_H

#include "pattern.h"

extern const struct ek_table ek_a64_integer, ek_a64_control, ek_a64_memory, ek_a64_float,
    ek_a64_vector, ek_a64_element, ek_a64_misc;

static inline int ek_a64_v(uint32_t field) {
    return EK_REG_FLOAT + (int)(field & 31);
}

// Reject invalid element sizes, respectively: 64 bits in a 64-bit vector register; 64 bits in any
// vector; scalars that are not 64 bits.
void ek_a64_no_lone_double(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn);
void ek_a64_up_to_words(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn);
void ek_a64_double_scalar(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn);

#endif
