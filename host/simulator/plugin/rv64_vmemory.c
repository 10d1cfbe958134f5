// RV64: vector loads and stores, vl and vtype, and resolution of register groups.
#include "rv64.h"

#include <string.h>

static void set_length(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    bool by_constant = ek_has_field(pattern, 'u');
    insn->sets_vtype = ek_has_field(pattern, 'i');
    insn->vtype = (uint16_t)ek_field(pattern, word, 'i');
    uint32_t has_length = ek_field(pattern, word, 's'), has_target = ek_field(pattern, word, 'd');
    insn->avl = by_constant  ? (int16_t)ek_field(pattern, word, 'u')
                : has_length ? -1
                : has_target ? -2
                             : -3;
    if (insn->avl == -3)
        ek_read(insn, EK_REG_VL);
    ek_write(insn, EK_REG_VL);
}

// The group that is loaded or stored, with `bits` wide elements, or SEW if 0.
static void transferred(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn,
                        int bits) {
    uint32_t fields = ek_field(pattern, word, 'n') + 1;
    bool load = insn->memory == EK_LOAD;
    struct ek_group *group = ek_rv64_group(insn, ek_field(pattern, word, 'd'), 8, load);
    group->bits = (uint8_t)bits;
    group->fields = (uint8_t)fields;
    insn->registers = (uint8_t)fields;
}

static int element_bits(const struct ek_pattern *pattern, uint32_t word) {
    uint32_t width = ek_field(pattern, word, 'w');
    return width == 0 ? 8 : 8 << (width - 4);
}

static void begin(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    int memory = ek_field(pattern, word, 'l') ? EK_STORE : EK_LOAD;
    ek_rv64_access(insn, memory, 0, ek_field(pattern, word, 's'), 0);
    insn->width = insn->element = 0;
    uint32_t width = ek_field(pattern, word, 'w');
    if (width != 0 && width < 5)
        ek_reject(insn); // scalars
}

static int chosen(const struct ek_insn *insn, int load, int store) {
    return insn->memory == EK_LOAD ? load : store;
}

static void consecutive(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    begin(pattern, word, insn);
    if (ek_fails(insn))
        return;
    bool segments = ek_field(pattern, word, 'n') > 0;
    insn->class = (uint16_t)(segments ? chosen(insn, EK_CLASS_load_struct, EK_CLASS_store_struct)
                                      : chosen(insn, EK_CLASS_load_v, EK_CLASS_store_v));
    transferred(pattern, word, insn, element_bits(pattern, word));
    ek_read(insn, EK_REG_VL);
}

static void whole_registers(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t count = ek_field(pattern, word, 'n') + 1;
    begin(pattern, word, insn);
    if (ek_fails(insn))
        return;
    if (count & (count - 1)) {
        ek_reject(insn);
        return;
    }
    insn->class =
        (uint16_t)(count == 1 ? chosen(insn, EK_CLASS_load_v, EK_CLASS_store_v)
                              : chosen(insn, EK_CLASS_load_v_multi, EK_CLASS_store_v_multi));
    transferred(pattern, word, insn, element_bits(pattern, word));
    insn->group[0].single = true;
}

static void mask_bits(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    begin(pattern, word, insn);
    insn->class = (uint16_t)chosen(insn, EK_CLASS_load_v, EK_CLASS_store_v);
    transferred(pattern, word, insn, 8);
    insn->group[0].single = true;
    ek_read(insn, EK_REG_VL);
}

static void strided(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    begin(pattern, word, insn);
    if (ek_fails(insn))
        return;
    insn->class = (uint16_t)chosen(insn, EK_CLASS_v_load_strided, EK_CLASS_v_store_strided);
    int stride = ek_rv64_x(ek_field(pattern, word, 't'));
    if (stride != EK_NO_REG)
        ek_read(insn, stride);
    transferred(pattern, word, insn, element_bits(pattern, word));
    ek_read(insn, EK_REG_VL);
}

static void indexed(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    begin(pattern, word, insn);
    if (ek_fails(insn))
        return;
    insn->class = (uint16_t)chosen(insn, EK_CLASS_v_load_indexed, EK_CLASS_v_store_indexed);
    transferred(pattern, word, insn, 0);
    ek_rv64_group(insn, ek_field(pattern, word, 't'), 8, false)->bits =
        (uint8_t)element_bits(pattern, word);
    ek_read(insn, EK_REG_VL);
}

static struct ek_pattern patterns[] = {
    EK_H("0iiiiiiiiiiisssss111ddddd1010111", v_setvl, v, "Xd xs", set_length),
    EK_H("11iiiiiiiiiiuuuuu111ddddd1010111", v_setvl, v, "Xd", set_length),
    EK_H("1000000tttttsssss111ddddd1010111", v_setvl, v, "Xd xs xt", set_length),
    EK_H("nnn0001 01000 ssssswwwddddd0l00111", load_v, v, "", whole_registers),
    EK_H("0000001 01011 sssss000ddddd0l00111", load_v, v, "", mask_bits),
    EK_H("nnn000k 00000 ssssswwwddddd0l00111", load_v, v, "", consecutive),
    EK_H("nnn000k 10000 ssssswwwddddd0000111", load_v, v, "", consecutive), // fault-only-first
    EK_H("nnn010k ttttt ssssswwwddddd0l00111", load_v, v, "", strided),
    EK_H("nnn0.1k ttttt ssssswwwddddd0l00111", load_v, v, "", indexed),
};

const struct ek_table ek_rv64_vmemory = EK_TABLE(patterns);

// Eight times the number of registers that a group's elements fill; 0 if invalid.
static int group_eighths(const struct ek_group *group, int sew, int lmul_eighths) {
    if (group->single)
        return 8;
    int bits = group->bits ? group->bits : sew * 8 / group->scale;
    int eighths = lmul_eighths * bits / sew;
    bool possible = bits >= 8 && bits <= 64 && eighths >= 1 && eighths <= 64;
    return possible && (eighths < 8 ? 8 : eighths) * group->fields <= 64 ? eighths : 0;
}

static bool is_float(int class) {
    return (class >= EK_CLASS_v_fadd && class <= EK_CLASS_v_freduce_ordered);
}

static void forget_accumulator(struct ek_insn *insn) {
    uint8_t *at = &insn->source[insn->accumulator];
    insn->sources--;
    memmove(at, at + 1, (size_t)(insn->sources - insn->accumulator));
    insn->accumulators = 0;
}

// The accumulator's registers must be consecutive.
static void add_group(struct ek_insn *insn, const struct ek_group *group, int registers) {
    if (group->added)
        forget_accumulator(insn);
    for (int k = 0; k < registers && group->reg + k < EK_REG_VECTOR + 32; k++)
        (group->added ? ek_accumulate : group->written ? ek_write : ek_read)(insn, group->reg + k);
}

static unsigned resolve_group(struct ek_insn *insn, const struct ek_group *group, int sew,
                              int eighths) {
    int bits = group->single ? sew : group->bits ? group->bits : sew * 8 / group->scale;
    insn->element = (uint16_t)(bits > insn->element ? bits : insn->element);
    add_group(insn, group, (eighths < 8 ? 1 : eighths / 8) * group->fields);
    return (unsigned)(eighths * group->fields);
}

bool ek_rv64_resolve(struct ek_insn *insn, uint16_t vtype, unsigned vlen) {
    static const uint8_t lmul_eighths[] = {8, 16, 32, 64, 0, 1, 2, 4};
    int sew = 8 << (vtype >> 3 & 7), lmul = lmul_eighths[vtype & 7];
    if (sew > 64 || lmul == 0 || vtype >> 8)
        return false;
    unsigned widest = 0;
    // The accumulator comes last, because the same register may also be another operand.
    for (int last = 0; last < 2; last++)
        for (int i = 0; i < insn->groups; i++) {
            const struct ek_group *group = &insn->group[i];
            int eighths = group_eighths(group, sew, lmul);
            if (eighths == 0)
                return false;
            if (group->added != last)
                continue;
            unsigned width = resolve_group(insn, group, sew, eighths) * vlen / 8;
            widest = width > widest ? width : widest;
        }
    insn->width = (uint16_t)(widest > UINT16_MAX ? UINT16_MAX : widest);
    if (sew == 16 && is_float(insn->class))
        insn->feature = EK_FEATURE_zvfh;
    return true;
}
