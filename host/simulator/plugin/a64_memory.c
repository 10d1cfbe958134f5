// A64: loads and stores.
#include "a64.h"

static uint32_t get(const struct ek_pattern *pattern, uint32_t word, char letter) {
    return ek_field(pattern, word, letter);
}

static void transfer(struct ek_insn *insn, int reg, bool load) {
    if (reg != EK_NO_REG)
        (load ? ek_write : ek_read)(insn, reg);
}

static int register_of(uint32_t number, bool vector) {
    if (vector)
        return ek_a64_v(number);
    return number == 31 ? EK_NO_REG : EK_REG_INT + (int)number;
}

static void address(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    insn->base = (uint8_t)(EK_REG_INT + get(pattern, word, 'n'));
    ek_read(insn, insn->base);
}

static void write_back(struct ek_insn *insn, int when, int step) {
    insn->write_back = (uint8_t)when;
    insn->step = step;
    ek_write(insn, insn->base);
}

static void accesses(struct ek_insn *insn, bool load, unsigned bytes, unsigned registers) {
    insn->memory = load ? EK_LOAD : EK_STORE;
    insn->bytes = (uint16_t)(bytes * registers);
    insn->registers = (uint8_t)registers;
    insn->width = insn->element = (uint16_t)(bytes * 8);
}

// Sets size and direction of single-register loads and stores; false for invalid encodings.
static bool sized(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t size = get(pattern, word, 's'), op = get(pattern, word, 'o');
    bool vector = get(pattern, word, 'v'), load = vector ? op & 1 : op > 0;
    unsigned bytes = vector ? 1u << ((op >> 1) * 4 + size) : 1u << size;
    if (bytes > 16 || (!vector && (op == 2 || op == 3) && size + op > 4)) {
        ek_reject(insn);
        return false;
    }
    insn->class = vector ? (load ? EK_CLASS_load_v : EK_CLASS_store_v)
                         : (load ? EK_CLASS_load : EK_CLASS_store);
    accesses(insn, load, bytes, 1);
    transfer(insn, register_of(get(pattern, word, 't'), vector), load);
    address(pattern, word, insn);
    return true;
}

static void scaled(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (sized(pattern, word, insn))
        insn->offset = (int32_t)get(pattern, word, 'i') * insn->bytes;
}

static void unscaled(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (sized(pattern, word, insn))
        insn->offset = (int32_t)ek_signed_field(pattern, word, 'i');
}

static void indexed_before(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    unscaled(pattern, word, insn);
    if (!ek_fails(insn))
        write_back(insn, EK_BEFORE, insn->offset);
}

static void indexed_after(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    unscaled(pattern, word, insn);
    if (ek_fails(insn))
        return;
    write_back(insn, EK_AFTER, insn->offset);
    insn->offset = 0;
}

static void index_of(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    int reg = register_of(get(pattern, word, 'm'), false);
    if (reg == EK_NO_REG)
        return;
    insn->index = (uint8_t)reg;
    ek_read(insn, reg);
}

static unsigned log2_of(unsigned value) {
    return (unsigned)__builtin_ctz(value);
}

static void by_register(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (!sized(pattern, word, insn))
        return;
    index_of(pattern, word, insn);
    if (get(pattern, word, 'k'))
        insn->index_shift = (uint8_t)log2_of(insn->bytes);
}

static void prefetched(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    insn->memory = EK_PREFETCH;
    if (!ek_has_field(pattern, 'n')) // relative to the program counter
        return;
    address(pattern, word, insn);
    if (ek_has_field(pattern, 'm')) {
        index_of(pattern, word, insn);
        insn->index_shift = get(pattern, word, 'k') ? 3 : 0;
    } else if (ek_field_bits(pattern, 'i') == 12) {
        insn->offset = (int32_t)get(pattern, word, 'i') * 8;
    } else {
        insn->offset = (int32_t)ek_signed_field(pattern, word, 'i');
    }
}

// PC-relative literal loads: size by field o, for vectors 4 << o.
static void literal(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    bool vector = get(pattern, word, 'v');
    uint32_t op = get(pattern, word, 'o');
    accesses(insn, true, vector ? 4u << op : op == 1 ? 8 : 4, 1);
    transfer(insn, register_of(get(pattern, word, 't'), vector), true);
    insn->offset = (int32_t)ek_signed_field(pattern, word, 'i') * 4;
}

static void pair(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t op = get(pattern, word, 'o'), mode = get(pattern, word, 'w');
    bool vector = get(pattern, word, 'v'), load = get(pattern, word, 'l');
    if (op == 3 || (!vector && op == 1 && (!load || mode == 0))) {
        ek_reject(insn);
        return;
    }
    insn->class = vector ? (load ? EK_CLASS_load_v_pair : EK_CLASS_store_v_pair)
                         : (load ? EK_CLASS_load_pair : EK_CLASS_store_pair);
    unsigned bytes = vector ? 4u << op : op == 2 ? 8 : 4;
    accesses(insn, load, bytes, 2);
    transfer(insn, register_of(get(pattern, word, 't'), vector), load);
    transfer(insn, register_of(get(pattern, word, 'u'), vector), load);
    address(pattern, word, insn);
    int distance = (int)ek_signed_field(pattern, word, 'i') * (int)bytes;
    if (mode != 1)
        insn->offset = distance;
    if (mode == 1 || mode == 3)
        write_back(insn, mode == 1 ? EK_AFTER : EK_BEFORE, distance);
}

// Exclusive and ordered accesses, the latter with or without an offset.
static void ordered(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    bool load =
        ek_has_field(pattern, 'l') ? get(pattern, word, 'l') : insn->class == EK_CLASS_load_acquire;
    bool two = ek_has_field(pattern, 'u');
    accesses(insn, load, 1u << get(pattern, word, 's'), two ? 2 : 1);
    transfer(insn, register_of(get(pattern, word, 't'), false), load);
    if (two)
        transfer(insn, register_of(get(pattern, word, 'u'), false), load);
    address(pattern, word, insn);
    if (ek_has_field(pattern, 'i'))
        insn->offset = (int32_t)ek_signed_field(pattern, word, 'i');
}

// Exclusive stores write their status to a register.
static void exclusive(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    ordered(pattern, word, insn);
    int status = register_of(get(pattern, word, 'd'), false);
    if (!get(pattern, word, 'l') && status != EK_NO_REG)
        ek_write(insn, status);
}

static void exclusive_pair(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    exclusive(pattern, word, insn);
    unsigned bytes = get(pattern, word, 'k') ? 8 : 4;
    accesses(insn, get(pattern, word, 'l'), bytes, 2);
}

static void atomic(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    accesses(insn, true, 1u << get(pattern, word, 's'), 1);
    insn->memory = EK_LOAD | EK_STORE;
    address(pattern, word, insn);
}

static void compare_pair(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t compared = get(pattern, word, 'd'), stored = get(pattern, word, 't');
    if ((compared | stored) & 1) {
        ek_reject(insn);
        return;
    }
    accesses(insn, true, get(pattern, word, 'k') ? 8 : 4, 2);
    insn->memory = EK_LOAD | EK_STORE;
    for (uint32_t i = 0; i < 2; i++) {
        transfer(insn, register_of(compared + i, false), false);
        transfer(insn, register_of(compared + i, false), true);
        transfer(insn, register_of(stored + i, false), false);
    }
    address(pattern, word, insn);
}

static void authenticated(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    accesses(insn, true, 8, 1);
    address(pattern, word, insn);
    insn->offset = (int32_t)ek_signed_field(pattern, word, 'i') * 8;
    if (get(pattern, word, 'w'))
        write_back(insn, EK_BEFORE, insn->offset);
}

static void tagged_pair(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t mode = get(pattern, word, 'w');
    if (mode == 0) {
        ek_reject(insn);
        return;
    }
    accesses(insn, false, 8, 2);
    transfer(insn, register_of(get(pattern, word, 't'), false), false);
    transfer(insn, register_of(get(pattern, word, 'u'), false), false);
    address(pattern, word, insn);
    int distance = (int)ek_signed_field(pattern, word, 'i') * 16;
    insn->offset = mode == 1 ? 0 : distance;
    if (mode != 2)
        write_back(insn, mode == 1 ? EK_AFTER : EK_BEFORE, distance);
}

static void tagged(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    accesses(insn, false, 16, 1);
    address(pattern, word, insn);
    int distance = (int)ek_signed_field(pattern, word, 'i') * 16;
    uint32_t mode = get(pattern, word, 'w');
    insn->offset = mode == 1 ? 0 : distance;
    if (mode == 1 || mode == 3)
        write_back(insn, mode == 1 ? EK_AFTER : EK_BEFORE, distance);
}

static void after_by_register(const struct ek_pattern *pattern, uint32_t word,
                              struct ek_insn *insn) {
    if (!ek_has_field(pattern, 'm'))
        return;
    int reg = register_of(get(pattern, word, 'm'), false);
    if (reg != EK_NO_REG) {
        insn->index = (uint8_t)reg;
        ek_read(insn, reg);
    }
    write_back(insn, EK_AFTER, reg == EK_NO_REG ? insn->bytes : 0);
}

// Complete registers: consecutive (ld1) or structures (ld2 .. ld4).
static void structures(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    static const uint8_t registers[16] = {
        [0] = 4, [2] = 4, [4] = 3, [6] = 3, [7] = 1, [8] = 2, [10] = 2};
    uint32_t op = get(pattern, word, 'o'), count = registers[op];
    bool load = get(pattern, word, 'l'), interleaved = op == 0 || op == 4 || op == 8;
    uint16_t element = insn->element, width = insn->width;
    if (count == 0 || (interleaved && element == 64 && width == 64)) {
        ek_reject(insn);
        return;
    }
    accesses(insn, load, width / 8u, count);
    insn->element = element;
    if (interleaved)
        insn->class = load ? EK_CLASS_load_struct : EK_CLASS_store_struct;
    else if (count == 1)
        insn->class = load ? EK_CLASS_load_v : EK_CLASS_store_v;
    else
        insn->class = load ? EK_CLASS_load_v_multi : EK_CLASS_store_v_multi;
    for (uint32_t i = 0; i < count; i++)
        transfer(insn, ek_a64_v(get(pattern, word, 't') + i), load);
    address(pattern, word, insn);
    after_by_register(pattern, word, insn);
}

// One lane of each register, or one element replicated to all lanes.
static void lanes(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t op = get(pattern, word, 'o'), size = get(pattern, word, 'k');
    uint32_t count = ((op & 1) << 1 | get(pattern, word, 'r')) + 1, scale = op >> 1;
    bool load = get(pattern, word, 'l'), all = scale == 3;
    uint16_t width = insn->width;
    if (scale == 2 && size & 1)
        scale = 3;
    uint32_t low = get(pattern, word, 's');
    bool valid = all            ? load && !low
                 : op >> 1 == 1 ? !(size & 1)
                 : op >> 1 == 2 ? size == 0 || (size == 1 && !low)
                                : true;
    if (!valid) {
        ek_reject(insn);
        return;
    }
    accesses(insn, load, 1u << (all ? size : scale), count);
    insn->width = all ? width : insn->element;
    insn->class = all ? EK_CLASS_load_dup : load ? EK_CLASS_load_lane : EK_CLASS_store_lane;
    for (uint32_t i = 0; i < count; i++) {
        int reg = ek_a64_v(get(pattern, word, 't') + i);
        if (!all)
            ek_read(insn, reg); // the other lanes are preserved
        if (load)
            ek_write(insn, reg);
    }
    address(pattern, word, insn);
    after_by_register(pattern, word, insn);
}

static struct ek_pattern patterns[] = {
    // single register
    EK_H("11111001 10iiiiiiiiiiiinnnnn.....", prefetch, base, "", prefetched),
    EK_H("ss111v01 ooiiiiiiiiiiiinnnnnttttt", load, base, "", scaled),
    EK_H("11111000 100iiiiiiiii00nnnnn.....", prefetch, base, "", prefetched),
    EK_H("ss111v00 oo0iiiiiiiii00nnnnnttttt", load, base, "", unscaled),
    EK_H("ss111v00 oo0iiiiiiiii01nnnnnttttt", load, base, "", indexed_after),
    EK_P("11111000 100.........10..........", unknown, base, ""),
    EK_H("ss111000 oo0iiiiiiiii10nnnnnttttt", load, base, "", unscaled),
    EK_H("ss111v00 oo0iiiiiiiii11nnnnnttttt", load, base, "", indexed_before),
    EK_H("11111000 101mmmmm.1.k10nnnnn.....", prefetch, base, "", prefetched),
    EK_H("ss111v00 oo1mmmmm.1.k10nnnnnttttt", load, base, "", by_register),
    EK_H("11111000 ..1iiiiiiiiiw1nnnnnttttt", load, paca, "Xt", authenticated),
    EK_H("11011000 iiiiiiiiiiiiiiiiiii.....", prefetch, base, "", prefetched),
    EK_H("oo011000 iiiiiiiiiiiiiiiiiiittttt", load, base, "", literal),
    EK_P("11011100 ........................", unknown, base, ""),
    EK_H("oo011v00 iiiiiiiiiiiiiiiiiiittttt", load_v, base, "", literal),
    EK_H("0110100w w0iiiiiiiuuuuunnnnnttttt", store_pair, mte, "", tagged_pair),
    EK_H("oo101v0w wliiiiiiiuuuuunnnnnttttt", load_pair, base, "", pair),

    // exclusive, ordered, atomic
    EK_H("0k001000 0.1ddddd.11111nnnnnttttt", atomic, atomics, "", compare_pair),
    EK_H("ss001000 1.1ddddd.11111nnnnnttttt", atomic, atomics, "xd Xd xt", atomic),
    EK_H("1k001000 0l1ddddd.uuuuunnnnnttttt", exclusive, base, "", exclusive_pair),
    EK_H("ss001000 0l0ddddd......nnnnnttttt", exclusive, base, "", exclusive),
    EK_H("ss001000 100...........nnnnnttttt", store_release, base, "", ordered),
    EK_H("ss001000 110...........nnnnnttttt", load_acquire, base, "", ordered),
    EK_H("ss111000 10111111110000nnnnnttttt", load_acquire, lrcpc, "", ordered),
    EK_H("ss011001 000iiiiiiiii00nnnnnttttt", store_release, ilrcpc, "", ordered),
    EK_H("ss011001 010iiiiiiiii00nnnnnttttt", load_acquire, ilrcpc, "", ordered),
    EK_P("11011001 1.0.........00..........", unknown, base, ""),
    EK_H("ss011001 100iiiiiiiii00nnnnnttttt", load_acquire, ilrcpc, "", ordered),
    EK_P("10011001 110.........00..........", unknown, base, ""),
    EK_H("ss011001 110iiiiiiiii00nnnnnttttt", load_acquire, ilrcpc, "", ordered),
    EK_H("ss111000 ..1ddddd0...00nnnnnttttt", atomic, atomics, "xd Xt", atomic),
    EK_H("ss111000 ..1ddddd100000nnnnnttttt", atomic, atomics, "xd Xt", atomic),
    EK_H("11011001 011iiiiiiiii00nnnnnttttt", load, mte, "xt Xt", tagged),
    EK_P("11011001 ..1.........00..........", unknown, base, ""),
    EK_H("11011001 ..1iiiiiiiiiwwnnnnnttttt", store, mte, "st", tagged),

    // structures of vector registers
    EK_H("0q001100 0l000000ooooeennnnnttttt", load_struct, base, "", structures),
    EK_H("0q001100 1l0mmmmmooooeennnnnttttt", load_struct, base, "", structures),
    EK_H("0q001101 0lr00000oooskknnnnnttttt", load_lane, base, "", lanes),
    EK_H("0q001101 1lrmmmmmoooskknnnnnttttt", load_lane, base, "", lanes),
};

const struct ek_table ek_a64_memory = EK_TABLE(patterns);
