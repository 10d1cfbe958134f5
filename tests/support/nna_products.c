/* Runs NNA products described by a file. As a model it has one input, the cases of nna_cases.py,
 * and one output, the counters and sums of each case, concatenated. Every operand gets a
 * separate heap block, so that sanitizers catch the first out-of-bounds byte. */
#include "cases_model.h"
#include "nna/nna.h"

enum { MATMUL, CONV, POINTWISE };
enum { PARTS = 3 }; /* a, f, tail; or x, w and nothing */

typedef struct {
    int64_t kind;
    int64_t chip[7], shape[8]; /* in the order of ek_nna_chip and of the arguments */
    int64_t bytes[PARTS], sums_bytes;
} description;

static void multiply(const description *d, void *const parts[PARTS], int32_t *sums,
                     ek_nna_report *report) {
    const int64_t *s = d->shape;
    int32_t numbers[7];
    for (int i = 0; i < 7; i++)
        numbers[i] = (int32_t)d->chip[i];
    ek_nna_chip chip;
    memcpy(&chip, numbers, sizeof chip);
    if (d->kind == CONV) {
        const ek_nna_conv_args args = {s[0], s[1], s[2],     s[3],     s[4], s[5],
                                       s[6], s[7], parts[0], parts[1], sums};
        ek_nna_conv(&chip, &args, report);
    } else if (d->kind == POINTWISE) {
        const ek_nna_pointwise_args args = {s[0], s[1], s[2], parts[0], parts[1], sums};
        ek_nna_pointwise(&chip, &args, report);
    } else {
        const ek_nna_matmul_args args = {s[0], s[1], s[2], parts[0], parts[1], parts[2], sums};
        ek_nna_matmul(&chip, &args, report);
    }
}

static char *run_case(const char **from, char *to, ek_pool *pool) {
    (void)pool;
    description d;
    void *parts[PARTS];
    take(from, &d, sizeof d);
    take_parts(from, PARTS, d.bytes, parts);
    int32_t *sums = block((size_t)d.sums_bytes);
    ek_nna_counters counters = {0};
    ek_nna_event *events = block(100 * sizeof *events);
    ek_nna_report timed = {&counters, events, 100, 0}, untimed = {NULL, NULL, 0, 0};
    multiply(&d, parts, sums, &timed);
    memcpy(to, &counters, sizeof counters);
    to += sizeof counters;
    memset(sums, 0xA5, (size_t)d.sums_bytes);
    multiply(&d, parts, sums, &untimed);
    memcpy(to, sums, (size_t)d.sums_bytes);
    free_parts(PARTS, parts);
    free(events);
    free(sums);
    return to + d.sums_bytes;
}
