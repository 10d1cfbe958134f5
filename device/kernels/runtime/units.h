/* Runs the steps of a model on several compute units at once, with one queue per unit. */
#ifndef EK_UNITS_H
#define EK_UNITS_H
#include <stdatomic.h>
#include "../kernel.h"

#define EK_UNITS 4

/* Data for the code of one section of a model. */
typedef struct {
    const ek_model *model;
    const void *const *in;
    void *const *out;
    const size_t *at; /* offsets of its operands in the arena, the weights and the states */
    int first;        /* number of steps in previous sections */
    ek_pool *pool;    /* for parallelism within a step; NULL: one thread */
} ek_inference;

typedef struct {
    void (*run)(const ek_inference *, int number);
    int number; /* within this section: passed to run, and index of its time stamp */
    /* Number of steps in each queue that must be done before this one starts. */
    int after[EK_UNITS];
} ek_step;

typedef struct {
    const ek_step *steps; /* in queue order */
    int count;
} ek_queue;

/* Runs all queues, each step on one thread, with one thread per queue, if the pool's threads are on
 * other cores than the caller. If they share its cores, or are more than there are queues, sharing
 * each step among all of them is faster: then steps run in the order of their numbers, which
 * satisfies all dependencies. Returns when all steps are done. With stamps, stamps[first + s + 1]
 * is the duration of step s: see ek_stamps_add. */
void ek_run_units(const ek_inference *inference, const ek_queue *queues, int units);

/* Converts the durations of `steps` steps to time stamps after stamps[0], as if they had run
 * sequentially. */
void ek_stamps_add(uint64_t *stamps, int steps);
#endif
