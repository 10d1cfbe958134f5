/* The caller's own thread keeps its class: it holds Python's lock at times, and while a thread of
 * the idle class waits for a core with that lock, the application would wait, too. */
#define _GNU_SOURCE
#include "shadow.h"
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { IDLE_CLASS = 5, LEAST_NICE = 19, STACK_BYTES = 1 << 20 };

/* By number, since musl's sched_setscheduler refuses everything. */
static void become_idle(void) {
    int priority = 0;
    if (syscall(SYS_sched_setscheduler, 0, IDLE_CLASS, &priority))
        setpriority(PRIO_PROCESS, 0, LEAST_NICE); /* on Linux, of this thread alone */
}

static void add_to_sketch(const float *x, int64_t count, uint64_t *bins, float *ends) {
    float low = ends[0], high = ends[1];
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bins[bits >> 22]++;
        if (isfinite(x[i])) {
            low = x[i] < low ? x[i] : low;
            high = x[i] > high ? x[i] : high;
        }
    }
    ends[0] = low, ends[1] = high;
}

static int64_t largest(const float *x, int64_t count) {
    int64_t at = 0;
    for (int64_t i = 1; i < count; i++)
        at = x[i] > x[at] ? i : at;
    return at;
}

/* Infinite where one is not finite and the other is, or differs otherwise. */
static double noise_of(const float *exact, const float *found, int64_t count) {
    double off = 0, power = 0;
    for (int64_t i = 0; i < count; i++) {
        double difference = (double)exact[i] - found[i];
        if (!isfinite(difference) && memcmp(exact + i, found + i, sizeof *exact))
            return INFINITY;
        if (isfinite(difference)) {
            off += difference * difference;
            power += (double)exact[i] * exact[i];
        }
    }
    return off == 0 ? 0 : sqrt(off / power);
}

static void compare(ek_shadow_job *j) {
    j->noise = 0, j->same = 1;
    for (int i = 0; i < j->outputs; i++) {
        double noise = 0;
        if (!j->raw[i])
            noise = noise_of(j->out[i], j->released[i], j->elements[i]);
        else if (memcmp(j->out[i], j->released[i], (size_t)j->raw[i]))
            noise = INFINITY;
        j->noise = noise > j->noise ? noise : j->noise;
    }
    if (j->outputs && !j->raw[0])
        j->same = largest(j->out[0], j->elements[0]) == largest(j->released[0], j->elements[0]);
}

static void *work(void *arg) {
    ek_shadow_job *j = arg;
    become_idle();
    j->code = ek_run(j->model, j->in, j->out);
    if (!j->code) {
        compare(j);
        for (int i = 0; i < j->watched; i++)
            add_to_sketch(j->seen[i], j->counts[i], j->bins + (size_t)i * EK_SKETCH_BINS,
                          j->ends + 2 * i);
    }
    struct timespec spent = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    j->ns = (uint64_t)spent.tv_sec * 1000000000u + (uint64_t)spent.tv_nsec;
    return NULL;
}

int ek_shadow(ek_shadow_job *job) {
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    int failed = pthread_create(&thread, &attr, work, job);
    pthread_attr_destroy(&attr);
    if (!failed)
        pthread_join(thread, NULL);
    return failed;
}
