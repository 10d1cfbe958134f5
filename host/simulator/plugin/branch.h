// Branch prediction: per-address counters; tables over increasingly long histories, of which the
// longest with a matching entry decides; indirect branch targets; a return stack.
#ifndef EK_BRANCH_H
#define EK_BRANCH_H

#include "core.h"

struct ek_guess {
    uint16_t tag;
    int8_t counter;
    uint8_t useful;
};

enum { EK_MAX_RETURNS = 64 };

struct ek_branch {
    const struct ek_core *core;
    uint64_t history[2]; // newest outcome in bit 0
    uint8_t *counter;
    struct ek_guess *table[EK_MAX_TABLES];
    uint32_t size; // of each table
    uint64_t *target;
    uint64_t stack[EK_MAX_RETURNS];
    uint32_t depth, random;
};

bool ek_branch_start(struct ek_branch *branch, const struct ek_core *core);

// Updates the predictor with a branch at `pc` that went to `next`; whether it was mispredicted.
bool ek_branch_run(struct ek_branch *branch, const struct ek_insn *insn, uint64_t pc,
                   uint64_t next);

#endif
