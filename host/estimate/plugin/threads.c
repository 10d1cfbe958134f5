// Who runs is whose clock is least: a thread waits in its callback until it is its turn, so what
// threads do to each other (caches, bandwidth, locks) happens in the order of the modelled clocks
// and not of the host's. Where that would stop the emulator (it halts all threads to change its
// translations) a thread goes on after a while.
#include "threads.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { PATIENCE_MS = 20, WAKES = 64 };

struct ek_machine ek_machine;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static struct ek_thread *running;
static bool scheduled;
static uint64_t switches;
static struct {
    uint64_t futex, time;
} wakes[WAKES];

struct ek_thread *ek_thread_of(unsigned vcpu) {
    if (vcpu >= EK_MAX_THREADS)
        return NULL;
    if (!ek_machine.thread[vcpu]) {
        struct ek_thread *thread = calloc(1, sizeof *thread);
        if (!thread)
            abort();
        thread->alive = true;
        ek_machine.thread[vcpu] = thread;
        if (vcpu >= ek_machine.threads)
            ek_machine.threads = vcpu + 1;
    }
    return ek_machine.thread[vcpu];
}

static uint64_t clock_of(const struct ek_thread *thread) {
    return thread->cpu[0] ? thread->cpu[0]->now : 0;
}

static bool ready(const struct ek_thread *thread) {
    return thread && thread->alive && thread->joined && !thread->calling;
}

static struct ek_thread *first(const struct ek_thread *besides) {
    struct ek_thread *found = NULL;
    for (unsigned i = 0; i < ek_machine.threads; i++) {
        struct ek_thread *thread = ek_machine.thread[i];
        if (ready(thread) && thread != besides && (!found || clock_of(thread) < clock_of(found)))
            found = thread;
    }
    return found;
}

static void give_turn(void) {
    running = first(NULL);
    if (!running)
        return;
    const struct ek_thread *next = first(running);
    running->limit = next ? clock_of(next) + EK_QUANTUM : ~(uint64_t)0;
    switches++;
    pthread_cond_broadcast(&turn);
}

static bool rest(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += PATIENCE_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    return pthread_cond_timedwait(&turn, &lock, &until) == 0;
}

static void await_turn(struct ek_thread *thread) {
    uint64_t seen = switches;
    while (scheduled && running != thread) {
        if (!running)
            give_turn();
        else if (!rest() && seen == switches)
            return; // who has its turn is stopped by the emulator
        else
            seen = switches;
    }
}

bool ek_thread_begin(struct ek_thread *thread) {
    for (unsigned model = 0; model < ek_machine.models; model++) {
        if (thread->cpu[model])
            continue;
        struct ek_cpu *cpu = malloc(sizeof *cpu);
        if (!cpu || !ek_cpu_start(cpu, &ek_machine.model[model]->shared, model))
            return false;
        uint64_t now = 0;
        for (unsigned i = 0; i < ek_machine.threads; i++) {
            const struct ek_thread *other = ek_machine.thread[i];
            if (other == running && other && other->cpu[model])
                now = other->cpu[model]->now;
        }
        ek_cpu_wait(cpu, now);
        cpu->bound[EK_BOUND_WAIT] = 0;
        thread->cpu[model] = cpu;
    }
    return true;
}

void ek_thread_turn(struct ek_thread *thread, bool pauses) {
    if (!scheduled || (thread->joined && !pauses && clock_of(thread) < thread->limit))
        return;
    pthread_mutex_lock(&lock);
    if (!thread->joined) {
        thread->joined = true;
        thread->calling = false;
        if (running)
            running->limit = clock_of(running); // it looks around before it goes on
        await_turn(thread);
    } else {
        const struct ek_thread *next = first(thread);
        // nothing that it waits for happens before another thread has run
        for (unsigned model = 0; pauses && next && model < ek_machine.models; model++)
            if (next->cpu[model])
                ek_cpu_wait(thread->cpu[model], next->cpu[model]->now + 1);
        if (running == thread)
            give_turn();
        await_turn(thread);
    }
    pthread_mutex_unlock(&lock);
}

void ek_threads_start(struct ek_thread *thread) {
    pthread_mutex_lock(&lock);
    for (unsigned model = 0; model < ek_machine.models; model++) {
        uint64_t now = 0;
        for (unsigned i = 0; i < ek_machine.threads; i++) {
            const struct ek_thread *other = ek_machine.thread[i];
            if (other && other->cpu[model] && other->cpu[model]->now > now)
                now = other->cpu[model]->now;
        }
        for (unsigned i = 0; i < ek_machine.threads; i++) {
            struct ek_thread *other = ek_machine.thread[i];
            if (other && other->cpu[model])
                ek_cpu_wait(other->cpu[model], now);
            if (other)
                other->joined = other == thread;
        }
    }
    running = thread;
    thread->limit = ~(uint64_t)0;
    scheduled = true;
    pthread_mutex_unlock(&lock);
}

void ek_threads_stop(void) {
    pthread_mutex_lock(&lock);
    scheduled = false;
    running = NULL;
    pthread_cond_broadcast(&turn);
    pthread_mutex_unlock(&lock);
}

void ek_thread_end(struct ek_thread *thread) {
    pthread_mutex_lock(&lock);
    thread->alive = false;
    if (running == thread)
        give_turn();
    pthread_mutex_unlock(&lock);
}

void ek_thread_call(struct ek_thread *thread, uint64_t futex, bool waits) {
    pthread_mutex_lock(&lock);
    thread->futex = futex;
    thread->waits = waits;
    if (waits && scheduled) {
        thread->calling = true;
        if (running == thread)
            give_turn();
    } else if (futex && thread->cpu[0]) {
        wakes[futex / 4 % WAKES].futex = futex;
        wakes[futex / 4 % WAKES].time = clock_of(thread);
    }
    pthread_mutex_unlock(&lock);
}

// Those who were woken are back before the one who woke them goes on.
static void await_woken(const struct ek_thread *thread, int64_t woken) {
    for (int tries = 0; tries < 5; tries++) {
        int64_t sleeping = 0;
        for (unsigned i = 0; i < ek_machine.threads; i++) {
            const struct ek_thread *other = ek_machine.thread[i];
            sleeping += other && other->alive && other->calling && other->futex == thread->futex;
        }
        if (sleeping == 0 || woken <= 0)
            return;
        uint64_t seen = switches;
        rest();
        if (seen != switches)
            woken--;
    }
}

void ek_thread_return(struct ek_thread *thread, int64_t result) {
    pthread_mutex_lock(&lock);
    if (thread->calling) {
        thread->calling = false;
        uint64_t time = clock_of(thread);
        if (thread->futex && wakes[thread->futex / 4 % WAKES].futex == thread->futex)
            time = wakes[thread->futex / 4 % WAKES].time;
        for (unsigned model = 0; scheduled && model < ek_machine.models; model++)
            if (thread->cpu[model])
                ek_cpu_wait(thread->cpu[model], time);
        switches++;
        pthread_cond_broadcast(&turn);
        if (running)
            running->limit = 0;
        if (thread->joined)
            await_turn(thread);
    } else if (scheduled && thread->futex && result > 0)
        await_woken(thread, result);
    pthread_mutex_unlock(&lock);
}
