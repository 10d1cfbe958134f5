// Out-of-order cores. Dispatch and retirement are in program order; in between, micro-operations
// wait in queues for their operands and then occupy a port.
#include "pipeline.h"

#include <string.h>

// Books `takes` of the ports for `cycles`, in the first possible cycle from `time` on.
static uint64_t book(struct ek_out_of_order *out, uint32_t ports, unsigned takes, uint64_t time,
                     unsigned cycles) {
    for (;; time++) {
        uint32_t slot = time % EK_BOOKED;
        if (out->booked_at[slot] != time) {
            out->booked_at[slot] = time;
            out->booked[slot] = 0;
        }
        uint32_t free = ports & ~out->booked[slot];
        if ((unsigned)__builtin_popcount(free) < takes)
            continue;
        uint32_t chosen = 0;
        for (unsigned i = 0; i < takes; i++, free &= free - 1)
            chosen |= free & -free;
        out->booked[slot] |= chosen;
        for (uint64_t more = time + 1; more < time + cycles; more++) {
            if (out->booked_at[more % EK_BOOKED] != more) {
                out->booked_at[more % EK_BOOKED] = more;
                out->booked[more % EK_BOOKED] = 0;
            }
            out->booked[more % EK_BOOKED] |= chosen;
        }
        return time;
    }
}

static void await(uint64_t *time, uint64_t until) {
    if (until > *time)
        *time = until;
}

static uint64_t entry(const struct ek_queue *queue) {
    return queue->size ? queue->free[queue->next] : 0;
}

static void enter(struct ek_queue *queue, uint64_t until) {
    if (queue->size) {
        queue->free[queue->next] = until;
        queue->next = (queue->next + 1) % queue->size;
    }
}

static uint64_t place(const struct ek_pool *pool) {
    return pool->size ? pool->free[0] : 0;
}

// Occupies the entry that becomes free first.
static void take(struct ek_pool *pool, uint64_t until) {
    uint32_t at = 0;
    for (uint32_t below = 1; below < pool->size; below = 2 * at + 1) {
        if (below + 1 < pool->size && pool->free[below + 1] < pool->free[below])
            below++;
        if (pool->free[below] >= until)
            break;
        pool->free[at] = pool->free[below];
        at = below;
    }
    pool->free[at] = until;
}

// Whether this cycle's dispatch limit for the unit is exhausted.
static bool full(const struct ek_cpu *cpu, unsigned unit) {
    for (uint32_t i = 0; i < cpu->core->limits; i++) {
        const struct ek_limit *limit = &cpu->core->limit[i];
        if (limit->units >> unit & 1 && cpu->out.limited[i] >= limit->uops)
            return true;
    }
    return false;
}

static void begin_cycle(struct ek_out_of_order *out) {
    out->dispatched = 0;
    memset(out->limited, 0, sizeof out->limited);
}

// Dispatches one micro-operation; returns its cycle and sets `why` to the cause of any delay.
static uint64_t dispatch(struct ek_cpu *cpu, const struct ek_step *step, uint8_t *why) {
    struct ek_out_of_order *out = &cpu->out;
    uint64_t time = out->dispatch, old = time;
    if (out->fetch > time) {
        time = out->fetch;
        *why = out->fetch_bound;
    }
    if (place(&out->queue[step->unit]) > time)
        *why = (uint8_t)(EK_BOUND_UNIT + step->unit);
    await(&time, place(&out->queue[step->unit]));
    await(&time, out->window[out->next]);
    if (time == old && (out->dispatched >= cpu->core->issue.width || full(cpu, step->unit)))
        time++;
    if (time > old)
        begin_cycle(out);
    out->dispatch = time;
    out->dispatched++;
    for (uint32_t i = 0; i < cpu->core->limits; i++)
        out->limited[i] += cpu->core->limit[i].units >> step->unit & 1;
    return time;
}

// Store-to-load forwarding: a load gets recently stored data no earlier than it was written.
static uint64_t forwarded(struct ek_out_of_order *out, uint64_t address, unsigned bytes) {
    uint64_t time = 0;
    for (uint64_t word = address / 8; word <= (address + bytes - 1) / 8; word++)
        if (out->stored_at[word % EK_STORED] == word)
            await(&time, out->stored[word % EK_STORED]);
    return time;
}

static void remember(struct ek_out_of_order *out, uint64_t address, unsigned bytes, uint64_t time) {
    for (uint64_t word = address / 8; word <= (address + bytes - 1) / 8; word++) {
        out->stored_at[word % EK_STORED] = word;
        out->stored[word % EK_STORED] = time;
    }
}

struct result {
    uint64_t ready, complete;
    uint8_t bound;
};

static struct result access(struct ek_cpu *cpu, const struct ek_block *block,
                            const struct ek_step *step, const struct ek_run *run, uint64_t time,
                            uint8_t bound) {
    struct result result = {time + step->latency, time + 1, EK_BOUND_L1};
    uint64_t address = ek_address(block, run, step->index);
    if (address == 0)
        return result;
    unsigned count = run->count[step->index];
    const uint64_t *more = run->more + run->first[step->index];
    if (step->memory & EK_LOAD) {
        await(&time, forwarded(&cpu->out, address, step->bytes));
        for (unsigned i = 0; i <= count; i++) {
            uint8_t why;
            uint64_t at = i ? more[i - 1] : address;
            uint64_t go, ready = ek_load(&cpu->memory, at, i ? 1 : step->bytes, time, step->latency,
                                         &why, &go);
            if (ready > result.ready) {
                result.ready = ready;
                result.bound = why;
            }
        }
        result.complete = result.ready;
    }
    if (step->memory & EK_STORE) {
        // stores leave for the cache on retirement
        uint64_t leaves = time + 1 > cpu->out.retired ? time + 1 : cpu->out.retired;
        result.bound = bound;
        remember(&cpu->out, address, step->bytes, time + 1);
        uint64_t go = leaves;
        for (unsigned i = 0; i <= count; i++)
            go = ek_store(&cpu->memory, i ? more[i - 1] : address, i ? 1 : step->bytes, go,
                          &result.bound);
        result.complete = go > leaves ? go : time + 1;
        enter(&cpu->out.stores, go);
        if (result.complete == time + 1)
            result.bound = bound;
    } else if (step->memory == EK_PREFETCH)
        ek_prefetch(&cpu->memory, address, time);
    return result;
}

static void retire(struct ek_cpu *cpu, uint64_t complete, uint8_t bound, unsigned uops) {
    struct ek_out_of_order *out = &cpu->out;
    if (complete <= out->retired) {
        out->retires += uops;
        if (out->retires > cpu->core->issue.retire) {
            cpu->bound[EK_BOUND_ISSUE]++;
            out->retired++;
            out->retires = uops;
        }
    } else {
        cpu->bound[bound] += complete - out->retired;
        out->retired = complete;
        out->retires = uops;
    }
    for (unsigned i = 0; i < uops; i++) {
        out->window[out->next] = out->retired;
        out->next = (out->next + 1) % cpu->core->issue.window;
    }
    cpu->now = out->retired;
}

// Base register update takes an additional micro-operation.
static void update_base(struct ek_cpu *cpu, uint64_t time) {
    const struct ek_op *sum = ek_core_op(cpu->core, EK_CLASS_alu, 64, 64);
    struct ek_step step = {.unit = sum->unit};
    uint8_t why;
    for (uint32_t i = 0; i < cpu->core->issue.write_back; i++) {
        dispatch(cpu, &step, &why);
        uint64_t start = book(&cpu->out, cpu->core->unit[sum->unit].ports, 1, time, 1);
        take(&cpu->out.queue[sum->unit], start);
    }
}

static void run_step(struct ek_cpu *cpu, const struct ek_block *block, const struct ek_step *step,
                     const struct ek_run *run) {
    struct ek_out_of_order *out = &cpu->out;
    uint8_t why = EK_BOUND_ISSUE, operand = EK_BOUND_ISSUE;
    if (step->memory & EK_LOAD)
        await(&out->dispatch, entry(&out->loads));
    if (step->memory & EK_STORE)
        await(&out->dispatch, entry(&out->stores));
    uint64_t entered = dispatch(cpu, step, &why);
    for (unsigned i = 1; i < step->uops; i++)
        entered = dispatch(cpu, step, &why);
    uint64_t time = entered + cpu->core->issue.depth;
    unsigned first = step->accumulator, last = first + step->accumulators;
    for (unsigned i = 0; i < step->sources; i++) {
        uint8_t reg = step->source[i];
        uint64_t at = i >= first && i < last ? cpu->forward[reg] : cpu->ready[reg];
        if (at > time) {
            time = at;
            operand = cpu->why[reg];
            why = operand;
        }
    }
    uint64_t start = time;
    for (unsigned i = 0; i < step->uops; i++)
        start = book(out, step->ports, step->takes, i ? start : time, step->cycles);
    if (start > time)
        why = (uint8_t)(EK_BOUND_UNIT + step->unit);
    take(&out->queue[step->unit], start);
    out->ran = start;
    struct result result = {start + step->latency, start + step->latency, why};
    if (step->memory)
        result = access(cpu, block, step, run, start, why);
    if (result.bound == EK_BOUND_L1 && why != EK_BOUND_ISSUE)
        result.bound = why;
    uint64_t forward = step->forward < step->latency ? start + step->forward : result.ready;
    for (unsigned i = 0; i < step->destinations; i++) {
        uint8_t reg = step->destination[i];
        cpu->ready[reg] = result.ready;
        cpu->forward[reg] = forward;
        cpu->why[reg] = result.bound == EK_BOUND_ISSUE ? EK_BOUND_LATENCY : result.bound;
    }
    if (step->write_back && step->base != EK_NO_REG) {
        update_base(cpu, time);
        cpu->ready[step->base] = cpu->forward[step->base] = start + 1;
        cpu->why[step->base] = EK_BOUND_ISSUE;
    }
    retire(cpu, result.complete, result.bound, step->uops);
    if (step->memory & EK_LOAD)
        enter(&out->loads, out->retired);
}

void ek_out_of_order_block(struct ek_cpu *cpu, const struct ek_block *block,
                           const struct ek_variant *variant, struct ek_run *run) {
    struct ek_out_of_order *out = &cpu->out;
    uint8_t bound;
    uint64_t there = ek_fetch(&cpu->memory, block->pc, block->bytes, out->dispatch, &bound);
    if (there > out->dispatch && there > out->fetch) {
        out->fetch = there;
        out->fetch_bound = bound;
    }
    for (uint32_t i = 0; i < block->instructions; i++)
        run_step(cpu, block, &variant->step[i], run);
}

void ek_out_of_order_jump(struct ek_cpu *cpu, bool mispredicted) {
    struct ek_out_of_order *out = &cpu->out;
    if (mispredicted) {
        // the branch retired last, but may have executed long before
        out->fetch = out->ran + cpu->core->issue.mispredict;
        out->fetch_bound = EK_BOUND_BRANCH;
        return;
    }
    out->dispatch += 1 + cpu->core->issue.taken; // a taken branch ends its group
    begin_cycle(out);
}
