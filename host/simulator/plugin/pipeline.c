// Common parts of both kinds of pipelines.
#include "pipeline.h"

#include <string.h>

bool ek_cpu_start(struct ek_cpu *cpu, struct ek_shared *shared, unsigned model) {
    const struct ek_core *core = shared->core;
    memset(cpu, 0, sizeof *cpu);
    cpu->core = core;
    cpu->model = model;
    cpu->vtype = EK_NO_VTYPE;
    struct ek_out_of_order *out = &cpu->out;
    for (uint32_t i = 0; i < core->units; i++)
        out->queue[i].size =
            core->unit[i].queue < EK_MAX_QUEUE ? core->unit[i].queue : EK_MAX_QUEUE;
    out->loads.size = core->issue.loads < EK_MAX_QUEUE ? core->issue.loads : EK_MAX_QUEUE;
    out->stores.size = core->issue.stores < EK_MAX_QUEUE ? core->issue.stores : EK_MAX_QUEUE;
    return ek_memory_start(&cpu->memory, shared) && ek_branch_start(&cpu->branch, core);
}

uint64_t ek_address(const struct ek_block *block, const struct ek_run *run, unsigned index) {
    int from = block->link[index].from;
    if (from < 0)
        return run->address[index];
    uint64_t base = run->address[from];
    return base ? base + (uint64_t)(int64_t)block->link[index].delta : 0;
}

static bool jumped(struct ek_cpu *cpu, const struct ek_block *block, uint64_t next, bool *taken) {
    const struct ek_insn *last = &block->insn[block->instructions - 1];
    *taken = next && next != block->pc + block->bytes;
    if (!last->branch || !next)
        return false;
    return ek_branch_run(&cpu->branch, last, block->pc + block->bytes - last->length, next);
}

const struct ek_variant *ek_cpu_run(struct ek_cpu *cpu, struct ek_block *block, struct ek_run *run,
                                    uint64_t next) {
    struct ek_variant *variant = ek_block_variant(block, cpu->model, cpu->core, cpu->vtype);
    cpu->instructions += block->instructions;
    if (cpu->core->out_of_order)
        ek_out_of_order_block(cpu, block, variant, run);
    else
        ek_in_order_block(cpu, block, variant, run);
    cpu->vtype = variant->vtype_after;
    bool taken, wrong = jumped(cpu, block, next, &taken);
    if (wrong || taken)
        cpu->core->out_of_order ? ek_out_of_order_jump(cpu, wrong) : ek_in_order_jump(cpu, wrong);
    return variant;
}

void ek_cpu_warm(struct ek_cpu *cpu, struct ek_block *block, struct ek_run *run, uint64_t next) {
    uint8_t bound;
    uint64_t go;
    ek_cpu_wait(cpu, cpu->now + block->instructions); // threads are scheduled by this clock
    ek_fetch(&cpu->memory, block->pc, block->bytes, cpu->now, &bound);
    for (uint32_t i = 0; i < block->instructions; i++) {
        const struct ek_insn *insn = &block->insn[i];
        uint64_t address = insn->memory ? ek_address(block, run, i) : 0;
        if (address && insn->memory & EK_STORE)
            ek_store(&cpu->memory, address, insn->bytes ? insn->bytes : 1, cpu->now, &bound);
        else if (address)
            ek_load(&cpu->memory, address, insn->bytes ? insn->bytes : 1, cpu->now, 0, &bound, &go);
    }
    bool taken;
    jumped(cpu, block, next, &taken);
    struct ek_variant *variant = ek_block_variant(block, cpu->model, cpu->core, cpu->vtype);
    cpu->vtype = variant->vtype_after;
}

void ek_cpu_wait(struct ek_cpu *cpu, uint64_t time) {
    if (time <= cpu->now)
        return;
    cpu->bound[EK_BOUND_WAIT] += time - cpu->now;
    cpu->now = time;
    cpu->out.retired = time;
    if (cpu->out.dispatch < time)
        cpu->out.dispatch = time;
}
