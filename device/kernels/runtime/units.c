/* A queue belongs to whoever holds it: a thread prefers the queue of its own number, and takes
 * another only while it cannot go on with that. So a unit whose thread never came, or lost its core
 * before it began, holds nothing up; and one thread alone runs everything in a possible order. */
#include "units.h"
#include <sched.h>
#include "clock.h"
#include "relax.h"

#define SPINS 2000 /* some tens of microseconds; then whoever we wait for may need the core */

typedef struct {
    _Alignas(64) atomic_int over; /* steps of this queue that are done */
    atomic_int held;
} progress;

typedef struct {
    const ek_inference *inference;
    const ek_queue *queues;
    int units;
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

/* Steps of queue u that can run now; 1 if there was one. */
static int advance(timeline *t, int u) {
    progress *mine = &t->of[u];
    const ek_queue *queue = &t->queues[u];
    if (!may_advance(t, u) || atomic_exchange_explicit(&mine->held, 1, memory_order_acquire))
        return 0;
    int first = atomic_load_explicit(&mine->over, memory_order_relaxed), next = first;
    while (next < queue->count && is_ready(t, &queue->steps[next])) {
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

/* Tasks: one per unit; whoever has none left helps the others to their end. */
static void work(const void *args, long begin, long end) {
    timeline *t = *(timeline *const *)args;
    (void)end;
    for (long spins = 0; !all_over(t); spins++) {
        int did = advance(t, (int)begin);
        for (int u = 0; u < t->units && !did; u++)
            did = advance(t, u);
        if (did)
            spins = 0;
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
    timeline t = {&each, queues, units, {{0}}};
    timeline *shared = &t;
    for (int u = 0; u < units; u++) {
        atomic_init(&t.of[u].over, 0);
        atomic_init(&t.of[u].held, 0);
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
