#include "branch.h"

#include <stdlib.h>
#include <string.h>

bool ek_branch_start(struct ek_branch *b, const struct ek_core *core) {
    memset(b, 0, sizeof *b);
    b->core = core;
    b->random = 1;
    b->counter = malloc(core->branch.entries);
    b->target = calloc(core->branch.targets, sizeof *b->target);
    if (!b->counter || !b->target)
        return false;
    memset(b->counter, 2, core->branch.entries);
    b->size = core->branch.tables ? core->branch.entries / core->branch.tables : 0;
    for (uint32_t i = 0; i < core->branch.tables; i++)
        if (!b->size || !(b->table[i] = calloc(b->size, sizeof *b->table[i])))
            return false;
    return true;
}

static uint64_t mix(uint64_t x) {
    x ^= x >> 31;
    x *= 0x9E3779B97F4A7C15u;
    return x ^ x >> 29;
}

static uint64_t hash(const struct ek_branch *b, uint64_t pc, uint32_t length) {
    uint64_t low = b->history[0], high = b->history[1];
    if (length < 64)
        low &= ((uint64_t)1 << length) - 1;
    high &= length >= 128 ? ~(uint64_t)0 : length > 64 ? ((uint64_t)1 << (length - 64)) - 1 : 0;
    return mix(mix(pc >> 1) + mix(low + 1) + (high ? mix(high + 2) : 0));
}

static void push(struct ek_branch *b, bool bit) {
    b->history[1] = b->history[1] << 1 | b->history[0] >> 63;
    b->history[0] = b->history[0] << 1 | bit;
}

static void count(int8_t *counter, bool up) {
    if (up && *counter < 3)
        ++*counter;
    else if (!up && *counter > -4)
        --*counter;
}

static bool conditional(struct ek_branch *b, uint64_t pc, bool taken) {
    uint8_t *base = &b->counter[mix(pc >> 1) % b->core->branch.entries];
    bool simple = *base >= 2, guess = simple, other = simple;
    uint64_t key[EK_MAX_TABLES];
    int found = -1;
    for (uint32_t i = 0; i < b->core->branch.tables; i++) {
        key[i] = hash(b, pc, b->core->branch.history[i]);
        struct ek_guess *g = &b->table[i][key[i] % b->size];
        if (g->tag == (uint16_t)(key[i] >> 40 | 1)) {
            other = guess;
            guess = g->counter >= 0;
            found = (int)i;
        }
    }
    if (found >= 0) {
        struct ek_guess *g = &b->table[found][key[found] % b->size];
        if (guess != other && g->useful < 3 && guess == taken)
            g->useful++;
        else if (guess != other && g->useful && guess != taken)
            g->useful--;
        count(&g->counter, taken);
    }
    if (found < 0 || simple == guess) {
        if (taken && *base < 3)
            ++*base;
        else if (!taken && *base)
            --*base;
    }
    // on a misprediction, allocate an entry with a longer history
    for (int i = found + 1; guess != taken && i < (int)b->core->branch.tables; i++) {
        struct ek_guess *g = &b->table[i][key[i] % b->size];
        if (g->useful == 0) {
            *g = (struct ek_guess){(uint16_t)(key[i] >> 40 | 1), taken ? 0 : -1, 0};
            break;
        }
        g->useful--;
    }
    push(b, taken);
    return guess != taken;
}

bool ek_branch_run(struct ek_branch *b, const struct ek_insn *insn, uint64_t pc, uint64_t next) {
    uint64_t after = pc + insn->length;
    bool wrong = false;
    uint32_t returns = b->core->branch.returns;
    if (returns > EK_MAX_RETURNS)
        returns = EK_MAX_RETURNS;
    if (insn->branch & EK_CONDITIONAL)
        return conditional(b, pc, next != after);
    if (insn->branch & EK_RETURN && returns) {
        wrong = b->stack[b->depth % returns] != next;
        b->depth += returns - 1;
    } else if (insn->branch & EK_INDIRECT) {
        uint64_t key = hash(b, pc, b->core->branch.indirect);
        uint64_t *target = &b->target[key % b->core->branch.targets];
        wrong = *target != next;
        *target = next;
        push(b, next >> 2 & 1);
        push(b, next >> 3 & 1);
    }
    if (insn->branch & EK_CALL && returns)
        b->stack[++b->depth % returns] = after;
    return wrong;
}
