// Matches instruction words against patterns; register lists.
#include "pattern.h"

#include <string.h>

void ek_prepare(const struct ek_table *table) {
    for (size_t i = 0; i < table->count; i++) {
        struct ek_pattern *pattern = &table->patterns[i];
        uint32_t mask = 0, value = 0;
        for (const char *bit = pattern->bits; *bit; bit++) {
            if (*bit == ' ')
                continue;
            bool fixed = *bit == '0' || *bit == '1';
            mask = mask << 1 | fixed;
            value = value << 1 | (*bit == '1');
        }
        pattern->mask = mask;
        pattern->value = value;
    }
}

const struct ek_pattern *ek_find(const struct ek_table *table, uint32_t word) {
    for (size_t i = 0; i < table->count; i++)
        if ((word & table->patterns[i].mask) == table->patterns[i].value)
            return &table->patterns[i];
    return NULL;
}

static int length_of(const char *bits) {
    int length = 0;
    for (; *bits; bits++)
        length += *bits != ' ';
    return length;
}

uint32_t ek_field(const struct ek_pattern *pattern, uint32_t word, char letter) {
    uint32_t value = 0;
    int position = length_of(pattern->bits);
    for (const char *bit = pattern->bits; *bit; bit++) {
        if (*bit == ' ')
            continue;
        position--;
        if (*bit == letter)
            value = value << 1 | (word >> position & 1);
    }
    return value;
}

int ek_field_bits(const struct ek_pattern *pattern, char letter) {
    int count = 0;
    for (const char *bit = pattern->bits; *bit; bit++)
        count += *bit == letter;
    return count;
}

int64_t ek_sign_extend(uint64_t value, int bits) {
    uint64_t sign = UINT64_C(1) << (bits - 1);
    return (int64_t)((value ^ sign) - sign);
}

int64_t ek_signed_field(const struct ek_pattern *pattern, uint32_t word, char letter) {
    return ek_sign_extend(ek_field(pattern, word, letter), ek_field_bits(pattern, letter));
}

void ek_clear(struct ek_insn *insn, int length) {
    memset(insn, 0, sizeof *insn);
    insn->length = (uint8_t)length;
    insn->accumulator = insn->base = insn->index = EK_NO_REG;
}

void ek_reject(struct ek_insn *insn) {
    ek_clear(insn, insn->length);
}

static int position(const uint8_t *list, int count, int reg) {
    for (int i = 0; i < count; i++)
        if (list[i] == reg)
            return i;
    return -1;
}

void ek_read(struct ek_insn *insn, int reg) {
    if (insn->sources < EK_MAX_SOURCES && position(insn->source, insn->sources, reg) < 0)
        insn->source[insn->sources++] = (uint8_t)reg;
}

void ek_write(struct ek_insn *insn, int reg) {
    if (insn->destinations < EK_MAX_DESTINATIONS &&
        position(insn->destination, insn->destinations, reg) < 0)
        insn->destination[insn->destinations++] = (uint8_t)reg;
}

// Appended even if the register is also another operand, since that one is needed earlier.
void ek_accumulate(struct ek_insn *insn, int reg) {
    if (insn->sources == EK_MAX_SOURCES)
        return;
    if (insn->accumulators == 0)
        insn->accumulator = insn->sources;
    insn->accumulators++;
    insn->source[insn->sources++] = (uint8_t)reg;
}
