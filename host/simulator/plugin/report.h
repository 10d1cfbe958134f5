// Writes the costs of regions as JSON.
#ifndef EK_REPORT_H
#define EK_REPORT_H

#include "threads.h"

struct ek_tally {
    uint64_t cycles, instructions, bound[EK_BOUNDS];
};

void ek_report_begin(const struct ek_thread *thread);
// Ends a thread's lap; `own`: the thread is the region's own.
void ek_report_lap(const struct ek_thread *thread, bool own);
// Assigns time stamp `index` to the thread's last lap.
void ek_report_stamp(const struct ek_thread *thread, int32_t index);
void ek_report_end(const struct ek_thread *thread);
// Records that an instruction was executed that is unknown or unsupported by the model's core.
void ek_report_unknown(unsigned model, const struct ek_block *block,
                       const struct ek_variant *variant);
// Writes the file; returns false on failure.
bool ek_report_write(const char *path);

#endif
