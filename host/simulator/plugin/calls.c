#include "calls.h"

#include <stddef.h>

enum { CLONE = 220, CLONE_ARM = 120, FUTEX = 98, FUTEX_ARM = 240, FUTEX_TIME64_ARM = 422 };
enum { CLONE_VM = 0x100, CLONE_VFORK = 0x4000 };
enum { FUTEX_WAIT = 0, FUTEX_LOCK_PI = 6, FUTEX_WAIT_BITSET = 9, FUTEX_OPERATION = 127 };

static const struct {
    int64_t number, arm;
    enum ek_call call;
} calls[] = {
    {101, 162, EK_CALL_SLEEPS}, // nanosleep
    {115, 265, EK_CALL_SLEEPS}, // clock_nanosleep
    {73, 336, EK_CALL_SLEEPS},  // ppoll
    {22, 346, EK_CALL_SLEEPS},  // epoll_pwait
    {63, 3, EK_CALL_SLEEPS},    // read
    {260, 114, EK_CALL_SLEEPS}, // wait4
    {124, 158, EK_CALL_YIELDS}, // sched_yield
    {94, 248, EK_CALL_EXITS},   // exit_group
};

enum ek_call ek_call_of(bool arm, int64_t number, uint64_t a1, uint64_t a2) {
    if (number == (arm ? CLONE_ARM : CLONE))
        return a1 & CLONE_VM && !(a1 & CLONE_VFORK) ? EK_CALL_CREATES : EK_CALL_FORKS;
    if (number == (arm ? FUTEX_ARM : FUTEX) || (arm && number == FUTEX_TIME64_ARM)) {
        int operation = (int)(a2 & FUTEX_OPERATION);
        bool waits =
            operation == FUTEX_WAIT || operation == FUTEX_WAIT_BITSET || operation == FUTEX_LOCK_PI;
        return waits ? EK_CALL_SLEEPS : EK_CALL_WAKES;
    }
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (number == (arm ? calls[i].arm : calls[i].number))
            return calls[i].call;
    return EK_CALL_OTHER;
}
