/* Every thread has a queue of its own: the caller the first one, the same in every run, since what
 * a unit works on lies in the caches of its core. Of another queue it runs a step where that would
 * wait for a thread that never came, or lost its core; so such a unit holds nothing up, and one
 * thread alone runs everything in a possible order. */
#include "units.h"
#include <pthread.h>
#include <sched.h>
#include "clock.h"
#include "relax.h"

#define SPINS 2000 /* some tens of microseconds; then whoever we wait for may need the core */
#define PATIENCE                                                                                   \
    100 /* looks at a step that can run, about a microsecond, until its thread is gone */

typedef struct {
    _Alignas(64) atomic_int over; /* steps of this queue that are done */
    atomic_int held;
    atomic_int present; /* its own thread has come */
} progress;

typedef struct {
    const ek_inference *inference;
    const ek_queue *queues;
    int units;
    pthread_t caller;
    atomic_int others; /* threads that came beside the caller */
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

/* Whether queue u has a step that can run now and nobody has taken it. Only reads: a thread that
 * waits must not take away the line that the one at work is about to write. */
static int may_advance(timeline *t, int u) {
    int over = atomic_load_explicit(&t->of[u].over, memory_order_relaxed);
    return over < t->queues[u].count &&
           !atomic_load_explicit(&t->of[u].held, memory_order_relaxed) &&
           is_ready(t, &t->queues[u].steps[over]);
}

/* At most `most` steps of queue u that can run now; 1 if there was one. */
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

static int all_over(timeline *t) {
    for (int u = 0; u < t->units; u++)
        if (atomic_load_explicit(&t->of[u].over, memory_order_acquire) < t->queues[u].count)
            return 0;
    return 1;
}

/* One step of a queue whose own thread is not there, or let it wait for `looks` looks. */
static int help(timeline *t, int own, int *looks) {
    int waiting = 0;
    for (int u = 0; u < t->units; u++) {
        if (u == own || !may_advance(t, u))
            continue;
        int present = atomic_load_explicit(&t->of[u].present, memory_order_relaxed);
        if ((!present || *looks > PATIENCE) && advance(t, u, 1))
            return 1;
        waiting = 1;
    }
    *looks = waiting ? *looks + 1 : 0;
    return 0;
}

/* Tasks: one per unit, whichever a thread is given. */
static void work(const void *args, long begin, long end) {
    timeline *t = *(timeline *const *)args;
    (void)begin, (void)end;
    if (all_over(t))
        return;
    int own = 0, looks = 0;
    if (!pthread_equal(pthread_self(), t->caller))
        own = 1 + atomic_fetch_add_explicit(&t->others, 1, memory_order_relaxed);
    atomic_store_explicit(&t->of[own].present, 1, memory_order_relaxed);
    for (long spins = 0; !all_over(t); spins++) {
        if (advance(t, own, t->queues[own].count) || help(t, own, &looks))
            spins = looks = 0;
        else if (spins > SPINS)
            sched_yield();
        ek_relax();
    }
}

/* Step after step by number, each on the whole pool. */
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
    int whole = ek_pool_threads(inference->model->pool) > units;
    each.pool = whole ? inference->model->pool : NULL;
    timeline t = {.inference = &each, .queues = queues, .units = units, .caller = pthread_self()};
    timeline *shared = &t;
    atomic_init(&t.others, 0);
    for (int u = 0; u < units; u++) {
        atomic_init(&t.of[u].over, 0);
        atomic_init(&t.of[u].held, 0);
        atomic_init(&t.of[u].present, u == 0); /* the caller is sure to come */
    }
    if (whole)
        run_in_order(&t);
    else
        ek_parallel(inference->model->pool, work, &shared, units, 1);
}

void ek_stamps_add(uint64_t *stamps, int steps) {
    for (int s = 0; s < steps; s++)
        stamps[s + 1] += stamps[s];
}
