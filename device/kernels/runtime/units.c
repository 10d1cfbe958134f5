/* Every thread has its own queue, the caller the first; queues are the same in every run, because a
 * unit's data is in its core's caches. A thread runs a step of another queue if that queue's thread
 * never arrived or was preempted. So no unit blocks the others, and a single thread runs everything
 * in a valid order. */
#include "units.h"
#include <pthread.h>
#include <sched.h>
#include "clock.h"
#include "relax.h"

#define SPINS 2000 /* tens of microseconds; then the awaited thread may need the core */
#define PRESUMED_GONE                                                                              \
    100 /* polls of a runnable step, about a microsecond, until its thread is presumed gone */

typedef struct {
    _Alignas(64) atomic_int over; /* steps of this queue that are done */
    atomic_int held;
    atomic_int present; /* its own thread has arrived */
} progress;

typedef struct {
    const ek_inference *inference;
    const ek_queue *queues;
    int units;
    pthread_t caller;
    atomic_int others; /* threads that arrived besides the caller */
    progress of[EK_UNITS];
} timeline;

static int is_ready(timeline *t, const ek_step *step) {
    for (int u = 0; u < t->units; u++)
        if (atomic_load_explicit(&t->of[u].over, memory_order_acquire) < step->after[u])
            return 0;
    return 1;
}

static void run_step(const timeline *t, const ek_step *step) {
    uint64_t *stamps = t->inference->model->stamps, start = stamps ? ek_ticks() : 0;
    step->run(t->inference, step->number);
    if (stamps)
        stamps[t->inference->first + step->number + 1] = ek_ticks() - start;
}

/* Whether queue u has a runnable step that nobody has taken. Read-only, so that waiting threads do
 * not steal the cache line that the working thread is about to write. */
static int may_advance(timeline *t, int u) {
    int over = atomic_load_explicit(&t->of[u].over, memory_order_relaxed);
    return over < t->queues[u].count &&
           !atomic_load_explicit(&t->of[u].held, memory_order_relaxed) &&
           is_ready(t, &t->queues[u].steps[over]);
}

/* Runs at most `most` runnable steps of queue u; returns 1 if there was any. */
static int advance(timeline *t, int u, int most) {
    progress *mine = &t->of[u];
    const ek_queue *queue = &t->queues[u];
    if (!may_advance(t, u) || atomic_exchange_explicit(&mine->held, 1, memory_order_acquire))
        return 0;
    int first = atomic_load_explicit(&mine->over, memory_order_relaxed), next = first;
    int end = ek_min(queue->count, first + most);
    while (next < end && is_ready(t, &queue->steps[next])) {
        run_step(t, &queue->steps[next]);
        atomic_store_explicit(&mine->over, ++next, memory_order_release);
    }
    atomic_store_explicit(&mine->held, 0, memory_order_release);
    return next > first;
}

static int all_done(timeline *t) {
    for (int u = 0; u < t->units; u++)
        if (atomic_load_explicit(&t->of[u].over, memory_order_acquire) < t->queues[u].count)
            return 0;
    return 1;
}

/* Runs one step of a queue whose own thread is absent, or has left it waiting for more than
 * PRESUMED_GONE polls. */
static int help(timeline *t, int own, int *looks) {
    int waiting = 0;
    for (int u = 0; u < t->units; u++) {
        if (u == own || !may_advance(t, u))
            continue;
        int present = atomic_load_explicit(&t->of[u].present, memory_order_relaxed);
        if ((!present || *looks > PRESUMED_GONE) && advance(t, u, 1))
            return 1;
        waiting = 1;
    }
    *looks = waiting ? *looks + 1 : 0;
    return 0;
}

/* Task: one per unit; threads choose their queue on arrival. */
static void work(const void *args, long begin, long end) {
    timeline *t = *(timeline *const *)args;
    (void)begin, (void)end;
    if (all_done(t))
        return;
    int own = 0, looks = 0;
    if (!pthread_equal(pthread_self(), t->caller))
        own = 1 + atomic_fetch_add_explicit(&t->others, 1, memory_order_relaxed);
    atomic_store_explicit(&t->of[own].present, 1, memory_order_relaxed);
    for (long spins = 0; !all_done(t); spins++) {
        if (advance(t, own, t->queues[own].count) || help(t, own, &looks))
            spins = looks = 0;
        else if (spins > SPINS)
            sched_yield();
        ek_relax();
    }
}

/* Runs the steps in the order of their numbers, each on the entire pool. */
static void run_in_order(timeline *t) {
    for (;;) {
        const ek_step *next = NULL;
        int unit = 0;
        for (int u = 0; u < t->units; u++) {
            int over = atomic_load_explicit(&t->of[u].over, memory_order_relaxed);
            const ek_step *step = t->queues[u].steps + over;
            if (over < t->queues[u].count && (!next || step->number < next->number)) {
                next = step;
                unit = u;
            }
        }
        if (!next)
            return;
        run_step(t, next);
        atomic_fetch_add_explicit(&t->of[unit].over, 1, memory_order_relaxed);
    }
}

void ek_run_units(const ek_inference *inference, const ek_queue *queues, int units) {
    ek_inference each = *inference;
    ek_pool *pool = inference->model->pool;
    int sequential = ek_pool_threads(pool) > units || !ek_pool_is_elsewhere(pool);
    each.pool = sequential ? pool : NULL;
    timeline t = {.inference = &each, .queues = queues, .units = units, .caller = pthread_self()};
    timeline *shared = &t;
    atomic_init(&t.others, 0);
    for (int u = 0; u < units; u++) {
        atomic_init(&t.of[u].over, 0);
        atomic_init(&t.of[u].held, 0);
        atomic_init(&t.of[u].present, u == 0); /* the caller always arrives */
    }
    if (sequential)
        run_in_order(&t);
    else
        ek_parallel(pool, work, &shared, units, 1);
}

void ek_stamps_add(uint64_t *stamps, int steps) {
    for (int s = 0; s < steps; s++)
        stamps[s + 1] += stamps[s];
}
