// In-order cores: an instruction waits for its operands, a port and a slot in its cycle's issue
// group, and all later instructions wait with it.
#include "pipeline.h"

static void charge(struct ek_cpu *cpu, uint64_t time, unsigned bound) {
    if (time <= cpu->now)
        return;
    uint64_t passed = time - cpu->now;
    cpu->bound[bound] += passed;
    cpu->now = time;
    cpu->in.slots = 0;
    cpu->in.closed = false;
    for (uint32_t i = 0; i < cpu->core->rules; i++)
        for (int side = 0; side < 2; side++)
            cpu->in.rule[i][side] = passed < 64 ? cpu->in.rule[i][side] << passed : 0;
}

// When the step's operands are ready, but no earlier than `time`; sets `why` to the cause.
static uint64_t operands(const struct ek_cpu *cpu, const struct ek_step *step, uint64_t time,
                         unsigned *why) {
    unsigned first = step->accumulator, last = first + step->accumulators;
    for (unsigned i = 0; i < step->sources; i++) {
        uint8_t reg = step->source[i];
        uint64_t at = i >= first && i < last ? cpu->forward[reg] : cpu->ready[reg];
        if (reg == step->base)
            at += at > cpu->now && cpu->why[reg] == EK_BOUND_LATENCY ? cpu->core->issue.address : 0;
        else
            at = at > step->late ? at - step->late : 0;
        if (at > time) {
            time = at;
            *why = cpu->why[reg];
        }
    }
    // results are written in order: an older one to the same register must come first
    for (unsigned i = 0; i < step->destinations; i++) {
        uint64_t at = cpu->ready[step->destination[i]];
        if (at > time + step->latency) {
            time = at - step->latency;
            *why = cpu->why[step->destination[i]];
        }
    }
    return time;
}

// The first cycle from `time` in which enough of the step's ports are free.
static uint64_t ports(const struct ek_cpu *cpu, const struct ek_step *step, uint64_t time,
                      uint32_t *chosen) {
    for (;;) {
        uint64_t soonest = ~(uint64_t)0;
        unsigned free = 0;
        *chosen = 0;
        for (uint32_t left = step->ports; left; left &= left - 1) {
            unsigned port = (unsigned)__builtin_ctz(left);
            if (cpu->in.port[port] <= time) {
                *chosen |= 1u << port;
                if (++free == step->takes)
                    return time;
            } else if (cpu->in.port[port] < soonest)
                soonest = cpu->in.port[port];
        }
        time = soonest;
    }
}

// Whether a rule forbids issuing the step in this cycle. Distance 0 applies in both directions.
static bool apart(const struct ek_cpu *cpu, const struct ek_step *step) {
    for (uint32_t on = step->on; on; on &= on - 1) {
        unsigned rule = (unsigned)__builtin_ctz(on);
        if (cpu->in.rule[rule][1] >> cpu->core->rule_distance[rule] & 1)
            return true;
    }
    for (uint32_t after = step->after; after; after &= after - 1) {
        unsigned rule = (unsigned)__builtin_ctz(after);
        if (cpu->core->rule_distance[rule] == 0 && cpu->in.rule[rule][0] & 1)
            return true;
    }
    return false;
}

static void place(struct ek_cpu *cpu, const struct ek_step *step) {
    struct ek_in_order *in = &cpu->in;
    unsigned unit = EK_BOUND_UNIT + step->unit;
    bool solitary = step->issue == EK_ISSUE_FIRST || step->issue == EK_ISSUE_ALONE;
    if (in->slots >= cpu->core->issue.width || in->closed)
        charge(cpu, cpu->now + 1, EK_BOUND_ISSUE);
    else if (solitary && in->slots)
        charge(cpu, cpu->now + 1, unit);
    uint32_t chosen;
    for (;;) {
        charge(cpu, ports(cpu, step, cpu->now, &chosen), unit);
        if (!apart(cpu, step))
            break;
        charge(cpu, cpu->now + 1, unit);
    }
    in->slots++;
    in->closed = step->issue >= EK_ISSUE_LAST;
    for (uint32_t left = chosen; left; left &= left - 1)
        in->port[__builtin_ctz(left)] = cpu->now + step->cycles;
    for (uint32_t on = step->on; on; on &= on - 1)
        in->rule[__builtin_ctz(on)][0] |= 1;
    for (uint32_t after = step->after; after; after &= after - 1)
        in->rule[__builtin_ctz(after)][1] |= 1;
}

static uint64_t load(struct ek_cpu *cpu, const struct ek_step *step, const struct ek_run *run,
                     uint64_t address, uint8_t *bound) {
    uint64_t go, begin = cpu->now;
    uint64_t ready = ek_load(&cpu->memory, address, step->bytes, begin, step->latency, bound, &go);
    charge(cpu, go, *bound);
    for (unsigned i = 0; i < run->count[step->index]; i++) {
        uint8_t why;
        uint64_t more = run->more[run->first[step->index] + i];
        uint64_t at = ek_load(&cpu->memory, more, 1, cpu->now, step->latency, &why, &go);
        charge(cpu, go, why);
        if (at > ready) {
            ready = at;
            *bound = why;
        }
    }
    return ready;
}

static void access(struct ek_cpu *cpu, const struct ek_block *block, const struct ek_step *step,
                   const struct ek_run *run, uint64_t *ready, uint8_t *bound) {
    uint64_t address = ek_address(block, run, step->index), go = 0;
    *bound = EK_BOUND_L1;
    uint8_t why = EK_BOUND_STORES;
    if (address == 0)
        return;
    if (step->memory & EK_LOAD)
        *ready = load(cpu, step, run, address, bound);
    if (step->memory & EK_STORE) {
        go = ek_store(&cpu->memory, address, step->bytes, cpu->now, &why);
        for (unsigned i = 0; i < run->count[step->index]; i++)
            go = ek_store(&cpu->memory, run->more[run->first[step->index] + i], 1, go, &why);
    } else if (step->memory == EK_PREFETCH)
        go = ek_prefetch(&cpu->memory, address, cpu->now);
    charge(cpu, go, why);
}

void ek_in_order_block(struct ek_cpu *cpu, const struct ek_block *block,
                       const struct ek_variant *variant, struct ek_run *run) {
    uint8_t bound;
    uint64_t there = ek_fetch(&cpu->memory, block->pc, block->bytes, cpu->now, &bound);
    charge(cpu, there, bound);
    const struct ek_step *end = variant->step + block->instructions;
    for (const struct ek_step *step = variant->step; step < end; step++) {
        unsigned why = EK_BOUND_ISSUE;
        uint64_t time = operands(cpu, step, cpu->now, &why);
        charge(cpu, time, why);
        place(cpu, step);
        uint64_t issued = cpu->now, ready = issued + step->latency, forward;
        bound = EK_BOUND_LATENCY;
        if (step->memory)
            access(cpu, block, step, run, &ready, &bound);
        forward = step->forward < step->latency ? issued + step->forward : ready;
        for (unsigned i = 0; i < step->destinations; i++) {
            uint8_t reg = step->destination[i];
            cpu->ready[reg] = ready;
            cpu->forward[reg] = forward;
            cpu->why[reg] = bound;
        }
        if (step->write_back && step->base != EK_NO_REG) {
            cpu->ready[step->base] = cpu->forward[step->base] = issued + 1;
            cpu->why[step->base] = EK_BOUND_ISSUE;
        }
    }
}

void ek_in_order_jump(struct ek_cpu *cpu, bool mispredicted) {
    if (mispredicted)
        charge(cpu, cpu->now + 1 + cpu->core->issue.mispredict, EK_BOUND_BRANCH);
    else {
        cpu->in.closed = true; // a taken branch ends its group
        if (cpu->core->issue.taken)
            charge(cpu, cpu->now + 1 + cpu->core->issue.taken, EK_BOUND_BRANCH);
    }
}
