// Who runs is whose clock is least: a thread waits in its callback until it is its turn, so what
// threads do to each other (caches, bandwidth, locks) happens in the order of the modelled clocks
// and not of the host's. Where that would stop the emulator (it halts all threads to change its
// translations) a thread goes on after a while.
#include "threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { REST_MS = 10, PATIENCE = 30, WAKES = 64, TRIES = 1000 }; // patience: rests without progress

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

// Nothing happened to a thread before the clock of another.
static void wait_for(struct ek_thread *thread, const struct ek_thread *other) {
    for (unsigned model = 0; model < ek_machine.models; model++)
        if (thread->cpu[model] && other->cpu[model])
            ek_cpu_wait(thread->cpu[model], other->cpu[model]->now + 1);
}

// Whether the host's thread sleeps.
static bool sleeps(const struct ek_thread *thread) {
    char path[64], text[128] = "";
    snprintf(path, sizeof path, "/proc/self/task/%ld/stat", thread->id);
    FILE *file = fopen(path, "r");
    if (!file)
        return true;
    const char *state = fgets(text, sizeof text, file) ? text : "";
    fclose(file);
    while (*state && *state != ')')
        state++;
    return *state == 0 || state[2] == 'S';
}

// Those who called the system to wait sleep, or are back because they need not.
static void settle(void) {
    for (unsigned i = 0; i < ek_machine.threads; i++) {
        struct ek_thread *thread = ek_machine.thread[i];
        for (int tries = 0; thread && thread->alive && thread->entering && tries < TRIES; tries++) {
            pthread_mutex_unlock(&lock);
            bool asleep = sleeps(thread);
            if (!asleep)
                sched_yield();
            pthread_mutex_lock(&lock);
            if (asleep)
                thread->entering = false;
        }
    }
}

static void give_turn(void) {
    running = NULL;
    settle();
    if (running || !(running = first(NULL)))
        return;
    const struct ek_thread *next = first(running);
    running->limit = next ? clock_of(next) + EK_QUANTUM : ~(uint64_t)0;
    switches++;
    pthread_cond_broadcast(&turn);
}

static bool rest(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += REST_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    return pthread_cond_timedwait(&turn, &lock, &until) == 0;
}

static void await_turn(struct ek_thread *thread) {
    uint64_t seen = 0;
    for (int idle = 0; scheduled && running != thread;) {
        if (!running) {
            give_turn();
            continue;
        }
        uint64_t before = seen;
        if (rest())
            continue;
        seen = switches + clock_of(running);
        idle = seen == before ? idle + 1 : 0;
        if (idle == PATIENCE) { // stopped by the emulator, or in a call that is not known to wait
            running->joined = false;
            idle = 0;
            give_turn();
        }
    }
}

static bool begin(struct ek_thread *thread) {
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

bool ek_thread_begin(struct ek_thread *thread) {
    if (thread->cpu[ek_machine.models - 1])
        return true;
    pthread_mutex_lock(&lock);
    bool begun = begin(thread);
    pthread_mutex_unlock(&lock);
    return begun;
}

void ek_thread_turn(struct ek_thread *thread, bool pauses) {
    if (!scheduled || (thread->joined && !pauses && clock_of(thread) < thread->limit))
        return;
    pthread_mutex_lock(&lock);
    if (!thread->joined) {
        thread->joined = true;
        thread->calling = false;
        if (running) {
            wait_for(thread, running);
            running->limit = clock_of(running); // it looks around before it goes on
        }
        await_turn(thread);
    } else {
        const struct ek_thread *next = first(thread);
        // nothing that it waits for happens before another thread has run
        if (pauses && next)
            wait_for(thread, next);
        if (running == thread)
            give_turn();
        await_turn(thread);
    }
    pthread_mutex_unlock(&lock);
}

void ek_threads_start(struct ek_thread *thread) {
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < ek_machine.threads; i++) {
        struct ek_thread *other = ek_machine.thread[i];
        if (other)
            other->joined = other->alive && begin(other);
    }
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
        }
    }
    running = thread;
    thread->limit = first(thread) ? clock_of(thread) + EK_QUANTUM : ~(uint64_t)0;
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

static int64_t sleeping(uint64_t futex) {
    int64_t count = 0;
    for (unsigned i = 0; i < ek_machine.threads; i++) {
        const struct ek_thread *thread = ek_machine.thread[i];
        count += thread && thread->alive && thread->calling && thread->futex == futex;
    }
    return count;
}

void ek_thread_call(struct ek_thread *thread, uint64_t futex, bool waits) {
    pthread_mutex_lock(&lock);
    thread->futex = futex;
    thread->calling = waits;
    if (waits && scheduled && running == thread) {
        thread->id = syscall(SYS_gettid);
        thread->entering = true;
        running = NULL; // whoever waits for a turn looks who is next
        pthread_cond_broadcast(&turn);
    }
    if (futex && !waits && thread->cpu[0]) {
        wakes[futex / 4 % WAKES].futex = futex;
        wakes[futex / 4 % WAKES].time = clock_of(thread);
        thread->asleep = sleeping(futex);
    }
    pthread_mutex_unlock(&lock);
}

void ek_thread_return(struct ek_thread *thread, int64_t result) {
    pthread_mutex_lock(&lock);
    if (thread->calling) {
        thread->calling = thread->entering = false;
        uint64_t time = clock_of(thread), slot = thread->futex / 4 % WAKES;
        if (thread->futex && wakes[slot].futex == thread->futex)
            time = wakes[slot].time;
        for (unsigned model = 0; scheduled && model < ek_machine.models; model++)
            if (thread->cpu[model])
                ek_cpu_wait(thread->cpu[model], time);
        thread->joined = thread->joined || (scheduled && thread->cpu[0] && thread->futex);
        switches++;
        pthread_cond_broadcast(&turn);
        if (running)
            running->limit = 0;
        if (thread->joined)
            await_turn(thread);
    } else if (scheduled && thread->futex && result > 0) {
        // those who were woken are back before the one who woke them goes on
        for (int idle = 0; idle < PATIENCE && sleeping(thread->futex) + result > thread->asleep;)
            idle += rest() ? 0 : 1;
    }
    pthread_mutex_unlock(&lock);
}
