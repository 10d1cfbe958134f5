// What regions took, as JSON.
#ifndef EK_REPORT_H
#define EK_REPORT_H

#include "threads.h"

struct ek_tally {
    uint64_t cycles, instructions, bound[EK_BOUNDS];
};

void ek_report_begin(const struct ek_thread *thread);
// A lap of a thread ends; `own`: of the one whose region it is.
void ek_report_lap(const struct ek_thread *thread, bool own);
// Its lap that ended last is the one before the program's time stamp `index`.
void ek_report_stamp(const struct ek_thread *thread, int32_t index);
void ek_report_end(const struct ek_thread *thread);
// An instruction that is not known, or that the model's core lacks, ran.
void ek_report_unknown(unsigned model, const struct ek_block *block,
                       const struct ek_variant *variant);
// Writes the file; false if it cannot.
bool ek_report_write(const char *path);

#endif
