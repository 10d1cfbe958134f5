/* Disturbances of an inference on this board; mirrors device/runtime/agent/noise.py and
 * probe.py. */
#ifndef EK_ENVIRONMENT_H
#define EK_ENVIRONMENT_H
#include <stdio.h>

/* A point in time: monotonic seconds, CPU seconds used since boot on the usable cores and by this
 * process, and the count of thermal throttling events; negative where the kernel does not report a
 * value. */
typedef struct {
    double clock, busy, own;
    long throttle_count;
} ek_moment;

ek_moment ek_moment_now(void);

/* Writes JSON members, each preceded by a comma: the board's state now and disturbances since
 * `before`; null where the kernel does not report a value. */
void ek_write_environment(FILE *to, const ek_moment *before);

#endif
