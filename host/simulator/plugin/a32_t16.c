// T32: 16-bit instructions.
#include "a32.h"

static uint32_t get(const struct ek_pattern *pattern, uint32_t word, char letter) {
    return ek_field(pattern, word, letter);
}

static void shifted(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    if (get(pattern, word, 'i') == 0 && get(pattern, word, 't') == 0)
        insn->class = EK_CLASS_move;
}

// The destination becomes field n (or itself) plus or minus a constant.
static void added(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    char from = ek_has_field(pattern, 'n') ? 'n' : 'd';
    int32_t value = (int32_t)get(pattern, word, 'i');
    insn->base = (uint8_t)(EK_REG_INT + get(pattern, word, from));
    insn->step = get(pattern, word, 'o') ? -value : value;
}

static void stack_moved(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    int32_t value = (int32_t)get(pattern, word, 'i') * 4;
    ek_read(insn, EK_A32_SP);
    if (!ek_has_field(pattern, 'd'))
        ek_write(insn, EK_A32_SP);
    insn->base = EK_A32_SP;
    insn->step = get(pattern, word, 'o') ? -value : value;
}

static void indirect(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    bool calls = insn->class == EK_CLASS_call;
    ek_a32_jump(insn, !calls && get(pattern, word, 'm') == EK_A32_LR);
    if (calls) {
        insn->class = EK_CLASS_call;
        insn->branch |= EK_CALL;
        ek_write(insn, EK_REG_INT + EK_A32_LR);
    }
}

static void direct(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    insn->branch = EK_JUMP | (insn->class == EK_CLASS_branch_cond ? EK_CONDITIONAL : 0);
    insn->target += (uint64_t)(ek_signed_field(pattern, word, 'i') * 2);
}

static void compared(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    insn->branch = EK_JUMP | EK_CONDITIONAL;
    insn->target += get(pattern, word, 'i') * 2;
}

static void access(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn,
                   unsigned bytes, uint32_t base) {
    bool load = insn->class == EK_CLASS_load;
    ek_a32_access(insn, load, bytes, 1, base);
    ek_a32_integer(insn, get(pattern, word, 't'), load);
    if (ek_has_field(pattern, 'm')) {
        insn->index = (uint8_t)(EK_REG_INT + get(pattern, word, 'm'));
        ek_read(insn, insn->index);
    } else {
        insn->offset = (int32_t)(get(pattern, word, 'i') * bytes);
    }
}

static void words(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    access(pattern, word, insn, 4, get(pattern, word, 'n'));
}

static void halves(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    access(pattern, word, insn, 2, get(pattern, word, 'n'));
}

static void bytes(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    access(pattern, word, insn, 1, get(pattern, word, 'n'));
}

static void on_stack(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    access(pattern, word, insn, 4, EK_A32_SP);
}

static void literal(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    access(pattern, word, insn, 4, EK_A32_PC);
}

static void list(struct ek_insn *insn, bool load, uint32_t base, uint32_t registers) {
    int count = __builtin_popcount(registers);
    if (count == 0) {
        ek_reject(insn);
        return;
    }
    insn->class = ek_a32_class_of_several(load, count);
    ek_a32_access(insn, load, 4, (unsigned)count, base);
    for (uint32_t reg = 0; reg < 15; reg++)
        if (registers >> reg & 1)
            ek_a32_integer(insn, reg, load);
    if (registers >> EK_A32_PC)
        ek_a32_jump(insn, true);
}

static void pushed(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t link = get(pattern, word, 'm') << EK_A32_LR;
    list(insn, false, EK_A32_SP, get(pattern, word, 'r') | link);
    if (ek_fails(insn))
        return;
    insn->offset = -insn->bytes;
    ek_a32_write_back(insn, EK_BEFORE, -insn->bytes);
}

static void popped(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    uint32_t counter = get(pattern, word, 'p') << EK_A32_PC;
    list(insn, true, EK_A32_SP, get(pattern, word, 'r') | counter);
    if (!ek_fails(insn))
        ek_a32_write_back(insn, EK_AFTER, insn->bytes);
}

static void several(const struct ek_pattern *pattern, uint32_t word, struct ek_insn *insn) {
    bool load = get(pattern, word, 'l');
    uint32_t base = get(pattern, word, 'n'), registers = get(pattern, word, 'r');
    list(insn, load, base, registers);
    if (!ek_fails(insn) && !(load && registers >> base & 1))
        ek_a32_write_back(insn, EK_AFTER, insn->bytes);
}

static struct ek_pattern patterns[] = {
    EK_P("0001100m mmnnnddd", alu, base, "Rd rn rm K"),
    EK_P("0001101m mmnnnddd", alu, base, "Rd rn rm K"),
    EK_H("000111oi iinnnddd", alu, base, "Rd rn K", added),
    EK_H("000ttiii iimmmddd", shift, base, "Rd rm K", shifted),
    EK_P("00100ddd iiiiiiii", move_imm, base, "Rd K"),
    EK_P("00101nnn iiiiiiii", alu, base, "rn F"),
    EK_H("0011oddd iiiiiiii", alu, base, "Rd rd K", added),
    EK_P("01000000 0.mmmddd", alu, base, "Rd rd rm K"), // and, eor
    EK_P("01000000 1.mmmddd", shift, base, "Rd rd rm K"),
    EK_P("01000001 00mmmddd", shift, base, "Rd rd rm K"),
    EK_P("01000001 01mmmddd", alu_carry, base, "Rd rd rm f K"),
    EK_P("01000001 10mmmddd", alu_carry, base, "Rd rd rm f K"),
    EK_P("01000001 11mmmddd", shift, base, "Rd rd rm K"),
    EK_P("01000010 00mmmddd", alu, base, "rd rm F"),
    EK_P("01000010 01mmmddd", alu, base, "Rd rm K"),
    EK_P("01000010 1.mmmddd", alu, base, "rd rm F"),
    EK_P("01000011 01mmmddd", mul, base, "Rd rd rm K"),
    EK_P("01000011 11mmmddd", alu, base, "Rd rm K"),
    EK_P("01000011 .0mmmddd", alu, base, "Rd rd rm K"),
    EK_P("01000100 dmmmmddd", alu, base, "Rd rd rm"),
    EK_P("01000101 dmmmmddd", alu, base, "rd rm F"),
    EK_P("01000110 dmmmmddd", move, base, "rm Rd"),
    EK_H("01000111 0mmmm...", branch_indirect, base, "rm", indirect),
    EK_H("01000111 1mmmm...", call, base, "rm", indirect),

    EK_H("01001ttt iiiiiiii", load, base, "", literal),
    EK_H("0101000m mmnnnttt", store, base, "", words),
    EK_H("0101001m mmnnnttt", store, base, "", halves),
    EK_H("0101010m mmnnnttt", store, base, "", bytes),
    EK_H("0101011m mmnnnttt", load, base, "", bytes),
    EK_H("0101100m mmnnnttt", load, base, "", words),
    EK_H("0101.01m mmnnnttt", load, base, "", halves),
    EK_H("0101110m mmnnnttt", load, base, "", bytes),
    EK_H("0101111m mmnnnttt", load, base, "", halves),
    EK_H("01100iii iinnnttt", store, base, "", words),
    EK_H("01101iii iinnnttt", load, base, "", words),
    EK_H("01110iii iinnnttt", store, base, "", bytes),
    EK_H("01111iii iinnnttt", load, base, "", bytes),
    EK_H("10000iii iinnnttt", store, base, "", halves),
    EK_H("10001iii iinnnttt", load, base, "", halves),
    EK_H("10010ttt iiiiiiii", store, base, "", on_stack),
    EK_H("10011ttt iiiiiiii", load, base, "", on_stack),
    EK_P("10100ddd iiiiiiii", move_imm, base, "Rd"),
    EK_H("10101ddd iiiiiiii", alu, base, "Rd", stack_moved),

    EK_H("10110000 oiiiiiii", alu, base, "", stack_moved),
    EK_H("1011.0i1 iiiiinnn", branch_cond, base, "rn", compared),
    EK_P("10110010 ..mmmddd", bits, base, "Rd rm"),
    EK_H("1011010m rrrrrrrr", store_multiple, base, "", pushed),
    EK_P("10111010 10......", unknown, base, ""),
    EK_P("10111010 ..mmmddd", bits, base, "Rd rm"),
    EK_H("1011110p rrrrrrrr", load_multiple, base, "", popped),
    EK_P("10111110 ........", system, base, ""), // bkpt
    EK_P("10111111 ........", hint, base, ""),   // also it
    EK_H("1100lnnn rrrrrrrr", load_multiple, base, "", several),
    EK_P("11011110 ........", unknown, base, ""), // udf
    EK_P("11011111 ........", system, base, ""),  // svc
    EK_H("1101.... iiiiiiii", branch_cond, base, "f", direct),
    EK_H("11100iii iiiiiiii", branch, base, "", direct),
};

const struct ek_table ek_t16 = EK_TABLE(patterns);
