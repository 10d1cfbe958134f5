/* Steps of a model on several compute units at once, each unit with a queue of its own. */
#ifndef EK_UNITS_H
#define EK_UNITS_H
#include <stdatomic.h>
#include "../kernel.h"

#define EK_UNITS 4

/* What code of one section of a model works on. */
typedef struct {
    const ek_model *model;
    const void *const *in;
    void *const *out;
    const size_t *at; /* where in the arena, the weights and the states its operands are */
    int first;        /* steps of the sections before */
    ek_pool *pool;    /* for the work within a step; NULL: one thread */
} ek_inference;

typedef struct {
    void (*run)(const ek_inference *, int number);
    int number; /* in this section: given to run, and whose time stamp it is */
    /* How many steps of each queue must be over before this one starts. */
    int after[EK_UNITS];
} ek_step;

typedef struct {
    const ek_step *steps; /* in the order of the queue */
    int count;
} ek_queue;

/* Runs all queues, each step on one thread, on as many threads as there are queues; also on one
 * thread alone, as long as the steps are in some order in which each follows all that it waits for.
 * A pool of more threads than queues does more when all of them share each step: then steps run in
 * the order of their numbers. Returns when every step is over. With stamps, stamps[first + s + 1]
 * is what step s took: see ek_stamps_add. */
void ek_run_units(const ek_inference *inference, const ek_queue *queues, int units);

/* What `steps` steps took becomes time stamps after stamps[0], as if they had run in turns. */
void ek_stamps_add(uint64_t *stamps, int steps);
#endif
