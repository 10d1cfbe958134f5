// Tables of RV64, and what their operands mean.
//
// Operands are words: a kind of register and the letter of its field, a capital where it is
// written: x (x0 is none), c (x8..x15), f, g (f8..f15), v. `+` before it: accumulator. After a
// vector: `w` elements twice as wide, `n` half as wide, `q` a quarter, `e` an eighth of SEW, `m`
// one register whatever LMUL says. `o` and a letter: vector, integer, float or constant, as funct3
// says. Other words: `L` reads vl, `32` a width of 32 bits, `r`, `a`, `p`: reads or writes ra or
// sp. Fields with a meaning of their own: y (type of a float), k (0: masked by v0).
#ifndef EK_RV64_H
#define EK_RV64_H

#include "pattern.h"

extern const struct ek_table ek_rv64_integer, ek_rv64_float, ek_rv64_compressed, ek_rv64_opi,
    ek_rv64_opm, ek_rv64_opf, ek_rv64_vmemory;

enum { EK_RV64_RA = 1, EK_RV64_SP = 2 };

static inline int ek_rv64_x(uint32_t number) {
    return number ? EK_REG_INT + (int)number : EK_NO_REG;
}

void ek_rv64_access(struct ek_insn *insn, int memory, unsigned bytes, uint32_t base, int offset);
// A group of vector registers that is read or written; `scale` as in struct ek_group.
struct ek_group *ek_rv64_group(struct ek_insn *insn, uint32_t number, int scale, bool written);

#endif
