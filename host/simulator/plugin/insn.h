// A decoded instruction, independent of the instruction set, and the decoders.
#ifndef EK_INSN_H
#define EK_INSN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "classes.h"

// Register numbers. Whatever never causes a dependency has none: zero registers, the program
// counter, rounding modes.
enum {
    EK_REG_INT = 0,       // x0..x30, sp = 31 (A64); r0..r14 (A32); x1..x31 (RV64)
    EK_REG_FLOAT = 32,    // v0..v31 (A64), s0..s31, where d0..d15 are pairs (A32), f0..f31 (RV64)
    EK_REG_VECTOR = 64,   // d16..d31 (A32), v0..v31 (RV64)
    EK_REG_FLAGS = 96,    // NZCV
    EK_REG_FP_FLAGS = 97, // VFP comparison flags (A32)
    EK_REG_GE = 98,       // GE flags of parallel addition (A32)
    EK_REG_VL = 99,       // vl and vtype (RV64)
    EK_REG_COUNT = 100,
    EK_NO_REG = 255,
};

enum { EK_LOAD = 1, EK_STORE = 2, EK_PREFETCH = 4 }; // kinds of access: a set
enum { EK_BEFORE = 1, EK_AFTER = 2 };                // write-back
enum { EK_CONDITIONAL = 1, EK_INDIRECT = 2, EK_CALL = 4, EK_RETURN = 8, EK_JUMP = 16 }; // branches

enum { EK_MAX_SOURCES = 40, EK_MAX_DESTINATIONS = 36 };

// How the registers of a RISC-V vector instruction follow from LMUL and SEW, which are machine
// state: see ek_rv64_resolve.
struct ek_group {
    uint8_t reg;    // first register, numbered as in `source`
    uint8_t scale;  // elements have 8/scale of SEW: 8 = SEW, 4 = double, 16 = half; 0: none
    uint8_t bits;   // or a fixed width (indices, elements of loads); 0: by scale
    uint8_t fields; // consecutive groups (segment loads), otherwise 1
    bool written;   // else read
    bool single;    // one register regardless of LMUL: masks, scalars of reductions
    bool added;     // the accumulator
};

enum { EK_MAX_GROUPS = 4 };

struct ek_insn {
    uint16_t class;   // enum ek_class
    uint8_t length;   // bytes of the instruction
    uint8_t feature;  // enum ek_feature: required of the core
    uint16_t width;   // bits of one operand: 32, 64, 128; RV64 vectors: 0 until resolved
    uint16_t element; // bits of one element; the widest if operands differ

    uint8_t sources, destinations; // counts; registers are listed once, the accumulator separately
    uint8_t source[EK_MAX_SOURCES], destination[EK_MAX_DESTINATIONS];
    uint8_t accumulator;  // index in `source` of the operand added last; EK_NO_REG: none
    uint8_t accumulators; // number of sources from there (A32: quad registers are 2 or 4)

    uint8_t memory;      // set of EK_LOAD, EK_STORE, EK_PREFETCH
    uint8_t registers;   // loads and stores: number of registers; table lookups: of table registers
    uint16_t bytes;      // of the access; 0: follows from vl
    uint8_t base, index; // of the address; EK_NO_REG: none (base: relative to pc)
    uint8_t index_shift; // left shift of the index
    uint8_t write_back;  // EK_BEFORE or EK_AFTER the access, or 0: `base` does not change
    int32_t offset;      // address = base + offset (+ index << index_shift), EK_AFTER: base
    int32_t step;        // base += step (+ index); without memory: applies to the destination
    bool predicated;     // executes depending on flags (A32, T32), not a branch
    bool reads_counter;  // cntvct_el0, rdtime, rdcycle

    uint8_t branch;  // set of EK_CONDITIONAL …; 0: not a branch
    uint64_t target; // of a direct branch

    // RV64 vectors
    bool sets_vtype; // v_setvl with a known vtype, given below; else it is in a register
    uint16_t vtype;  // as encoded in the instruction
    int16_t avl;     // v_setvl: constant 0..31; -1 register; -2 maximum; -3 unchanged
    uint8_t groups;  // number of groups
    struct ek_group group[EK_MAX_GROUPS];
};

// Each decodes one instruction at `code`, with `bytes` readable, and returns its length, or 0 if
// `bytes` are too few. Unknown instructions have class `unknown` and a valid length.
int ek_decode_a64(const uint8_t *code, size_t bytes, uint64_t pc, struct ek_insn *out);
int ek_decode_rv64(const uint8_t *code, size_t bytes, uint64_t pc, struct ek_insn *out);
int ek_decode_a32(const uint8_t *code, size_t bytes, uint64_t pc, struct ek_insn *out);
// `it` is the state of the IT block, initially 0: pass it from one instruction to the next.
int ek_decode_t32(const uint8_t *code, size_t bytes, uint64_t pc, uint8_t *it, struct ek_insn *out);
// Whether code is T32 rather than A32, which is ambiguous for blocks of 4-byte instructions. The
// code must consist of complete instructions.
bool ek_is_t32(const uint8_t *code, size_t bytes);

// Completes `insn` according to vtype: width (LMUL x VLEN), element, all registers of groups.
// `vlen`: bits of a vector register. Call it once per decoded `insn`. Returns false if vtype is
// invalid, or reserved for this instruction.
bool ek_rv64_resolve(struct ek_insn *insn, uint16_t vtype, unsigned vlen);

const char *ek_class_name(int class);     // "unknown" for invalid numbers
int ek_class_like(int class);             // fallback class for cores without own figures
const char *ek_feature_name(int feature); // "base" for invalid numbers

#endif
