// Pattern tables of A32 and T32, and their operand syntax.
//
// Operands are words: a kind of register and the letter of its field, uppercase if it is written.
// r: integer (reading r15 is ignored; writing it is a jump), l: r0..r7. Vector registers use the
// fixed fields d, n, m: s (32 bits), d (64), q (128), v (d or q by bit 6), w (d or q by bit 24), t
// (s or d by bit 8), x (scalar by field e). Prefix `+`: accumulator. `f` `F` flags, `p` `P` VFP
// flags, `g` `G` GE flags (parallel addition), `K` flags unless in an IT block, `e32` elements of
// 32 bits. Fields with special meaning: k (sets flags), e (element size 8 << e), z (64-bit
// floats).
#ifndef EK_A32_H
#define EK_A32_H

#include "pattern.h"

extern const struct ek_table ek_a32_core, ek_a32_always, ek_a32_hints, ek_a32_memory, ek_a32_vfp,
    ek_a32_neon, ek_a32_structures, ek_t32_core, ek_t32_memory, ek_t16;

enum { EK_A32_SP = 13, EK_A32_LR = 14, EK_A32_PC = 15 };

// Reads, writes or accumulates a vector register of 32, 64 or 128 `bits`.
void ek_a32_vector(struct ek_insn *insn, void (*use)(struct ek_insn *, int), int number, int bits);
void ek_a32_integer(struct ek_insn *insn, uint32_t number, bool written);
void ek_a32_jump(struct ek_insn *insn, bool returns); // to a register
// Number of the 64-bit register in field d, n or m.
int ek_a32_double(uint32_t word, char place);

void ek_a32_access(struct ek_insn *insn, bool load, unsigned bytes, unsigned registers,
                   uint32_t base);
void ek_a32_transfer(struct ek_insn *insn, uint32_t number, bool load); // of one register
enum ek_class ek_a32_class_of_several(bool load, int count);
void ek_a32_write_back(struct ek_insn *insn, int when, int step);

// The second operand of an arithmetic instruction, shifted or rotated by a constant.
void ek_a32_shifted(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn);

#endif
