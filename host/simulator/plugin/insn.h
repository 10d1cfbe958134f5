// One decoded instruction, the same for all instruction sets, and the decoders.
#ifndef EK_INSN_H
#define EK_INSN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "classes.h"

// Numbers of registers. What never makes an instruction wait has none: zero registers, the program
// counter, modes of rounding.
enum {
    EK_REG_INT = 0,       // x0..x30, sp = 31 (A64); r0..r14 (A32); x1..x31 (RV64)
    EK_REG_FLOAT = 32,    // v0..v31 (A64), s0..s31, where d0..d15 are pairs (A32), f0..f31 (RV64)
    EK_REG_VECTOR = 64,   // d16..d31 (A32), v0..v31 (RV64)
    EK_REG_FLAGS = 96,    // NZCV
    EK_REG_FP_FLAGS = 97, // flags of VFP's comparisons (A32)
    EK_REG_GE = 98,       // flags of parallel sums (A32)
    EK_REG_VL = 99,       // vl and vtype (RV64)
    EK_REG_COUNT = 100,
    EK_NO_REG = 255,
};

enum { EK_LOAD = 1, EK_STORE = 2, EK_PREFETCH = 4 }; // kinds of access: a set
enum { EK_BEFORE = 1, EK_AFTER = 2 };                // write-back
enum { EK_CONDITIONAL = 1, EK_INDIRECT = 2, EK_CALL = 4, EK_RETURN = 8, EK_JUMP = 16 }; // branches

enum { EK_MAX_SOURCES = 40, EK_MAX_DESTINATIONS = 36 };

// How a RISC-V vector instruction's registers follow from LMUL and SEW, which are the machine's
// state: see ek_rv64_resolve.
struct ek_group {
    uint8_t reg;    // its first register, a number as in `source`
    uint8_t scale;  // its elements are 8/scale of SEW wide: 8 = SEW, 4 = twice, 16 = half; 0: none
    uint8_t bits;   // or this many bits (indices, elements of loads); 0: by scale
    uint8_t fields; // consecutive groups (segment loads), 1 otherwise
    bool written;   // else read
    bool single;    // one register whatever LMUL says: masks, scalars of reductions
    bool added;     // the accumulator
};

enum { EK_MAX_GROUPS = 4 };

struct ek_insn {
    uint16_t class;   // enum ek_class
    uint8_t length;   // bytes of the instruction
    uint8_t feature;  // enum ek_feature: what the core must have
    uint16_t width;   // bits of one operand: 32, 64, 128; vectors of RV64: 0 until resolved
    uint16_t element; // bits of one element; the widest where operands differ

    uint8_t sources, destinations; // how many; each register once, the accumulator apart
    uint8_t source[EK_MAX_SOURCES], destination[EK_MAX_DESTINATIONS];
    uint8_t accumulator;  // index in `source` of what is added to last; EK_NO_REG: none
    uint8_t accumulators; // how many sources from there (A32: quad registers are 2 or 4)

    uint8_t memory;      // set of EK_LOAD, EK_STORE, EK_PREFETCH
    uint8_t registers;   // loads and stores: how many registers; tables: how many are looked up
    uint16_t bytes;      // of the access; 0: follows from vl
    uint8_t base, index; // of the address; EK_NO_REG: none (base: relative to pc)
    uint8_t index_shift; // the index is shifted left by this
    uint8_t write_back;  // EK_BEFORE, EK_AFTER the access, or 0: `base` does not change
    int32_t offset;      // address = base + offset (+ index << index_shift) unless EK_AFTER: base
    int32_t step;        // base becomes base + step, + index; without memory: the destination does
    bool predicated;     // done or not by the flags (A32, T32), not a branch
    bool reads_counter;  // cntvct_el0, rdtime, rdcycle

    uint8_t branch;  // set of EK_CONDITIONAL …; 0: no branch
    uint64_t target; // of a direct branch

    // RV64 vectors
    bool sets_vtype; // v_setvl whose vtype is known: below; else it is in a register
    uint16_t vtype;  // as in the instruction
    int16_t avl;     // v_setvl: 0..31 by constant; -1 a register; -2 all; -3 as it was
    uint8_t groups;  // how many
    struct ek_group group[EK_MAX_GROUPS];
};

// Each decodes one instruction at `code`, of which `bytes` can be read, and returns its length, or
// 0 if `bytes` do not hold it. What is not known has the class `unknown`, and its length.
int ek_decode_a64(const uint8_t *code, size_t bytes, uint64_t pc, struct ek_insn *out);
int ek_decode_rv64(const uint8_t *code, size_t bytes, uint64_t pc, struct ek_insn *out);
int ek_decode_a32(const uint8_t *code, size_t bytes, uint64_t pc, struct ek_insn *out);
// `it` is the state of the IT block, 0 at first: hand it on from one instruction to the next.
int ek_decode_t32(const uint8_t *code, size_t bytes, uint64_t pc, uint8_t *it, struct ek_insn *out);
// Whether code (of whole instructions, of which one may be 2 bytes long) is T32 and not A32:
// blocks of 4-byte instructions do not say it themselves.
bool ek_is_t32(const uint8_t *code, size_t bytes);

// Adds to `insn` what follows from vtype: width (LMUL x VLEN), element, all registers of groups.
// `vlen`: bits of a vector register. Once for each `insn` as it was decoded. False if vtype is
// invalid or reserved for this instruction.
bool ek_rv64_resolve(struct ek_insn *insn, uint16_t vtype, unsigned vlen);

const char *ek_class_name(int class);     // "unknown" for numbers that are none
int ek_class_like(int class);             // whose figures a core takes that has none
const char *ek_feature_name(int feature); // "base" for numbers that are none

#endif
