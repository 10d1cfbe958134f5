/* Samples of inferences in C programs, for device/runtime/agent/c_samples.py: docs/fleets.md. */
#ifndef EK_SAMPLES_H
#define EK_SAMPLES_H
#include <stddef.h>
#include <stdint.h>

typedef struct ek_sampler ek_sampler;

/* Of a release in the folder `root`, as ek_app_open has it; NULL where sampling is off, or there is
 * no memory for it. One thread at a time may use it. */
ek_sampler *ek_sampler_open(const char *root, const char *release, size_t operators, int threads);

/* Counts an inference; where its time stamps are to go, NULL if it is not sampled. */
uint64_t *ek_sampler_due(ek_sampler *s);

/* Takes the inference that was due. */
void ek_sampler_record(ek_sampler *s);

/* Writes what was collected; NULL is allowed. */
void ek_sampler_close(ek_sampler *s);

#endif
