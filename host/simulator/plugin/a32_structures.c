// A32 and T32: loads and stores of vector elements and structures.
#include "a32.h"

static void address(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t index = ek_field(pattern, word, 'm');
    if (index == EK_A32_PC)
        return;
    bool by_register = index != EK_A32_SP;
    if (by_register) {
        insn->index = (uint8_t)(EK_REG_INT + index);
        ek_read(insn, insn->index);
    }
    ek_a32_write_back(insn, EK_AFTER, by_register ? 0 : insn->bytes);
}

// Accesses 64-bit registers `first`, `first + distance`, …; partial loads also read the register.
static bool transfer(struct ek_insn *insn, int first, int count, int distance, bool in_part) {
    if (first + (count - 1) * distance > 31) {
        ek_reject(insn);
        return false;
    }
    for (int i = 0; i < count; i++) {
        int number = first + i * distance;
        if (in_part || insn->memory == EK_STORE)
            ek_a32_vector(insn, ek_read, number, 64);
        if (insn->memory == EK_LOAD)
            ek_a32_vector(insn, ek_write, number, 64);
    }
    return true;
}

static int chosen(const struct ek_insn *insn, int load, int store) {
    return insn->memory == EK_LOAD ? load : store;
}

static void structure(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    // By field t: number of registers, their distance, whether elements are interleaved.
    static const uint8_t shapes[16][3] = {
        [0] = {4, 1, 1}, [1] = {4, 2, 1}, [2] = {4, 1, 0}, [3] = {4, 1, 1},
        [4] = {3, 1, 1}, [5] = {3, 2, 1}, [6] = {3, 1, 0}, [7] = {1, 1, 0},
        [8] = {2, 1, 1}, [9] = {2, 2, 1}, [10] = {2, 1, 0}};
    const uint8_t *shape = shapes[ek_field(pattern, word, 't')];
    uint16_t element = insn->element;
    if (shape[0] == 0 || (shape[2] && element == 64)) {
        ek_reject(insn);
        return;
    }
    ek_a32_access(insn, ek_field(pattern, word, 'l'), 8, shape[0], ek_field(pattern, word, 'n'));
    insn->element = element;
    insn->class =
        (uint16_t)(shape[2]        ? chosen(insn, EK_CLASS_load_struct, EK_CLASS_store_struct)
                   : shape[0] == 1 ? chosen(insn, EK_CLASS_load_v, EK_CLASS_store_v)
                                   : chosen(insn, EK_CLASS_load_v_multi, EK_CLASS_store_v_multi));
    if (transfer(insn, ek_a32_double(word, 'd'), shape[0], shape[1], false))
        address(pattern, word, insn);
}

static void lane(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t size = ek_field(pattern, word, 's'), index = ek_field(pattern, word, 'i');
    int count = (int)ek_field(pattern, word, 'c') + 1;
    bool spaced = size == 1 ? index >> 1 & 1 : size == 2 ? index >> 2 & 1 : false;
    ek_a32_access(insn, ek_field(pattern, word, 'l'), 1u << size, (unsigned)count,
                  ek_field(pattern, word, 'n'));
    insn->class = (uint16_t)chosen(insn, EK_CLASS_load_lane, EK_CLASS_store_lane);
    if (transfer(insn, ek_a32_double(word, 'd'), count, count > 1 && spaced ? 2 : 1, true))
        address(pattern, word, insn);
}

static void all_lanes(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t size = ek_field(pattern, word, 's');
    int count = (int)ek_field(pattern, word, 'c') + 1;
    bool twice = ek_field(pattern, word, 't');
    ek_a32_access(insn, true, size == 3 ? 4 : 1u << size, (unsigned)count,
                  ek_field(pattern, word, 'n'));
    insn->width = 64;
    int registers = count == 1 && twice ? 2 : count, distance = count > 1 && twice ? 2 : 1;
    if (transfer(insn, ek_a32_double(word, 'd'), registers, distance, false))
        address(pattern, word, insn);
}

static struct ek_pattern patterns[] = {
    EK_H("11110100 0.l0nnnnddddttttee..mmmm", load_struct, neon, "", structure),
    EK_H("11110100 1.10nnnndddd11ccsst.mmmm", load_dup, neon, "", all_lanes),
    EK_P("11110100 1.00........11..........", unknown, base, ""),
    EK_H("11110100 1.l0nnnnddddsscciiiimmmm", load_lane, neon, "", lane),
};

const struct ek_table ek_a32_structures = EK_TABLE(patterns);
