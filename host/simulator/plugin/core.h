// A core's parameters; their meaning is documented in kb/targets/core.py.
#ifndef EK_CORE_H
#define EK_CORE_H

#include "insn.h"

enum { EK_MAX_UNITS = 32, EK_MAX_PORTS = 32, EK_MAX_RULES = 16, EK_MAX_TABLES = 8 };
enum { EK_MAX_LIMITS = 8 };
enum { EK_WIDTHS = 2, EK_ELEMENTS = 4 }; // 64 and 128 bits; 8, 16, 32 and 64 bits
enum { EK_ISSUE_ANY, EK_ISSUE_FIRST, EK_ISSUE_LAST, EK_ISSUE_ALONE };

// What cycles are attributed to. Units follow the last.
enum {
    EK_BOUND_ISSUE,
    EK_BOUND_LATENCY,
    EK_BOUND_L1,
    EK_BOUND_L2,
    EK_BOUND_L3,
    EK_BOUND_DRAM,
    EK_BOUND_TLB,
    EK_BOUND_STORES,
    EK_BOUND_BRANCH,
    EK_BOUND_FETCH,
    EK_BOUND_WAIT,
    EK_BOUND_UNIT,
    EK_BOUNDS = EK_BOUND_UNIT + EK_MAX_UNITS,
};

struct ek_op {
    uint16_t latency, forward, cycles;
    uint8_t uops, takes, issue, unit;
    uint16_t on, after; // rule sets
};

struct ek_shape {
    uint32_t bytes, ways, latency, random, per_core, line, out;
};

struct ek_unit {
    char name[24];
    uint32_t ports; // a set
    uint32_t queue;
};

struct ek_limit { // at most `uops` micro-operations per cycle are dispatched to these units
    uint32_t units, uops;
};

struct ek_core {
    char name[32];
    bool out_of_order;
    uint32_t vector_bits, datapath_bits, misses;
    struct {
        uint32_t width, fetch, taken, mispredict, address, store_data, branch_data;
        uint32_t window, retire, depth, loads, stores, write_back;
    } issue;
    struct {
        uint32_t load_bytes, store_bytes;
    } ports;
    struct {
        uint32_t entries, second, ways, penalty, walk;
    } tlb;
    struct {
        uint32_t streams, distance, second, confirm, page, stores, apart;
    } prefetch;
    struct {
        uint32_t buffer, drain, stream, beyond, gather, miss;
    } stores;
    struct {
        uint32_t entries, targets, indirect, returns, tables, history[EK_MAX_TABLES];
    } branch;
    struct {
        uint32_t latency, core_line, line, write_line, turn; // cycles; 1/256 cycles per line
    } dram;
    struct ek_shape l1i, l1d, l2, l3;
    uint32_t units, rules, limits;
    struct ek_limit limit[EK_MAX_LIMITS];
    struct ek_unit unit[EK_MAX_UNITS];
    uint32_t rule_distance[EK_MAX_RULES];
    struct ek_op op[EK_CLASS_COUNT][EK_WIDTHS][EK_ELEMENTS];
    bool feature[EK_FEATURE_COUNT];
};

// Reads a description. Returns false with a message in `error` if it is invalid.
bool ek_core_read(const char *path, struct ek_core *core, char *error, size_t size);

// The timing of an instruction; `width` and `element` in bits.
const struct ek_op *ek_core_op(const struct ek_core *core, int class, unsigned width,
                               unsigned element);

#endif
