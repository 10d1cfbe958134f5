// T32: 32-bit loads and stores.
#include "a32.h"

static uint32_t get(const struct ek_pattern *pattern, uint32_t word, char letter) {
    return ek_field(pattern, word, letter);
}

// Sets size and direction; byte and halfword loads to the program counter are hints.
static bool begin(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t size = get(pattern, word, 's'), number = get(pattern, word, 't');
    bool load = get(pattern, word, 'l'), is_signed = get(pattern, word, 'x');
    bool hint = load && number == EK_A32_PC && size < 2;
    if (size == 3 || (is_signed && (size == 2 || !load))) {
        ek_reject(insn);
        return false;
    }
    insn->class = hint ? EK_CLASS_prefetch : load ? EK_CLASS_load : EK_CLASS_store;
    uint32_t base = ek_has_field(pattern, 'n') ? get(pattern, word, 'n') : EK_A32_PC;
    ek_a32_access(insn, load, hint ? 0 : 1u << size, 1, base);
    if (hint) {
        insn->memory = EK_PREFETCH;
        insn->width = insn->element = 32;
    } else {
        ek_a32_transfer(insn, number, load);
    }
    return true;
}

static void upwards(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (begin(pattern, word, insn))
        insn->offset = (int32_t)get(pattern, word, 'i');
}

static void literal(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (!begin(pattern, word, insn))
        return;
    int32_t distance = (int32_t)get(pattern, word, 'i');
    insn->offset = get(pattern, word, 'u') ? distance : -distance;
}

// An 8-bit offset, positive or negative, with optional write-back.
static void near(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    bool before = get(pattern, word, 'p'), updates = get(pattern, word, 'w');
    int32_t distance = (int32_t)get(pattern, word, 'i');
    if (!get(pattern, word, 'u'))
        distance = -distance;
    if (!before && !updates) {
        ek_reject(insn);
        return;
    }
    if (!begin(pattern, word, insn))
        return;
    insn->offset = before ? distance : 0;
    if (updates && insn->class != EK_CLASS_prefetch)
        ek_a32_write_back(insn, before ? EK_BEFORE : EK_AFTER, distance);
}

static void by_register(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (!begin(pattern, word, insn))
        return;
    insn->index = (uint8_t)(EK_REG_INT + get(pattern, word, 'm'));
    insn->index_shift = (uint8_t)get(pattern, word, 'i');
    ek_read(insn, insn->index);
}

static void pair(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    bool load = get(pattern, word, 'l'), before = get(pattern, word, 'p');
    int distance = (int)get(pattern, word, 'i') * 4;
    if (!get(pattern, word, 'u'))
        distance = -distance;
    insn->class = load ? EK_CLASS_load_pair : EK_CLASS_store_pair;
    ek_a32_access(insn, load, 4, 2, get(pattern, word, 'n'));
    ek_a32_integer(insn, get(pattern, word, 't'), load);
    ek_a32_integer(insn, get(pattern, word, 'v'), load);
    insn->offset = before ? distance : 0;
    if (get(pattern, word, 'w') || !before)
        ek_a32_write_back(insn, before ? EK_BEFORE : EK_AFTER, distance);
}

static void several(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    bool load = get(pattern, word, 'l'), down = get(pattern, word, 'd');
    uint32_t list = get(pattern, word, 'r');
    int count = __builtin_popcount(list), bytes = count * 4;
    if (count < 2) {
        ek_reject(insn);
        return;
    }
    insn->class = load ? (count == 2 ? EK_CLASS_load_pair : EK_CLASS_load_multiple)
                       : (count == 2 ? EK_CLASS_store_pair : EK_CLASS_store_multiple);
    ek_a32_access(insn, load, 4, (unsigned)count, get(pattern, word, 'n'));
    insn->offset = down ? -bytes : 0;
    for (uint32_t reg = 0; reg < 16; reg++)
        if (list >> reg & 1)
            ek_a32_transfer(insn, reg, load);
    if (get(pattern, word, 'w'))
        ek_a32_write_back(insn, down ? EK_BEFORE : EK_AFTER, down ? -bytes : bytes);
}

static void exclusive(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    bool load = get(pattern, word, 'l'), two = ek_has_field(pattern, 'v');
    unsigned bytes = ek_has_field(pattern, 's') ? 1u << get(pattern, word, 's') : 4;
    ek_a32_access(insn, load, bytes, two ? 2 : 1, get(pattern, word, 'n'));
    insn->offset = (int32_t)get(pattern, word, 'i') * 4;
    ek_a32_integer(insn, get(pattern, word, 't'), load);
    if (two)
        ek_a32_integer(insn, get(pattern, word, 'v'), load);
    if (!load)
        ek_a32_integer(insn, get(pattern, word, 'd'), true);
}

// A jump through a table of offsets.
static void table_jump(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    ek_a32_access(insn, true, get(pattern, word, 'h') ? 2 : 1, 1, get(pattern, word, 'n'));
    insn->index = (uint8_t)(EK_REG_INT + get(pattern, word, 'm'));
    insn->index_shift = (uint8_t)get(pattern, word, 'h');
    ek_read(insn, insn->index);
    insn->branch = EK_JUMP | EK_INDIRECT;
}

static struct ek_pattern patterns[] = {
    EK_H("1111100x ussl1111ttttiiiiiiiiiiii", load, base, "", literal),
    EK_H("1111100x 1sslnnnnttttiiiiiiiiiiii", load, base, "", upwards),
    EK_H("1111100x 0sslnnnntttt000000iimmmm", load, base, "", by_register),
    EK_H("1111100x 0sslnnnntttt1puwiiiiiiii", load, base, "", near),
    EK_H("11101000 010lnnnnttttddddiiiiiiii", exclusive, base, "", exclusive),
    EK_H("11101000 1101nnnn11110000000hmmmm", branch_indirect, base, "", table_jump),
    EK_H("11101000 110lnnnntttt1111010sdddd", exclusive, base, "", exclusive),
    EK_H("11101000 110lnnnnttttvvvv0111dddd", exclusive, base, "", exclusive),
    EK_P("11101000 .10.....................", unknown, base, ""),
    EK_H("1110100p u1wlnnnnttttvvvviiiiiiii", load_pair, base, "", pair),
    EK_H("11101000 10wlnnnnrrrrrrrrrrrrrrrr", load_multiple, base, "", several),
    EK_H("1110100d 00wlnnnnrrrrrrrrrrrrrrrr", load_multiple, base, "", several),
};

const struct ek_table ek_t32_memory = EK_TABLE(patterns);
