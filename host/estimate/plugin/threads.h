// Threads of the program, each on a core of its own, run one at a time in the order of their
// clocks.
#ifndef EK_THREADS_H
#define EK_THREADS_H

#include "pipeline.h"

enum { EK_MAX_THREADS = EK_MAX_CORES, EK_QUANTUM = 1000 };

struct ek_thread {
    struct ek_block *last; // runs, until the next one begins
    struct ek_run run;
    struct ek_cpu *cpu[EK_MAX_MODELS];
    uint64_t limit;              // the clock at which another thread has its turn
    bool alive, joined, calling; // calling: asleep in the system
    bool entering;               // about to be
    long id;                     // of the host's thread
    unsigned same;               // runs of quiet blocks that read one place
    uint64_t place;
    uint64_t futex;
    int64_t asleep; // how many slept on that futex when this thread woke some
};

struct ek_model {
    struct ek_core core;
    struct ek_shared shared;
};

struct ek_machine {
    struct ek_model *model[EK_MAX_MODELS];
    unsigned models, threads;
    struct ek_thread *thread[EK_MAX_THREADS]; // by vcpu
};

extern struct ek_machine ek_machine;

// The thread of a vcpu, made when it is first seen; NULL beyond EK_MAX_THREADS.
struct ek_thread *ek_thread_of(unsigned vcpu);
// Its cores begin to be modelled, at the clock of the one that asks. False without memory.
bool ek_thread_begin(struct ek_thread *thread);
void ek_thread_end(struct ek_thread *thread);

// A block begins: returns when it is the thread's turn.
void ek_thread_turn(struct ek_thread *thread, bool pauses);
// A region begins with this thread's turn, or ends.
void ek_threads_start(struct ek_thread *thread);
void ek_threads_stop(void);
// Calls of the system: `futex` is the address of a futex call, 0 for others.
void ek_thread_call(struct ek_thread *thread, uint64_t futex, bool waits);
void ek_thread_return(struct ek_thread *thread, int64_t result);

#endif
