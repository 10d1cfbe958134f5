/* Worker threads of one model.
 *
 * Work is handed out in small pieces from a shared counter, so a thread that loses its core costs
 * one piece, not a share; and a worker that did not wake in time is not waited for: the caller
 * closes the job when the pieces are gone and waits only for those who joined. Workers spin for a
 * while after a job, since the next operator follows within microseconds, then sleep.
 *
 * Linux may wake a thread on the core of whoever wakes it though another one is idle, and leave it
 * there for milliseconds. So workers that slept are kept off the caller's core. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include "../kernel.h"
#include "relax.h"

#define PIECES_PER_THREAD 8
#define SPINS 4000          /* some tens of microseconds */
#define STACK_BYTES 1048576 /* kernels keep up to 256 KiB of scratch on the stack */
#define OPEN 0x10000u       /* state: generation << 32 | OPEN | workers inside */

struct ek_pool {
    int threads;
    pthread_t *workers;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int stop;
    int sleepers;      /* under lock */
    cpu_set_t allowed; /* cores of whoever made the pool; empty: not known */
    int avoided;       /* core that workers are kept off, or -1 */
    _Atomic uint64_t state;
    atomic_long next; /* first task nobody took yet */
    ek_task task;     /* the job; constant while it is open or has workers inside */
    const void *args;
    long tasks, grain;
};

/* Costs one look at the caller's core unless that has moved since. */
static void keep_off_this_core(ek_pool *p) {
    int core = sched_getcpu();
    if (core == p->avoided || core < 0 || core >= CPU_SETSIZE)
        return;
    cpu_set_t others = p->allowed;
    CPU_CLR(core, &others);
    if (!CPU_COUNT(&others))
        return;
    p->avoided = core;
    for (int i = 1; i < p->threads; i++)
        pthread_setaffinity_np(p->workers[i], sizeof others, &others);
}

static void take_pieces(ek_pool *p) {
    for (;;) {
        long from = atomic_fetch_add_explicit(&p->next, p->grain, memory_order_relaxed);
        if (from >= p->tasks)
            return;
        p->task(p->args, from, ek_min(from + p->grain, p->tasks));
    }
}

/* 1: took part in a job later than `seen`, which is updated. */
static int join_job(ek_pool *p, uint32_t *seen) {
    uint64_t s = atomic_load_explicit(&p->state, memory_order_acquire);
    while ((s & OPEN) && (uint32_t)(s >> 32) != *seen)
        if (atomic_compare_exchange_weak_explicit(&p->state, &s, s + 1, memory_order_acquire,
                                                  memory_order_acquire)) {
            *seen = (uint32_t)(s >> 32);
            take_pieces(p);
            atomic_fetch_sub_explicit(&p->state, 1, memory_order_release);
            return 1;
        }
    return 0;
}

static void *worker(void *arg) {
    ek_pool *p = arg;
    uint32_t seen = 0;
    for (;;) {
        for (int i = 0; i < SPINS; i++) {
            if (join_job(p, &seen))
                i = 0;
            ek_relax();
        }
        pthread_mutex_lock(&p->lock);
        p->sleepers++;
        /* Woken, it spins again even if this job is over: the next one follows at once. */
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

void ek_parallel(ek_pool *p, ek_task task, const void *args, long tasks, long grain) {
    if (!p || p->threads < 2 || tasks <= grain) {
        task(args, 0, tasks);
        return;
    }
    p->task = task;
    p->args = args;
    p->tasks = tasks;
    p->grain = ek_max(grain, tasks / (p->threads * PIECES_PER_THREAD));
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    uint64_t generation = (atomic_load_explicit(&p->state, memory_order_relaxed) >> 32) + 1;
    generation = generation & 0xffffffffu ? generation & 0xffffffffu : 1;
    atomic_store(&p->state, generation << 32 | OPEN);
    pthread_mutex_lock(&p->lock);
    if (p->sleepers) {
        keep_off_this_core(p);
        pthread_cond_broadcast(&p->wake);
    }
    pthread_mutex_unlock(&p->lock);

    take_pieces(p);
    uint64_t s = atomic_fetch_and_explicit(&p->state, ~(uint64_t)OPEN, memory_order_acquire);
    for (long spins = 0; (s & (OPEN - 1)) != 0; spins++) {
        if (spins > SPINS)
            sched_yield(); /* the worker we wait for may need this very core */
        ek_relax();
        s = atomic_load_explicit(&p->state, memory_order_acquire);
    }
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
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    int started = 1;
    while (p->workers && started < p->threads &&
           pthread_create(&p->workers[started], &attr, worker, p) == 0)
        started++;
    pthread_attr_destroy(&attr);
    if (started < p->threads) {
        p->threads = started;
        ek_pool_destroy(p);
        return NULL;
    }
    keep_off_this_core(p);
    return p;
}

int ek_pool_threads(const ek_pool *p) {
    return p ? p->threads : 1;
}

void ek_pool_destroy(ek_pool *p) {
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = 1;
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (int i = 1; i < p->threads; i++)
        pthread_join(p->workers[i], NULL);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p->workers);
    free(p);
}
