/* Worker threads of the models of a process.
 *
 * Every thread has a share of the tasks, the same part of the range in every job, so that its
 * output of one operator is in its core's cache for the next. It processes its share in small
 * pieces, then helps with the others', so preempting a thread delays only one piece. The caller
 * does not wait for workers that did not wake in time: it closes the job when no pieces are left
 * and waits only for those who joined. Workers spin for a while after a job, because the next
 * operator follows within microseconds, then sleep.
 *
 * Linux may schedule a worker on the caller's core although another is idle, and leave it there for
 * milliseconds. So workers that slept or are late are kept off the caller's core.
 *
 * Several threads may share a pool, also through different libraries of the same EK_POOL_LAYOUT:
 * while it works for one, the others compute alone. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include "../kernel.h"
#include "relax.h"

#define PIECES_PER_THREAD 8
#define SPINS 4000          /* tens of microseconds */
#define STACK_BYTES 1048576 /* kernels use up to 512 KiB of stack for scratch */
#define EK_POOL_LAYOUT 1    /* bump when the structs or what they mean change */
#define OPEN 0x10000u       /* state: generation << 32 | OPEN | number of workers inside */

typedef struct {
    _Alignas(64) atomic_long next; /* first task not taken yet */
    long end;
} share;

typedef struct {
    pthread_t thread;
    ek_pool *pool;
    int number; /* index of its share; the caller's is 0 */
} ek_worker;

struct ek_pool {
    int threads;
    ek_worker *workers;
    share *shares;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int stop;
    int sleepers;      /* protected by the lock */
    cpu_set_t allowed; /* CPU affinity of the pool's creator; empty: unknown */
    int avoided;       /* core from which workers are kept away, or -1 */
    _Atomic uint64_t state;
    atomic_int taken; /* a thread has a job here */
    ek_task task;     /* the job; constant while open or any worker is inside */
    const void *args;
    long grain;
};

/* Only checks the caller's core unless it has changed. */
static void avoid_own_core(ek_pool *p) {
    int core = sched_getcpu();
    if (core == p->avoided || core < 0 || core >= CPU_SETSIZE)
        return;
    cpu_set_t others = p->allowed;
    CPU_CLR(core, &others);
    if (!CPU_COUNT(&others))
        return;
    p->avoided = core;
    for (int i = 1; i < p->threads; i++)
        pthread_setaffinity_np(p->workers[i].thread, sizeof others, &others);
}

/* Returns 1 if some pieces belonged to another thread. */
static int run_pieces(ek_pool *p, int own) {
    int helped = 0;
    for (int i = 0; i < p->threads; i++) {
        share *s = &p->shares[(own + i) % p->threads];
        for (;;) {
            long from = atomic_fetch_add_explicit(&s->next, p->grain, memory_order_relaxed);
            if (from >= s->end)
                break;
            p->task(p->args, from, ek_min(from + p->grain, s->end));
            helped |= i > 0;
        }
    }
    return helped;
}

static void distribute(ek_pool *p, long tasks, long grain) {
    const long pieces = (tasks + grain - 1) / grain;
    for (int i = 0; i < p->threads; i++) {
        atomic_store_explicit(&p->shares[i].next, pieces * i / p->threads * grain,
                              memory_order_relaxed);
        p->shares[i].end = ek_min(pieces * (i + 1) / p->threads * grain, tasks);
    }
    p->grain = grain;
}

/* Returns 1 if it took part in a job later than `seen`, and updates `seen`. */
static int join_job(ek_pool *p, int own, uint32_t *seen) {
    uint64_t s = atomic_load_explicit(&p->state, memory_order_acquire);
    while ((s & OPEN) && (uint32_t)(s >> 32) != *seen)
        if (atomic_compare_exchange_weak_explicit(&p->state, &s, s + 1, memory_order_acquire,
                                                  memory_order_acquire)) {
            *seen = (uint32_t)(s >> 32);
            run_pieces(p, own);
            atomic_fetch_sub_explicit(&p->state, 1, memory_order_release);
            return 1;
        }
    return 0;
}

static void *worker(void *arg) {
    const ek_worker *self = arg;
    ek_pool *p = self->pool;
    uint32_t seen = 0;
    for (;;) {
        for (int i = 0; i < SPINS; i++) {
            if (join_job(p, self->number, &seen))
                i = 0;
            ek_relax();
        }
        pthread_mutex_lock(&p->lock);
        p->sleepers++;
        /* Once woken, spin again even if this job is over, because the next one follows at once. */
        uint64_t s = atomic_load_explicit(&p->state, memory_order_acquire);
        if (!p->stop && !((s & OPEN) && (uint32_t)(s >> 32) != seen))
            pthread_cond_wait(&p->wake, &p->lock);
        p->sleepers--;
        int stop = p->stop;
        pthread_mutex_unlock(&p->lock);
        if (stop)
            return NULL;
    }
}

/* Apart from ek_parallel, so that one thread saves no registers for this. */
static __attribute__((noinline)) void run_job(ek_pool *p, ek_task task, const void *args,
                                              long tasks, long grain) {
    if (atomic_exchange_explicit(&p->taken, 1, memory_order_acquire)) {
        task(args, 0, tasks);
        return;
    }
    p->task = task;
    p->args = args;
    distribute(p, tasks, ek_max(grain, tasks / (p->threads * PIECES_PER_THREAD)));
    uint64_t generation = (atomic_load_explicit(&p->state, memory_order_relaxed) >> 32) + 1;
    generation = generation & 0xffffffffu ? generation & 0xffffffffu : 1;
    atomic_store(&p->state, generation << 32 | OPEN);
    pthread_mutex_lock(&p->lock);
    if (p->sleepers) {
        avoid_own_core(p);
        pthread_cond_broadcast(&p->wake);
    }
    pthread_mutex_unlock(&p->lock);

    if (run_pieces(p, 0))
        avoid_own_core(p); /* a thread was late: it may be on this core */
    uint64_t s = atomic_fetch_and_explicit(&p->state, ~(uint64_t)OPEN, memory_order_acquire);
    for (long spins = 0; (s & (OPEN - 1)) != 0; spins++) {
        if (spins > SPINS)
            sched_yield(); /* the awaited worker may need this core */
        ek_relax();
        s = atomic_load_explicit(&p->state, memory_order_acquire);
    }
    atomic_store_explicit(&p->taken, 0, memory_order_release);
}

void ek_parallel(ek_pool *p, ek_task task, const void *args, long tasks, long grain) {
    if (!p || p->threads < 2 || tasks <= grain)
        task(args, 0, tasks);
    else
        run_job(p, task, args, tasks, grain);
}

ek_pool *ek_pool_create(int threads) {
    ek_pool *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->threads = threads < 1 ? 1 : threads;
    p->avoided = -1;
    if (sched_getaffinity(0, sizeof p->allowed, &p->allowed))
        CPU_ZERO(&p->allowed);
    p->workers = calloc((size_t)p->threads, sizeof *p->workers);
    p->shares = aligned_alloc(_Alignof(share), (size_t)p->threads * sizeof *p->shares);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    int started = 1;
    for (; p->workers && p->shares && started < p->threads; started++) {
        p->workers[started] = (ek_worker){.pool = p, .number = started};
        if (pthread_create(&p->workers[started].thread, &attr, worker, &p->workers[started]))
            break;
    }
    pthread_attr_destroy(&attr);
    if (started < p->threads) {
        p->threads = started;
        ek_pool_destroy(p);
        return NULL;
    }
    avoid_own_core(p);
    return p;
}

int ek_pool_threads(const ek_pool *p) {
    return p ? p->threads : 1;
}

int ek_pool_is_elsewhere(const ek_pool *p) {
    int core = sched_getcpu();
    return p && CPU_COUNT(&p->allowed) && core >= 0 && core < CPU_SETSIZE &&
           !CPU_ISSET(core, &p->allowed);
}

void ek_pool_destroy(ek_pool *p) {
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = 1;
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (int i = 1; i < p->threads; i++)
        pthread_join(p->workers[i].thread, NULL);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p->shares);
    free(p->workers);
    free(p);
}

int ek_pool_layout(void) {
    return EK_POOL_LAYOUT;
}
