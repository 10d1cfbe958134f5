// Threads of the program, each on a core of its own, run one at a time in the order of their
// clocks.
#ifndef EK_THREADS_H
#define EK_THREADS_H

#include <pthread.h>

#include "calls.h"
#include "pipeline.h"

// How far a thread runs ahead of the next one: cycles in a region, instructions outside.
enum { EK_MAX_THREADS = EK_MAX_CORES, EK_QUANTUM = 1000, EK_QUANTUM_OUTSIDE = 100000 };

struct ek_thread {
    struct ek_block *last; // runs, until the next one begins
    struct ek_run run;
    struct ek_cpu *cpu[EK_MAX_MODELS];
    uint64_t outside;       // instructions since the last region: its cores' clocks stand still
    _Atomic uint64_t limit; // the clock at which another thread has its turn
    bool alive;
    bool calling;        // without the turn, in a call of the system that may wait
    bool unsettled;      // calling, and not known whether it sleeps
    enum ek_call call;   // that it is in
    _Atomic bool inside; // the call, and not in our callbacks before and after
    _Atomic long id;     // of the host's thread, 0: it has not come yet
    unsigned halts;      // how often it left its place so that the emulator can halt all threads
    pthread_cond_t turn;
    unsigned number; // of its vcpu
    bool due;        // the lap that ended last is not known by a time stamp yet
    unsigned same;   // runs of quiet blocks that read one place
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
    _Atomic bool scheduled;                   // there were several threads: they take turns
};

extern struct ek_machine ek_machine;

// The thread of a vcpu, made when it is first seen; NULL beyond EK_MAX_THREADS.
struct ek_thread *ek_thread_of(unsigned vcpu);
// A thread of the program starts, at the clock of the one that creates it, or ends.
void ek_thread_start(struct ek_thread *thread);
void ek_thread_end(struct ek_thread *thread);
// Its cores begin to be modelled, at the clock of the one that asks. False without memory.
bool ek_thread_begin(struct ek_thread *thread);

// Returns when it is the thread's turn; also when it `may_leave` and the emulator wants to halt
// all threads.
void ek_thread_arrive(struct ek_thread *thread, bool may_leave);
// A block begins: the same, if others are due.
void ek_thread_turn(struct ek_thread *thread);
// Whether other threads could run now.
bool ek_thread_has_others(const struct ek_thread *thread);
// A region begins with this thread's turn, or ends.
void ek_threads_start(struct ek_thread *thread);
void ek_threads_stop(void);
// Calls of the system, before and after.
void ek_thread_call(struct ek_thread *thread, enum ek_call call);
void ek_thread_return(struct ek_thread *thread, int64_t result);

#endif
