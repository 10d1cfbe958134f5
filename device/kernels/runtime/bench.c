/* ek_bench, and conversion of time stamps from ticks to nanoseconds. */
#include "../ek.h"
#include "clock.h"

int ek_operators(void);

/* Converts one inference's ticks to nanoseconds since its start, using its measured duration. */
void ek_stamps_finish(uint64_t *stamps, int operators, uint64_t nanoseconds) {
    uint64_t start = stamps[0], ticks = stamps[operators] - start;
    /* QEMU 7.2 fails if a vector conversion is the first floating-point vector instruction it
     * translates on a page (qemu-project issue 1441), and vectorizing a few stamps gains
     * nothing. */
#pragma clang loop vectorize(disable)
    for (int i = 0; i <= operators; i++)
        stamps[i] =
            ticks ? (uint64_t)((double)(stamps[i] - start) * (double)nanoseconds / (double)ticks)
                  : 0;
}

int ek_bench(const ek_model *m, const void *const *in, void *const *out, long count,
             uint64_t *times) {
    ek_model each = *m;
    for (long i = 0; i < count; i++) {
        uint64_t start = ek_nanoseconds();
        int failed = ek_run(&each, in, out);
        times[i] = ek_nanoseconds() - start;
        if (failed)
            return failed;
        if (each.stamps)
            each.stamps += ek_operators() + 1;
    }
    return 0;
}
