// Basic blocks as executed by the emulator, and their timing on a core's pipeline.
#ifndef EK_BLOCK_H
#define EK_BLOCK_H

#include "core.h"

enum { EK_MAX_BLOCK = 512, EK_MAX_MODELS = 8, EK_NO_VTYPE = 0xffff };

// An instruction with its timing on a core.
struct ek_step {
    uint16_t latency, forward, cycles, uops;
    uint8_t takes, issue, unit;
    uint8_t memory; // EK_LOAD, EK_STORE, EK_PREFETCH
    uint8_t sources, destinations, accumulator, accumulators;
    uint8_t late; // in order: cycles by which operands other than addresses are needed later
    uint8_t base; // address register, EK_NO_REG: none
    bool write_back;
    uint16_t on, after; // rule sets
    uint32_t ports;
    uint16_t index; // in the block
    uint16_t bytes;
    const uint8_t *source, *destination;
};

// A block on one core under one vtype.
struct ek_variant {
    struct ek_variant *next;
    uint16_t vtype, vtype_after;
    uint16_t unknown, first_unknown; // instructions that are unknown or unsupported by the core
    struct ek_insn *insn;
    struct ek_step step[];
};

struct ek_block {
    uint64_t pc;
    uint32_t bytes, instructions;
    bool vectors;       // depends on vtype
    bool quiet;         // short and without stores: may be part of a spin loop
    bool pauses;        // yield, isb, pause: waits for another thread
    bool reads_counter; // a lap, if requested
    bool refused;       // ends with an instruction that the emulator lacks and a handler executes
    struct ek_insn *insn;
    uint8_t *code;
    struct ek_variant *variant[EK_MAX_MODELS];
    struct {
        int16_t from;  // for a prefetch: the access that its address is derived from; -1: none
        int32_t delta; // offset from that address
    } link[];
};

struct ek_block *ek_block_new(uint64_t pc, uint32_t instructions);

// To be called once all of `insn` is decoded, with the block's code.
void ek_block_finish(struct ek_block *block, const uint8_t *code);

struct ek_variant *ek_block_variant(struct ek_block *block, unsigned model,
                                    const struct ek_core *core, uint16_t vtype);

#endif
