// Classifies system calls by their effect on thread scheduling.
#ifndef EK_CALLS_H
#define EK_CALLS_H

#include <stdbool.h>
#include <stdint.h>

enum ek_call {
    EK_CALL_OTHER,
    EK_CALL_SLEEPS,  // waits for a futex, time or data
    EK_CALL_WAKES,   // wakes futex waiters
    EK_CALL_YIELDS,  // lets other threads run
    EK_CALL_CREATES, // creates a thread
    EK_CALL_FORKS,   // creates a process
    EK_CALL_EXITS,   // ends the process
};

// `arm`: numbers are for 32-bit ARM instead of A64 and RV64, which share theirs.
enum ek_call ek_call_of(bool arm, int64_t number, uint64_t a1, uint64_t a2);

#endif
