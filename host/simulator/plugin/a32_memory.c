// A32: loads and stores of integer registers, memory hints.
#include "a32.h"

static uint32_t get(const struct ek_pattern *pattern, uint32_t word, char letter) {
    return ek_field(pattern, word, letter);
}

// Offset is a constant (field i) or a register (field m); fields p and w select write-back.
static void address(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    bool before = get(pattern, word, 'p'), updates = !before || get(pattern, word, 'w');
    int distance = (int)get(pattern, word, 'i');
    if (ek_has_field(pattern, 'm')) {
        insn->index = (uint8_t)(EK_REG_INT + get(pattern, word, 'm'));
        ek_read(insn, insn->index);
        insn->index_shift = (uint8_t)(get(pattern, word, 't') == 0 ? get(pattern, word, 's') : 0);
        distance = 0;
    }
    if (!get(pattern, word, 'u'))
        distance = -distance;
    if (before)
        insn->offset = distance;
    if (updates)
        ek_a32_write_back(insn, before ? EK_BEFORE : EK_AFTER, distance);
}

static void one(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    bool load = get(pattern, word, 'l');
    insn->class = load ? EK_CLASS_load : EK_CLASS_store;
    ek_a32_access(insn, load, get(pattern, word, 'b') ? 1 : 4, 1, get(pattern, word, 'n'));
    ek_a32_transfer(insn, get(pattern, word, 'd'), load);
    address(pattern, word, insn);
}

static void short_one(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn,
                      unsigned bytes) {
    bool load = get(pattern, word, 'l');
    insn->class = load ? EK_CLASS_load : EK_CLASS_store;
    ek_a32_access(insn, load, bytes, 1, get(pattern, word, 'n'));
    ek_a32_transfer(insn, get(pattern, word, 'd'), load);
    address(pattern, word, insn);
}

static void half(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    short_one(pattern, word, insn, 2);
}

static void signed_byte(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    short_one(pattern, word, insn, 1);
}

static void pair(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    bool load = insn->class == EK_CLASS_load_pair;
    uint32_t first = get(pattern, word, 'd');
    if (first & 1) {
        ek_reject(insn);
        return;
    }
    ek_a32_access(insn, load, 4, 2, get(pattern, word, 'n'));
    ek_a32_integer(insn, first, load);
    ek_a32_integer(insn, first + 1, load);
    address(pattern, word, insn);
}

static void several(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    bool load = get(pattern, word, 'l'), up = get(pattern, word, 'u');
    uint32_t list = get(pattern, word, 'r');
    int count = __builtin_popcount(list), bytes = count * 4;
    if (count == 0) {
        ek_reject(insn);
        return;
    }
    insn->class = ek_a32_class_of_several(load, count);
    ek_a32_access(insn, load, 4, (unsigned)count, get(pattern, word, 'n'));
    bool before = get(pattern, word, 'p');
    insn->offset = up ? (before ? 4 : 0) : (before ? -bytes : 4 - bytes);
    for (uint32_t reg = 0; reg < 16; reg++)
        if (list >> reg & 1)
            ek_a32_transfer(insn, reg, load);
    if (get(pattern, word, 'w'))
        ek_a32_write_back(insn, up ? EK_AFTER : EK_BEFORE, up ? bytes : -bytes);
}

// Field h selects words, doublewords, bytes or halfwords.
static void exclusive(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn,
                      bool load) {
    static const uint8_t bytes[] = {4, 4, 1, 2};
    uint32_t size = get(pattern, word, 'h'), number = get(pattern, word, 't');
    ek_a32_access(insn, load, bytes[size], size == 1 ? 2 : 1, get(pattern, word, 'n'));
    ek_a32_integer(insn, number, load);
    if (size == 1)
        ek_a32_integer(insn, number + 1, load);
    if (!load)
        ek_a32_integer(insn, get(pattern, word, 'd'), true);
}

static void exclusive_load(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    exclusive(pattern, word, insn, true);
}

static void exclusive_store(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    exclusive(pattern, word, insn, false);
}

static void prefetched(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    ek_a32_access(insn, true, 0, 0, get(pattern, word, 'n'));
    insn->memory = EK_PREFETCH;
    insn->width = insn->element = 32;
    address(pattern, word, insn);
    insn->write_back = 0;
}

static struct ek_pattern patterns[] = {
    EK_H("....010p ubwlnnnnddddiiiiiiiiiiii", load, base, "", one),
    EK_H("....011p ubwlnnnnddddssssstt0mmmm", load, base, "", one),
    EK_H("....0001 1hh1nnnntttt111110011111", exclusive, base, "", exclusive_load),
    EK_H("....0001 1hh0nnnndddd11111001tttt", exclusive, base, "", exclusive_store),
    EK_H("....000p u1w0nnnnddddiiii1101iiii", load_pair, base, "", pair),
    EK_H("....000p u0w0nnnndddd00001101mmmm", load_pair, base, "", pair),
    EK_H("....000p u1w0nnnnddddiiii1111iiii", store_pair, base, "", pair),
    EK_H("....000p u0w0nnnndddd00001111mmmm", store_pair, base, "", pair),
    EK_H("....000p u1wlnnnnddddiiii1.11iiii", load, base, "", half),
    EK_H("....000p u0wlnnnndddd00001.11mmmm", load, base, "", half),
    EK_H("....000p u1wlnnnnddddiiii1101iiii", load, base, "", signed_byte),
    EK_H("....000p u0wlnnnndddd00001101mmmm", load, base, "", signed_byte),
    EK_H("....100p u0wlnnnnrrrrrrrrrrrrrrrr", load_multiple, base, "", several),
};

static struct ek_pattern hints[] = {
    EK_H("1111010p u.01nnnn1111iiiiiiiiiiii", prefetch, base, "", prefetched),
    EK_H("1111011p u.01nnnn1111ssssstt0mmmm", prefetch, base, "", prefetched),
};

const struct ek_table ek_a32_memory = EK_TABLE(patterns);
const struct ek_table ek_a32_hints = EK_TABLE(hints);
