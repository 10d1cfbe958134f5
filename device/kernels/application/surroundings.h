/* What disturbs an inference on this board: device/runtime/agent/noise.py and probe.py in C. */
#ifndef EK_SURROUNDINGS_H
#define EK_SURROUNDINGS_H
#include <stdio.h>

/* A moment: seconds since some start, the CPU seconds that the usable cores were busy since then
 * and those of this process, and how often heat held the clock back; negative where the kernel does
 * not tell. */
typedef struct {
    double clock, busy, own;
    long held_back;
} ek_moment;

ek_moment ek_moment_now(void);

/* Writes members of a JSON object, a comma before each, that say how the board is now, and what
 * disturbed it since `before`; null where the kernel does not tell. */
void ek_write_surroundings(FILE *to, const ek_moment *before);

#endif
