/* Gathers elements along an axis. Compile-time parameters: NAME, EK_SIMD, TI (type of indices). */
#include "gather.h"

/* Task: outer x index. Reads stay inside x whatever the index. */
void NAME(const void *args, long begin, long end) {
    const ek_gather_args *a = args;
    for (long t = begin; t < end; t++) {
        long at = (long)((const TI *)a->indices)[t % a->count];
        at = ek_max(0, ek_min(at < 0 ? at + a->size : at, a->size - 1));
        const char *from = (const char *)a->x + (t / a->count * a->size + at) * a->run;
        char *to = (char *)a->y + t * a->pitch;
        if (a->run == 4)
            memcpy(to, from, 4);
        else
            memcpy(to, from, a->run);
    }
}
