#include "block.h"

#include <stdlib.h>
#include <string.h>

struct ek_block *ek_block_new(uint64_t pc, uint32_t instructions) {
    struct ek_block *block = calloc(1, sizeof *block + instructions * sizeof block->link[0]);
    if (!block || !(block->insn = calloc(instructions, sizeof *block->insn)))
        abort(); // like the emulator when out of memory
    block->pc = pc;
    block->instructions = instructions;
    return block;
}

// Symbolic register value: `plus` sums up added constants, any other change increments `version`.
struct value {
    uint32_t version;
    int64_t plus;
};

static void change(struct value *values, const struct ek_insn *insn) {
    bool known = insn->write_back && insn->base < EK_REG_FLOAT;
    if (!insn->memory)
        known = insn->step != 0 && insn->base < EK_REG_FLOAT && insn->destinations == 1 &&
                insn->destination[0] == insn->base;
    for (int i = 0; i < insn->destinations; i++) {
        uint8_t reg = insn->destination[i];
        if (reg >= EK_REG_FLOAT || (known && reg == insn->base))
            continue;
        values[reg].version++;
    }
    if (known && insn->memory && insn->write_back == EK_AFTER && insn->index != EK_NO_REG)
        values[insn->base].version++;
    else if (known)
        values[insn->base].plus += insn->step;
}

// Finds an access in the same block from the same register value, to derive a prefetch's address.
static void link_prefetches(struct ek_block *block) {
    struct value values[EK_REG_FLOAT] = {{0, 0}}, *seen;
    if (!(seen = calloc(block->instructions, sizeof *seen)))
        abort();
    for (uint32_t i = 0; i < block->instructions; i++) {
        const struct ek_insn *insn = &block->insn[i];
        if (insn->memory && insn->base < EK_REG_FLOAT) {
            seen[i] = values[insn->base];
            seen[i].plus += insn->write_back == EK_AFTER ? 0 : insn->offset;
        }
        change(values, insn);
    }
    for (uint32_t i = 0; i < block->instructions; i++) {
        const struct ek_insn *insn = &block->insn[i];
        block->link[i].from = -1;
        if (!(insn->memory & EK_PREFETCH) || insn->base >= EK_REG_FLOAT)
            continue;
        for (uint32_t j = 0; j < block->instructions; j++) {
            const struct ek_insn *other = &block->insn[j];
            if (!other->memory || other->memory & EK_PREFETCH || other->base != insn->base ||
                other->index != insn->index || seen[j].version != seen[i].version)
                continue;
            block->link[i].from = (int16_t)j;
            block->link[i].delta = (int32_t)(seen[i].plus - seen[j].plus);
            break;
        }
    }
    free(seen);
}

// Whether the instruction is a wait hint: yield, wfe, isb (A64), yield, wfe (A32, T32), pause
// (RV64).
static bool waits(const uint8_t *code, unsigned length) {
    static const uint32_t words[] = {0xd503203f, 0xd503205f, 0xd5033fdf, 0xe320f001,
                                     0xe320f002, 0xbf10,     0xbf20,     0x0100000f};
    uint32_t word = 0;
    for (unsigned i = 0; i < length; i++)
        word |= (uint32_t)code[i] << 8 * i;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i] == word)
            return true;
    return false;
}

void ek_block_finish(struct ek_block *block, const uint8_t *code) {
    if (!(block->code = malloc(block->bytes)))
        abort();
    memcpy(block->code, code, block->bytes);
    block->quiet = block->instructions <= 12;
    for (uint32_t i = 0, at = 0; i < block->instructions; i++) {
        const struct ek_insn *insn = &block->insn[i];
        block->quiet &= !(insn->memory & EK_STORE) && !(insn->branch & EK_CALL);
        block->pauses |= insn->length <= 4 && waits(code + at, insn->length);
        at += insn->length;
        block->vectors |= insn->groups > 0 || insn->class == EK_CLASS_v_setvl;
        block->reads_counter |= insn->reads_counter;
        block->refused = insn->feature == EK_FEATURE_xsmtvdot;
    }
    link_prefetches(block);
}

static uint32_t rounds(uint32_t amount, uint32_t each) {
    return amount > each ? (amount + each - 1) / each : 1;
}

static bool is_element_wise(const struct ek_insn *insn) {
    return insn->class == EK_CLASS_v_load_strided || insn->class == EK_CLASS_v_store_strided ||
           insn->class == EK_CLASS_v_load_indexed || insn->class == EK_CLASS_v_store_indexed;
}

// Bytes of an access; RVV accesses count full registers.
static uint32_t bytes_of(const struct ek_insn *insn) {
    if (insn->bytes || !insn->groups)
        return insn->bytes ? insn->bytes : 1;
    uint32_t bytes = insn->width / 8 * insn->group[0].fields;
    return bytes ? bytes : 1;
}

// How many times a port or unit is occupied: once per part that it can process at a time.
static uint32_t times_of(const struct ek_insn *insn, const struct ek_core *core) {
    uint32_t bytes = bytes_of(insn);
    if (insn->memory & (EK_LOAD | EK_STORE) && insn->groups && is_element_wise(insn))
        return rounds(bytes, insn->element >= 8 ? insn->element / 8 : 1);
    if (insn->memory & EK_LOAD)
        return rounds(bytes, core->ports.load_bytes);
    if (insn->memory & EK_STORE)
        return rounds(bytes, core->ports.store_bytes);
    if (insn->class == EK_CLASS_v_mmla) // a matrix unit takes its operands whole
        return 1;
    return insn->groups ? rounds(insn->width, core->datapath_bits) : 1;
}

static void fill(struct ek_step *step, const struct ek_insn *insn, const struct ek_core *core) {
    const struct ek_op *op = ek_core_op(core, insn->class, insn->width, insn->element);
    uint32_t times = times_of(insn, core);
    step->latency = op->latency;
    step->forward = op->forward;
    step->uops = op->uops;
    if (core->out_of_order && insn->memory)
        step->uops = (uint16_t)(op->uops * times), step->cycles = op->cycles;
    else
        step->cycles = (uint16_t)(op->cycles * times);
    if (!core->out_of_order || !insn->memory)
        step->latency = (uint16_t)(step->latency + op->cycles * (times - 1));
    step->takes = op->takes;
    step->issue = op->issue;
    step->unit = op->unit;
    step->ports = core->unit[op->unit].ports;
    step->on = op->on;
    step->after = op->after;
    step->memory = insn->memory;
    step->bytes = (uint16_t)(is_element_wise(insn) ? 1 : bytes_of(insn));
    step->sources = insn->sources;
    step->destinations = insn->destinations;
    step->accumulator = insn->accumulators ? insn->accumulator : EK_NO_REG;
    step->accumulators = insn->accumulators;
    step->base = insn->memory ? insn->base : EK_NO_REG;
    step->late = (uint8_t)(insn->branch              ? core->issue.branch_data
                           : insn->memory & EK_STORE ? core->issue.store_data
                                                     : 0);
    step->write_back = insn->write_back;
    step->source = insn->source;
    step->destination = insn->destination;
}

static uint16_t vtype_of(const struct ek_insn *insn, uint16_t old) {
    return insn->class == EK_CLASS_v_setvl && insn->sets_vtype ? insn->vtype : old;
}

static struct ek_variant *new_variant(struct ek_block *block, const struct ek_core *core,
                                      uint16_t vtype) {
    uint32_t n = block->instructions;
    struct ek_variant *variant = calloc(1, sizeof *variant + n * sizeof variant->step[0]);
    if (!variant || !(variant->insn = malloc(n * sizeof *variant->insn)))
        abort();
    memcpy(variant->insn, block->insn, n * sizeof *variant->insn);
    variant->vtype = vtype;
    for (uint32_t i = 0; i < n; i++) {
        struct ek_insn *insn = &variant->insn[i];
        bool known = insn->class != EK_CLASS_unknown && core->feature[insn->feature];
        if (insn->groups && vtype != EK_NO_VTYPE)
            known &= ek_rv64_resolve(insn, vtype, core->vector_bits);
        if (!known && variant->unknown++ == 0)
            variant->first_unknown = (uint16_t)i;
        vtype = vtype_of(insn, vtype);
        fill(&variant->step[i], insn, core);
        variant->step[i].index = (uint16_t)i;
    }
    variant->vtype_after = vtype;
    return variant;
}

struct ek_variant *ek_block_variant(struct ek_block *block, unsigned model,
                                    const struct ek_core *core, uint16_t vtype) {
    struct ek_variant **at = &block->variant[model];
    while (*at && block->vectors && (*at)->vtype != vtype)
        at = &(*at)->next;
    if (!*at)
        *at = new_variant(block, core, vtype);
    return *at;
}
