/* Samples inference times in C programs, for device/runtime/agent/c_samples.py: docs/fleets.md. */
#ifndef EK_SAMPLES_H
#define EK_SAMPLES_H
#include <stddef.h>
#include <stdint.h>

typedef struct ek_sampler ek_sampler;

/* Sampler of a variant of a release in folder `root` of ek_app_open; NULL if sampling is off or
 * memory is short. One thread at a time may use it. */
ek_sampler *ek_sampler_open(const char *root, const char *release, int variant, size_t operators,
                            int threads);

/* Counts an inference. Returns where to store its time stamps, or NULL if it is not sampled. */
uint64_t *ek_sampler_due(ek_sampler *s);

/* Records the inference whose time stamps were requested. */
void ek_sampler_record(ek_sampler *s);

/* Writes the remaining samples; accepts NULL. */
void ek_sampler_close(ek_sampler *s);

#endif
