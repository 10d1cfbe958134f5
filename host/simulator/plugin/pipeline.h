// Pipelines: time the instructions of a block and attribute their delays.
#ifndef EK_PIPELINE_H
#define EK_PIPELINE_H

#include "block.h"
#include "branch.h"
#include "memory.h"

enum { EK_BOOKED = 4096, EK_MAX_WINDOW = 1024, EK_MAX_QUEUE = 128, EK_STORED = 64 };

// Memory addresses of one execution of a block; 0 for instructions without an access.
struct ek_run {
    uint64_t address[EK_MAX_BLOCK];
    uint16_t first[EK_MAX_BLOCK], count[EK_MAX_BLOCK]; // ranges in `more`: scattered accesses
    uint64_t more[4 * EK_MAX_BLOCK];
    unsigned mores;
};

struct ek_queue { // entries become free in program order
    uint64_t free[EK_MAX_QUEUE];
    uint32_t next, size;
};

struct ek_pool { // entries become free in any order: a heap with the earliest at its top
    uint64_t free[EK_MAX_QUEUE];
    uint32_t size;
};

struct ek_out_of_order {
    uint64_t dispatch, retired, fetch; // cycles; no dispatch before `fetch`
    uint64_t ran;                      // when the last instruction executed
    uint32_t dispatched, retires;      // in that cycle
    uint32_t limited[EK_MAX_LIMITS];   // dispatched in that cycle
    uint8_t fetch_bound;
    uint64_t window[EK_MAX_WINDOW];
    uint32_t next;
    struct ek_pool queue[EK_MAX_UNITS];
    struct ek_queue loads, stores;
    uint64_t booked_at[EK_BOOKED];
    uint32_t booked[EK_BOOKED];                       // ports
    uint64_t stored_at[EK_STORED], stored[EK_STORED]; // store-to-load forwarding
};

struct ek_in_order {
    uint32_t slots;
    bool closed; // the cycle's issue group takes no more
    uint64_t port[EK_MAX_PORTS];
    uint64_t rule[EK_MAX_RULES][2]; // bit n: an instruction on that side was issued n cycles ago
};

// A core with its thread.
struct ek_cpu {
    const struct ek_core *core;
    unsigned model;
    uint64_t now; // in order: cycle of issue; out of order: of retirement
    uint64_t instructions;
    uint64_t bound[EK_BOUNDS];
    uint64_t ready[EK_REG_COUNT], forward[EK_REG_COUNT];
    uint8_t why[EK_REG_COUNT];
    uint16_t vtype;
    struct ek_memory memory;
    struct ek_branch branch;
    struct ek_in_order in;
    struct ek_out_of_order out;
};

bool ek_cpu_start(struct ek_cpu *cpu, struct ek_shared *shared, unsigned model);

// Times a block that was executed and continued at `next`.
const struct ek_variant *ek_cpu_run(struct ek_cpu *cpu, struct ek_block *block, struct ek_run *run,
                                    uint64_t next);
// Likewise, but only updates the state of caches and predictors.
void ek_cpu_warm(struct ek_cpu *cpu, struct ek_block *block, struct ek_run *run, uint64_t next);
// Idles until `time`.
void ek_cpu_wait(struct ek_cpu *cpu, uint64_t time);

void ek_in_order_block(struct ek_cpu *cpu, const struct ek_block *block,
                       const struct ek_variant *variant, struct ek_run *run);
void ek_in_order_jump(struct ek_cpu *cpu, bool mispredicted);
void ek_out_of_order_block(struct ek_cpu *cpu, const struct ek_block *block,
                           const struct ek_variant *variant, struct ek_run *run);
void ek_out_of_order_jump(struct ek_cpu *cpu, bool mispredicted);

// The address of a step's access, 0 if there was none.
uint64_t ek_address(const struct ek_block *block, const struct ek_run *run, unsigned index);

#endif
