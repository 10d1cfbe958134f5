// RV64: 16-bit instructions.
#include "rv64.h"

// A scrambled constant; `places` has the position of each bit of field i, highest bit first.
static int32_t constant(const struct ek_pattern *pattern, uint32_t word, const uint8_t *places) {
    uint32_t field = ek_field(pattern, word, 'i'), value = 0;
    int bits = ek_field_bits(pattern, 'i');
    for (int i = 0; i < bits; i++)
        value |= (field >> (bits - 1 - i) & 1) << places[i];
    return (int32_t)value;
}

static bool is_float(const struct ek_insn *insn) {
    return insn->class == EK_CLASS_load_v || insn->class == EK_CLASS_store_v;
}

static bool is_store(const struct ek_insn *insn) {
    return insn->class == EK_CLASS_store || insn->class == EK_CLASS_store_v;
}

static void access(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn,
                   unsigned bytes, const uint8_t *places) {
    uint32_t base = ek_has_field(pattern, 's') ? ek_field(pattern, word, 's') + 8 : EK_RV64_SP;
    if (is_float(insn))
        insn->feature = EK_FEATURE_d;
    ek_rv64_access(insn, is_store(insn) ? EK_STORE : EK_LOAD, bytes, base,
                   constant(pattern, word, places));
}

static void word_access(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    static const uint8_t places[] = {5, 4, 3, 2, 6};
    access(pattern, word, insn, 4, places);
}

static void double_access(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    static const uint8_t places[] = {5, 4, 3, 7, 6};
    access(pattern, word, insn, 8, places);
}

static void word_from_stack(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    static const uint8_t places[] = {5, 4, 3, 2, 7, 6};
    if (!is_float(insn) && !is_store(insn) && ek_field(pattern, word, 'd') == 0)
        ek_reject(insn);
    else
        access(pattern, word, insn, 4, places);
}

static void double_from_stack(const struct ek_pattern *pattern, uint32_t word,
                              struct ek_insn *insn) {
    static const uint8_t places[] = {5, 4, 3, 8, 7, 6};
    if (!is_float(insn) && !is_store(insn) && ek_field(pattern, word, 'd') == 0)
        ek_reject(insn);
    else
        access(pattern, word, insn, 8, places);
}

static void jump(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    static const uint8_t places[] = {11, 4, 9, 8, 10, 6, 7, 3, 2, 1, 5};
    insn->branch = EK_JUMP;
    insn->target += (uint64_t)ek_sign_extend((uint32_t)constant(pattern, word, places), 12);
}

static void branch(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    static const uint8_t places[] = {8, 4, 3, 7, 6, 2, 1, 5};
    insn->branch = EK_JUMP | EK_CONDITIONAL;
    insn->target += (uint64_t)ek_sign_extend((uint32_t)constant(pattern, word, places), 9);
}

static void jump_to_register(const struct ek_pattern *pattern, uint32_t word,
                             struct ek_insn *insn) {
    uint32_t to = ek_field(pattern, word, 's');
    insn->branch = EK_JUMP | EK_INDIRECT;
    if (to == 0) {
        ek_reject(insn);
    } else if (insn->class == EK_CLASS_call) {
        insn->branch |= EK_CALL;
        ek_write(insn, EK_RV64_RA);
    } else if (to == 1 || to == 5) {
        insn->branch |= EK_RETURN;
        insn->class = EK_CLASS_ret;
    }
}

static void stepped(struct ek_insn *insn, uint32_t from, int32_t step) {
    insn->base = (uint8_t)from;
    insn->step = step;
}

static void added(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t reg = ek_field(pattern, word, 'd');
    if (reg == 0)
        insn->class = EK_CLASS_hint;
    else
        stepped(insn, reg, (int32_t)ek_signed_field(pattern, word, 'i'));
}

static void added_word(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (ek_field(pattern, word, 'd') == 0)
        ek_reject(insn);
}

static void stack_moved(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    static const uint8_t places[] = {9, 4, 6, 8, 7, 5};
    int64_t step = ek_sign_extend((uint32_t)constant(pattern, word, places), 10);
    ek_read(insn, EK_RV64_SP);
    ek_write(insn, EK_RV64_SP);
    stepped(insn, EK_RV64_SP, (int32_t)step);
    if (step == 0)
        ek_reject(insn);
}

static void place_on_stack(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    static const uint8_t places[] = {5, 4, 9, 8, 7, 6, 2, 3};
    ek_read(insn, EK_RV64_SP);
    stepped(insn, EK_RV64_SP, constant(pattern, word, places));
    if (insn->step == 0)
        ek_reject(insn);
}

static void not_zero(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (ek_field(pattern, word, 'i') == 0)
        ek_reject(insn);
}

static struct ek_pattern patterns[] = {
    EK_H("000iiiiiiiiddd00", alu, c, "Cd", place_on_stack),
    EK_H("001iiisssiiddd00", load_v, c, "Gd", double_access),
    EK_H("010iiisssiiddd00", load, c, "Cd", word_access),
    EK_H("011iiisssiiddd00", load, c, "Cd", double_access),
    EK_H("101iiisssiiddd00", store_v, c, "gd", double_access),
    EK_H("110iiisssiiddd00", store, c, "cd", word_access),
    EK_H("111iiisssiiddd00", store, c, "cd", double_access),

    EK_P("000.00000.....01", hint, c, ""),
    EK_H("000idddddiiiii01", alu, c, "Xd xd", added),
    EK_H("001idddddiiiii01", alu, c, "32 Xd xd", added_word),
    EK_P("010idddddiiiii01", move_imm, c, "Xd"),
    EK_H("011i00010iiiii01", alu, c, "", stack_moved),
    EK_H("011idddddiiiii01", move_imm, c, "Xd", not_zero),
    EK_P("100i0.dddiiiii01", shift, c, "Cd cd"),
    EK_P("100i10dddiiiii01", alu, c, "Cd cd"),
    EK_P("100011ddd..ttt01", alu, c, "Cd cd ct"),
    EK_P("100111ddd0.ttt01", alu, c, "32 Cd cd ct"),
    EK_H("101iiiiiiiiiii01", branch, c, "", jump),
    EK_H("110iiisssiiiii01", branch_cond, c, "cs", branch),
    EK_H("111iiisssiiiii01", branch_cond, c, "cs", branch),

    EK_P("000idddddiiiii10", shift, c, "Xd xd"),
    EK_H("001idddddiiiii10", load_v, c, "Fd", double_from_stack),
    EK_H("010idddddiiiii10", load, c, "Xd", word_from_stack),
    EK_H("011idddddiiiii10", load, c, "Xd", double_from_stack),
    EK_H("1000sssss0000010", branch_indirect, c, "xs", jump_to_register),
    EK_P("1000dddddttttt10", move, c, "Xd xt"),
    EK_P("1001000000000010", system, c, ""), // ebreak
    EK_H("1001sssss0000010", call, c, "xs", jump_to_register),
    EK_P("1001dddddttttt10", alu, c, "Xd xd xt"),
    EK_H("101iiiiiittttt10", store_v, c, "ft", double_from_stack),
    EK_H("110iiiiiittttt10", store, c, "xt", word_from_stack),
    EK_H("111iiiiiittttt10", store, c, "xt", double_from_stack),
};

const struct ek_table ek_rv64_compressed = EK_TABLE(patterns);
