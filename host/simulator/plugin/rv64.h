// Pattern tables of RV64, and their operand syntax.
//
// Operands are words: a kind of register and the letter of its field, uppercase if it is written:
// x (x0 is ignored), c (x8..x15), f, g (f8..f15), v. Prefix `+`: accumulator. Suffixes of vectors:
// `w` elements twice as wide, `n` half, `q` a quarter, `e` an eighth of SEW, `m` one register
// regardless of LMUL. `o` and a letter: vector, integer, float or constant, depending on funct3.
// Other words: `L` reads vl, `32` width of 32 bits, `r`, `a`, `p`: reads or writes ra or sp.
// Fields with special meaning: y (type of a float), k (0: masked by v0).
#ifndef EK_RV64_H
#define EK_RV64_H

#include "pattern.h"

extern const struct ek_table ek_rv64_integer, ek_rv64_float, ek_rv64_compressed, ek_rv64_opi,
    ek_rv64_opm, ek_rv64_opf, ek_rv64_matrix, ek_rv64_vmemory;

enum { EK_RV64_RA = 1, EK_RV64_SP = 2 };

static inline int ek_rv64_x(uint32_t number) {
    return number ? EK_REG_INT + (int)number : EK_NO_REG;
}

void ek_rv64_access(struct ek_insn *insn, int memory, unsigned bytes, uint32_t base, int offset);
// Adds a group of vector registers that is read or written; `scale` as in struct ek_group.
struct ek_group *ek_rv64_group(struct ek_insn *insn, uint32_t number, int scale, bool written);

#endif
