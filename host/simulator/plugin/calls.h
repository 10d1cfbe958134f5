// What calls of the system mean for the order of threads.
#ifndef EK_CALLS_H
#define EK_CALLS_H

#include <stdbool.h>
#include <stdint.h>

enum ek_call {
    EK_CALL_OTHER,
    EK_CALL_SLEEPS,  // waits for a futex, for time or for data
    EK_CALL_WAKES,   // those who wait for a futex
    EK_CALL_YIELDS,  // others may run
    EK_CALL_CREATES, // a thread
    EK_CALL_FORKS,   // a process
    EK_CALL_EXITS,   // ends the process
};

// `arm`: numbers are those of 32-bit ARM, not of A64 and RV64, which have the same.
enum ek_call ek_call_of(bool arm, int64_t number, uint64_t a1, uint64_t a2);

#endif
