/* ek_bench, and stamps from ticks to nanoseconds. */
#include "../ek.h"
#include "clock.h"

int ek_operators(void);

/* The ticks of one inference become nanoseconds since its start, by its own length. */
void ek_stamps_finish(uint64_t *stamps, int operators, uint64_t nanoseconds) {
    uint64_t start = stamps[0], ticks = stamps[operators] - start;
    /* QEMU 7.2 fails where a vector conversion is the first vector instruction of floats that it
     * translates on a page (qemu-project issue 1441), and a few stamps gain nothing by vectors. */
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
