/* Runs products of the NNA that a file describes: a model whose one input is the cases of
 * nna_cases.py and whose one output is the counters and the sums of each, one after the other.
 * Every operand stands in a block of its own, so that sanitizers see the first byte too far. */
#include "cases_model.h"
#include "nna/nna.h"

enum { PARTS = 3 }; /* a, f, tail, or x, w and nothing */

typedef struct {
    int64_t convolution;
    int64_t chip[7], shape[7]; /* in the order of ek_nna_chip and of the arguments */
    int64_t bytes[PARTS], sums_bytes;
} description;

static void multiply(const description *d, int8_t *const parts[PARTS], int32_t *sums,
                     ek_nna_report *report) {
    const int64_t *s = d->shape;
    int32_t numbers[7];
    for (int i = 0; i < 7; i++)
        numbers[i] = (int32_t)d->chip[i];
    ek_nna_chip chip;
    memcpy(&chip, numbers, sizeof chip);
    if (d->convolution) {
        const ek_nna_conv_args args = {s[0], s[1], s[2],     s[3],     s[4],
                                       s[5], s[6], parts[0], parts[1], sums};
        ek_nna_conv(&chip, &args, report);
    } else {
        const ek_nna_matmul_args args = {s[0], s[1], s[2], parts[0], parts[1], parts[2], sums};
        ek_nna_matmul(&chip, &args, report);
    }
}

int ek_run(const ek_model *m, const void *const *in, void *const *out) {
    (void)m;
    const char *from = in[0];
    char *to = out[0];
    int64_t count;
    memcpy(&count, from, sizeof count);
    from += sizeof count;
    for (int64_t i = 0; i < count; i++) {
        description d;
        int8_t *parts[PARTS];
        memcpy(&d, from, sizeof d);
        from += sizeof d;
        for (int p = 0; p < PARTS; p++) {
            parts[p] = block(d.bytes[p]);
            memcpy(parts[p], from, (size_t)d.bytes[p]);
            from += d.bytes[p];
        }
        int32_t *sums = block(d.sums_bytes);
        ek_nna_counters counters = {0};
        ek_nna_event *events = block(100 * (int64_t)sizeof *events);
        ek_nna_report timed = {&counters, events, 100, 0}, untimed = {NULL, NULL, 0, 0};
        multiply(&d, parts, sums, &timed);
        memcpy(to, &counters, sizeof counters);
        to += sizeof counters;
        memset(sums, 0xA5, (size_t)d.sums_bytes);
        multiply(&d, parts, sums, &untimed);
        memcpy(to, sums, (size_t)d.sums_bytes);
        to += d.sums_bytes;
        for (int p = 0; p < PARTS; p++)
            free(parts[p]);
        free(events);
        free(sums);
    }
    return 0;
}
