/* Queues files in a bounded folder for device/runtime/agent/c_samples.py. */
#ifndef EK_PUT_H
#define EK_PUT_H
#include <stddef.h>

/* Writes <number>-<uuid>.json, numbered after all existing files. The write is atomic across power
 * loss. The oldest files are deleted to make space, and `dropped` is increased by their number.
 * Returns whether it succeeded. */
int ek_put(const char *folder, const char *uuid, const char *data, size_t size,
           unsigned long long *dropped);

#endif
