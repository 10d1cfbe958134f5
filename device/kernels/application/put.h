/* Files that wait in a bounded folder for device/runtime/agent/c_samples.py. */
#ifndef EK_PUT_H
#define EK_PUT_H
#include <stddef.h>

/* Puts <number>-<uuid>.json there: whole or not there, whenever the power goes, and numbered after
 * all that are. The oldest make room for it; `dropped` is raised by how many. Whether it did. */
int ek_put(const char *folder, const char *uuid, const char *data, size_t size,
           unsigned long long *dropped);

#endif
