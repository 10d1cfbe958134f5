// Blocks of instructions as the emulator runs them, and as a core's pipeline sees them.
#ifndef EK_BLOCK_H
#define EK_BLOCK_H

#include "core.h"

enum { EK_MAX_BLOCK = 512, EK_MAX_MODELS = 8, EK_NO_VTYPE = 0xffff };

// An instruction with a core's timing.
struct ek_step {
    uint16_t latency, forward, cycles, uops;
    uint8_t takes, issue, unit;
    uint8_t memory; // EK_LOAD, EK_STORE, EK_PREFETCH
    uint8_t sources, destinations, accumulator, accumulators;
    uint8_t late; // in order: operands other than addresses are needed this much later
    uint8_t base; // register of the address, EK_NO_REG: none
    bool write_back;
    uint16_t on, after; // sets of rules
    uint32_t ports;
    uint16_t index; // in the block
    uint16_t bytes;
    const uint8_t *source, *destination;
};

// A block on one core, under one vtype.
struct ek_variant {
    struct ek_variant *next;
    uint16_t vtype, vtype_after;
    uint16_t unknown, first_unknown; // instructions that are not known, or that the core lacks
    struct ek_insn *insn;
    struct ek_step step[];
};

struct ek_block {
    uint64_t pc;
    uint32_t bytes, instructions;
    bool vectors;       // depends on vtype
    bool quiet;         // short, and changes no memory: it may be part of a loop that waits
    bool pauses;        // yield, isb, pause: it waits for another thread
    bool reads_counter; // a lap, if asked for
    struct ek_insn *insn;
    uint8_t *code;
    struct ek_variant *variant[EK_MAX_MODELS];
    struct {
        int16_t from;  // of a prefetch: the instruction that tells its address; -1: none
        int32_t delta; // from that address
    } link[];
};

struct ek_block *ek_block_new(uint64_t pc, uint32_t instructions);

// To be called when all of `insn` is decoded, with the block's code.
void ek_block_finish(struct ek_block *block, const uint8_t *code);

struct ek_variant *ek_block_variant(struct ek_block *block, unsigned model,
                                    const struct ek_core *core, uint16_t vtype);

#endif
