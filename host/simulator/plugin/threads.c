// Schedules the thread whose clock is lowest: others wait in their callbacks for their turn, so
// interactions between threads (caches, bandwidth, locks) happen in the order of the modeled clocks
// and not of the host's. No decision is made before it is known for each thread whether it sleeps
// in a system call or is about to return, however long that takes, so that the same threads are
// ready in every run. Only if the thread that has the turn keeps sleeping, in a call not known to
// wait or because the emulator halts all threads to change its translations, another one continues.
#include "threads.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { REST_MS = 10, MAX_IDLE_RESTS = 20, YIELDS = 50, POLL_US = 50 };
enum { AGAIN = -11 }; // -EAGAIN: did not wait

struct ek_machine ek_machine;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ek_thread *_Atomic running; // has the turn
static const struct ek_thread *ended;     // while it had the turn: threads waiting for it may wake
static struct ek_thread *creator;         // of the next thread
static uint64_t switches, quantum = EK_QUANTUM_OUTSIDE;
static struct ek_thread *newborn; // the thread it created last
static unsigned halts, settlers;

struct ek_thread *ek_thread_of(unsigned vcpu) {
    if (vcpu >= EK_MAX_THREADS)
        return NULL;
    if (!ek_machine.thread[vcpu]) {
        struct ek_thread *thread = calloc(1, sizeof *thread);
        if (!thread)
            abort();
        thread->alive = true;
        thread->number = vcpu;
        pthread_cond_init(&thread->turn, NULL);
        ek_machine.thread[vcpu] = thread;
        if (vcpu >= ek_machine.threads)
            ek_machine.threads = vcpu + 1;
    }
    return ek_machine.thread[vcpu];
}

static uint64_t clock_of(const struct ek_thread *thread) {
    return thread->outside + (thread->cpu[0] ? thread->cpu[0]->now : 0);
}

static struct ek_thread *first(const struct ek_thread *besides) {
    struct ek_thread *found = NULL;
    for (unsigned i = 0; i < ek_machine.threads; i++) {
        struct ek_thread *thread = ek_machine.thread[i];
        if (thread && thread->alive && !thread->calling && thread != besides &&
            (!found || clock_of(thread) < clock_of(found)))
            found = thread;
    }
    return found;
}

bool ek_thread_has_others(const struct ek_thread *thread) {
    return ek_machine.scheduled && thread->limit != ~(uint64_t)0;
}

static void set_limit(struct ek_thread *thread) {
    const struct ek_thread *next = first(thread);
    thread->limit = next ? clock_of(next) + quantum : ~(uint64_t)0;
}

// Advances an idle thread's clock to that of another.
static void wait_for(struct ek_thread *thread, const struct ek_thread *other) {
    for (unsigned model = 0; model < ek_machine.models; model++)
        if (thread->cpu[model] && other->cpu[model])
            ek_cpu_wait(thread->cpu[model], other->cpu[model]->now + 1);
    if (thread->outside < other->outside)
        thread->outside = other->outside;
}

// The host thread's state from /proc: 'S' is sleeping; 0: it no longer exists.
static char state_of(const struct ek_thread *thread) {
    char path[64], text[128] = "";
    snprintf(path, sizeof path, "/proc/self/task/%ld/stat", thread->id);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    const char *state = fgets(text, sizeof text, file) ? text : "";
    fclose(file);
    while (*state && *state != ')')
        state++;
    return *state ? state[2] : 0;
}

// Releases the lock for a moment, for longer after several attempts.
static void poll(int looks) {
    pthread_mutex_unlock(&lock);
    if (looks < YIELDS)
        sched_yield();
    else
        nanosleep(&(struct timespec){0, POLL_US * 1000}, NULL);
    pthread_mutex_lock(&lock);
}

// Waits until it is known for all threads in a call whether they sleep in it or have returned.
static void settle(void) {
    settlers++;
    for (int looks = 0; ended && state_of(ended); looks++)
        poll(looks);
    for (unsigned i = 0; i < ek_machine.threads; i++) {
        struct ek_thread *thread = ek_machine.thread[i];
        if (thread && ended)
            thread->unsettled = thread->calling; // it may have waited for that thread to end
        for (int looks = 0; thread && thread->alive && thread->unsettled; looks++) {
            // if still inside after sleeping, it did not sleep on a lock of ours
            if (state_of(thread) == 'S' && thread->inside)
                thread->unsettled = false;
            else
                poll(looks);
        }
    }
    ended = NULL;
    settlers--;
}

static void give_turn(void) {
    running = NULL;
    settle();
    if (running)
        return;
    struct ek_thread *next = first(NULL);
    if (!next)
        return;
    set_limit(next);
    running = next;
    switches++;
    pthread_cond_signal(&next->turn);
}

static void wake_everyone(void) {
    for (unsigned i = 0; i < ek_machine.threads; i++)
        if (ek_machine.thread[i])
            pthread_cond_signal(&ek_machine.thread[i]->turn);
}

static bool rest(struct ek_thread *thread) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += REST_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    return pthread_cond_timedwait(&thread->turn, &lock, &until) == 0;
}

// Handles a thread that has the turn but sleeps and will not continue by itself.
static void skip_sleeper(struct ek_thread *asleep) {
    if (asleep->inside) {
        asleep->calling = true;
        give_turn();
    } else {
        halts++;
        wake_everyone();
    }
}

static void await_turn(struct ek_thread *thread, bool may_leave) {
    uint64_t seen = 0;
    int idle = 0;
    while (ek_machine.scheduled && running != thread) {
        struct ek_thread *other = running;
        if (!other) {
            give_turn();
            continue;
        }
        if (thread->halts != halts) {
            thread->halts = halts;
            if (may_leave)
                return;
        }
        if (rest(thread) || other != running)
            continue;
        pthread_mutex_unlock(&lock); // it must not sleep because of us
        bool asleep = other->id && state_of(other) == 'S';
        pthread_mutex_lock(&lock);
        uint64_t before = seen;
        seen = switches + clock_of(other);
        idle = asleep && settlers == 0 && other == running && seen == before ? idle + 1 : 0;
        if (idle == MAX_IDLE_RESTS) {
            idle = 0;
            skip_sleeper(other);
        }
    }
}

static bool begin(struct ek_thread *thread) {
    const struct ek_thread *other = running;
    for (unsigned model = 0; model < ek_machine.models; model++) {
        if (thread->cpu[model])
            continue;
        struct ek_cpu *cpu = malloc(sizeof *cpu);
        if (!cpu || !ek_cpu_start(cpu, &ek_machine.model[model]->shared, model))
            return false;
        ek_cpu_wait(cpu, other && other->cpu[model] ? other->cpu[model]->now : 0);
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

void ek_thread_start(struct ek_thread *thread) {
    pthread_mutex_lock(&lock);
    thread->alive = true;
    thread->calling = thread->unsettled = thread->inside = false;
    thread->id = 0;
    thread->halts = halts;
    thread->last = NULL;
    if (creator && creator != thread) {
        newborn = thread;
        if (!ek_machine.scheduled)
            running = creator;
        ek_machine.scheduled = true;
        if (creator->cpu[0])
            begin(thread);
        wait_for(thread, creator);
        thread->outside = creator->outside;
        set_limit(creator);
    }
    pthread_mutex_unlock(&lock);
}

void ek_thread_end(struct ek_thread *thread) {
    pthread_mutex_lock(&lock);
    thread->alive = false;
    if (running == thread) {
        ended = thread;
        running = NULL;
        struct ek_thread *next = first(NULL);
        if (next)
            pthread_cond_signal(&next->turn);
    }
    pthread_mutex_unlock(&lock);
}

void ek_thread_arrive(struct ek_thread *thread, bool may_leave) {
    if (!ek_machine.scheduled)
        return;
    if (!thread->id)
        thread->id = syscall(SYS_gettid);
    if (running == thread)
        return;
    pthread_mutex_lock(&lock);
    await_turn(thread, may_leave);
    pthread_mutex_unlock(&lock);
}

void ek_thread_turn(struct ek_thread *thread) {
    if (!ek_machine.scheduled || clock_of(thread) < thread->limit)
        return;
    pthread_mutex_lock(&lock);
    if (running == thread)
        give_turn();
    await_turn(thread, true);
    pthread_mutex_unlock(&lock);
}

void ek_threads_start(struct ek_thread *thread) {
    pthread_mutex_lock(&lock);
    quantum = EK_QUANTUM;
    for (unsigned i = 0; i < ek_machine.threads; i++) {
        struct ek_thread *other = ek_machine.thread[i];
        if (!other || !other->alive || !begin(other))
            continue;
        other->outside = 0;
        other->last = NULL;
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
    set_limit(thread);
    pthread_mutex_unlock(&lock);
}

void ek_threads_stop(void) {
    pthread_mutex_lock(&lock);
    quantum = EK_QUANTUM_OUTSIDE;
    if (running)
        set_limit(running);
    pthread_mutex_unlock(&lock);
}

// Charges a yielding thread with a quantum, which is about what the call would take.
static void yield_turn(struct ek_thread *thread) {
    if (quantum != EK_QUANTUM)
        thread->outside += quantum;
    for (unsigned model = 0; quantum == EK_QUANTUM && model < ek_machine.models; model++)
        if (thread->cpu[model])
            ek_cpu_wait(thread->cpu[model], thread->cpu[model]->now + quantum);
}

void ek_thread_call(struct ek_thread *thread, enum ek_call call) {
    if (!thread->id)
        thread->id = syscall(SYS_gettid);
    pthread_mutex_lock(&lock);
    thread->call = call;
    if (call == EK_CALL_CREATES)
        creator = thread;
    if (call == EK_CALL_EXITS) {
        ek_machine.scheduled = false;
        wake_everyone();
    }
    if (call == EK_CALL_YIELDS && ek_thread_has_others(thread))
        yield_turn(thread);
    if (call == EK_CALL_SLEEPS && ek_machine.scheduled) {
        thread->calling = thread->unsettled = true;
        running = NULL;
        struct ek_thread *next = first(NULL);
        if (next)
            pthread_cond_signal(&next->turn); // it waits until this thread sleeps
    }
    thread->inside = true;
    pthread_mutex_unlock(&lock);
}

// In a new process: the other threads do not exist there.
static void forget_others(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    ek_machine.scheduled = false;
    running = creator = NULL;
}

void ek_thread_return(struct ek_thread *thread, int64_t result) {
    thread->inside = false;
    if (thread->call == EK_CALL_FORKS && result == 0)
        forget_others();
    pthread_mutex_lock(&lock);
    enum ek_call call = thread->call;
    thread->call = EK_CALL_OTHER;
    if (thread->calling) {
        thread->calling = thread->unsettled = false;
        const struct ek_thread *waker = running ? running : ended;
        if (waker && result != AGAIN) {
            wait_for(thread, waker);
            if (running)
                set_limit(running);
        }
        await_turn(thread, false);
    } else if (call == EK_CALL_WAKES && result > 0 && running == thread) {
        for (unsigned i = 0; i < ek_machine.threads; i++)
            if (ek_machine.thread[i])
                ek_machine.thread[i]->unsettled = ek_machine.thread[i]->calling;
        settle(); // woken threads must be back before the one that woke them continues
        set_limit(thread);
    } else if (call == EK_CALL_CREATES) {
        while (result > 0 && !(newborn && newborn->id)) // the new thread must exist in every run
            rest(thread);
        creator = newborn = NULL;
    }
    pthread_mutex_unlock(&lock);
}
