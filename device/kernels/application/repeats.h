/* The shadow check of C programs: another process repeats some inferences with the release's float
 * model, device/runtime/agent/repeats.py. */
#ifndef EK_REPEATS_H
#define EK_REPEATS_H
typedef struct ek_repeats ek_repeats;

/* NULL if the release in folder `root` has no float model, sampling is off or the process does not
 * start. One thread at a time may use it. */
ek_repeats *ek_repeats_open(const char *root, const char *release);

/* Call the first before an inference with the model's state and inputs, which it copies if the
 * inference will be repeated, and the second after it with the outputs. They accept NULL. */
void ek_repeats_begin(ek_repeats *r, const void *state, const void *const *in);
void ek_repeats_end(ek_repeats *r, void *const *out);

/* The other process then writes its results and ends; accepts NULL. */
void ek_repeats_close(ek_repeats *r);

#endif
