// The program's threads, each on its own core, run one at a time in the order of their clocks.
#ifndef EK_THREADS_H
#define EK_THREADS_H

#include <pthread.h>

#include "calls.h"
#include "pipeline.h"

// Maximum lead of a thread over the next: cycles in a region, instructions outside.
enum { EK_MAX_THREADS = EK_MAX_CORES, EK_QUANTUM = 1000, EK_QUANTUM_OUTSIDE = 100000 };

struct ek_thread {
    struct ek_block *last; // executing, until the next one begins
    struct ek_run run;
    struct ek_cpu *cpu[EK_MAX_MODELS];
    uint64_t outside;       // instructions since the last region, when core clocks stop
    _Atomic uint64_t limit; // the clock at which another thread gets the turn
    bool alive;
    bool calling;        // without the turn, in a system call that may wait
    bool unsettled;      // calling, and not known whether it sleeps
    enum ek_call call;   // current system call
    _Atomic bool inside; // in the call itself, not in our callbacks before and after
    _Atomic long id;     // of the host thread, 0: not started yet
    unsigned halts;      // how often it left its callback so that the emulator could halt threads
    pthread_cond_t turn;
    unsigned number;  // of its vcpu
    uint64_t refused; // where the program continues after a refused instruction; 0: none
    bool handling;    // of that instruction: nothing counts
    bool due;         // the last lap has not been identified by a time stamp yet
    unsigned same;    // consecutive quiet blocks that read one place
    uint64_t place;
};

struct ek_model {
    struct ek_core core;
    struct ek_shared shared;
};

struct ek_machine {
    struct ek_model *model[EK_MAX_MODELS];
    unsigned models, threads;
    struct ek_thread *thread[EK_MAX_THREADS]; // by vcpu
    _Atomic bool scheduled;                   // there are several threads, which take turns
};

extern struct ek_machine ek_machine;

// The thread of a vcpu, created when first seen; NULL beyond EK_MAX_THREADS.
struct ek_thread *ek_thread_of(unsigned vcpu);
// A thread of the program starts, at the clock of its creator, or ends.
void ek_thread_start(struct ek_thread *thread);
void ek_thread_end(struct ek_thread *thread);
// Starts modeling a thread's cores, at the clock of the thread that has the turn. False if out of
// memory.
bool ek_thread_begin(struct ek_thread *thread);

// Returns when it is the thread's turn; or, if it `may_leave`, when the emulator wants to halt all
// threads.
void ek_thread_arrive(struct ek_thread *thread, bool may_leave);
// Called at the start of a block: gives up the turn if another thread is due.
void ek_thread_turn(struct ek_thread *thread);
// Whether other threads could run now.
bool ek_thread_has_others(const struct ek_thread *thread);
// Begins a region with this thread having the turn, or ends it.
void ek_threads_start(struct ek_thread *thread);
void ek_threads_stop(void);
// Called before and after a system call.
void ek_thread_call(struct ek_thread *thread, enum ek_call call);
void ek_thread_return(struct ek_thread *thread, int64_t result);

#endif
