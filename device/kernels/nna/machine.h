/* The chip: registers, RAMs and instructions, with the effect and timing of each (nna_machine.py).
 *
 * Functions take `timed` as a constant: 0 removes the clocks and counters. */
#ifndef EK_NNA_MACHINE_H
#define EK_NNA_MACHINE_H
#include "array.h"
#include "nna.h"

#define REGISTERS EK_NNA_REGISTERS

/* Resources that an instruction waits for or makes ready; registers come first. */
enum {
    AT_FRAM = REGISTERS, /* settled after a write */
    AT_FRAM_USE = AT_FRAM + FRAMS,
    AT_RESULT = AT_FRAM_USE + FRAMS,
    AT_SET = AT_RESULT + FRAMS,
    AT_SET_USE = AT_SET + SETS,
    AT_ARRAY = AT_SET_USE + SETS,
    AT_NEVER, /* always ready */
    AT_MEMORY,
    AT_COUNT
};

/* Clocks of the same instruction stream; the fourth pads the vector. */
enum { OVERLAPPED, SERIAL, LOAD, CLOCKS = 4 };

typedef struct {
    ek_nna_chip chip;
    ek_nna_report *report;
    int64_t now[CLOCKS], at[AT_COUNT][CLOCKS];
    int stride, jump, mask;
    int row[FRAMS], column[FRAMS], written[SETS];
    int8_t registers[REGISTERS][2 * CHANNELS] __attribute__((aligned(64)));
    int32_t results[FRAMS][POINTS][CHANNELS] __attribute__((aligned(64)));
    ram_t ram;
} machine_t;

typedef struct {
    int at, cause;
} wait_t;

#define NOTHING ((wait_t){AT_NEVER, 0})
#define OPERAND(reg) ((wait_t){reg, EK_NNA_OPERAND})

EK_INLINE void note(machine_t *m, int name, int stall, int64_t start, int64_t end) {
    ek_nna_report *r = m->report;
    if (r->count < r->capacity)
        r->events[r->count++] = (ek_nna_event){start, end, name, stall};
}

/* Issues an instruction that waits for up to three resources and makes `gives` ready; returns its
 * start on the overlapped clock. */
static __attribute__((noinline)) int64_t issue_now(machine_t *m, int name, wait_t a, wait_t b,
                                                   wait_t c, int gives, int64_t latency) {
    ek_nna_counters *counters = m->report->counters;
    const wait_t waits[] = {a, b, c};
    const int64_t before = m->now[OVERLAPPED];
    int64_t start = before;
    int cause = -1;
    EK_UNROLL
    for (int i = 0; i < 3; i++)
        if (m->at[waits[i].at][OVERLAPPED] > start) {
            start = m->at[waits[i].at][OVERLAPPED];
            cause = waits[i].cause;
        }
    EK_UNROLL
    for (int i = 0; i < CLOCKS; i++) {
        int64_t at = m->now[i];
        EK_UNROLL
        for (int j = 0; j < 3; j++)
            at = at > m->at[waits[j].at][i] ? at : m->at[waits[j].at][i];
        m->now[i] = at + 1;
        m->at[gives][i] = at + latency;
    }
    counters->instructions[name]++;
    if (cause >= 0) {
        counters->stalls[cause] += start - before;
        note(m, cause, 1, before, start);
    }
    note(m, name, 0, start, start + latency);
    return start;
}

EK_INLINE int64_t issue(machine_t *m, const int timed, int name, wait_t a, wait_t b, wait_t c,
                        int gives, int64_t latency) {
    return timed ? issue_now(m, name, a, b, c, gives, latency) : 0;
}

EK_INLINE void la(machine_t *m, const int timed, int reg, int half, const void *from) {
    memcpy(m->registers[reg] + half * CHANNELS, from, CHANNELS);
    issue(m, timed, EK_NNA_LA, NOTHING, NOTHING, NOTHING, reg, m->chip.load_latency);
}

EK_INLINE void sa(machine_t *m, const int timed, int reg, int half, void *to) {
    memcpy(to, m->registers[reg] + half * CHANNELS, CHANNELS);
    issue(m, timed, EK_NNA_SA, OPERAND(reg), NOTHING, NOTHING, AT_MEMORY, 1);
}

EK_INLINE void add(machine_t *m, const int timed, int to, int left, int right) {
    uint32_t x[CHANNELS / 2], y[CHANNELS / 2]; /* unsigned: sums wrap around */
    memcpy(x, m->registers[left], sizeof x);
    memcpy(y, m->registers[right], sizeof y);
    for (int i = 0; i < CHANNELS / 2; i++)
        x[i] += y[i];
    memcpy(m->registers[to], x, sizeof x);
    issue(m, timed, EK_NNA_ADD, OPERAND(left), OPERAND(right), NOTHING, to, m->chip.add_latency);
}

/* Sets stride, jump or mask; issues an instruction only if the value changes. */
EK_INLINE void nncfg(machine_t *m, const int timed, int *setting, int value) {
    if (*setting == value)
        return;
    *setting = value;
    issue(m, timed, EK_NNA_CFG, NOTHING, NOTHING, NOTHING, AT_MEMORY, 1);
}

EK_INLINE void nndwf(machine_t *m, const int timed, int fram, int reg) {
    i8_row *to = m->ram.fram[fram][m->row[fram]][m->column[fram]];
    write_pixel(to, m->registers[reg]);
    write_pixel(to + CHANNELS, m->registers[reg] + CHANNELS);
    m->column[fram] += 2;
    if (m->column[fram] >= m->jump) {
        m->column[fram] = 0;
        m->row[fram]++;
    }
    issue(m, timed, EK_NNA_DWF, OPERAND(reg), (wait_t){AT_FRAM_USE + fram, EK_NNA_FRAM}, NOTHING,
          AT_FRAM + fram, m->chip.write_latency);
}

EK_INLINE void nndww(machine_t *m, const int timed, int set, int reg) {
    const int at = m->written[set];
    write_weights(&m->ram, set, at / CHANNELS, at % CHANNELS, m->registers[reg]);
    write_weights(&m->ram, set, at / CHANNELS, at % CHANNELS + 1, m->registers[reg] + CHANNELS);
    m->written[set] = at + 2;
    issue(m, timed, EK_NNA_DWW, OPERAND(reg), (wait_t){AT_SET_USE + set, EK_NNA_WEIGHTS}, NOTHING,
          AT_SET + set, m->chip.write_latency);
}

/* The chip computes every point; the emulation computes only those that the program reads. */
EK_INLINE void nnmacg(machine_t *m, const int timed, int fram, int set, const int *points,
                      int count) {
    const i8_row *window[POINTS];
    int32_t *result[POINTS];
    for (int i = 0; i < count; i++) {
        window[i] = m->ram.fram[fram][0][points[i] * m->stride];
        result[i] = m->results[fram][points[i]];
    }
    mac_points(&m->ram, set, m->mask, count, window, result);
    m->row[fram] = m->column[fram] = m->written[set] = 0;
    if (!timed)
        return;
    const int64_t cycles[CLOCKS] = {m->chip.mac_cycles, m->chip.mac_cycles};
    const int64_t start =
        issue(m, timed, EK_NNA_MACG, (wait_t){AT_ARRAY, EK_NNA_ARRAY},
              (wait_t){AT_FRAM + fram, EK_NNA_SETTLE}, (wait_t){AT_SET + set, EK_NNA_SETTLE},
              AT_MEMORY, m->chip.mac_cycles);
    for (int i = 0; i < CLOCKS; i++) {
        const int64_t end = m->now[i] - 1 + cycles[i];
        m->at[AT_ARRAY][i] = m->at[AT_FRAM_USE + fram][i] = end;
        m->at[AT_SET_USE + set][i] = m->at[AT_RESULT + fram][i] = end;
    }
    m->now[SERIAL] += cycles[SERIAL] - 1;
    ek_nna_counters *counters = m->report->counters;
    if (counters->instructions[EK_NNA_MACG] == 1)
        counters->fill = start;
    counters->last_mac_end = start + m->chip.mac_cycles;
}

EK_INLINE void nndrdocb(machine_t *m, const int timed, int reg, int fram, int point, int half) {
    const int32_t *sums = m->results[fram][point] + half * CHANNELS / 2;
    memcpy(m->registers[reg], sums, 2 * CHANNELS);
    issue(m, timed, EK_NNA_DOCB, (wait_t){AT_RESULT + fram, EK_NNA_RESULT}, NOTHING, NOTHING, reg,
          m->chip.result_latency);
}
#endif
