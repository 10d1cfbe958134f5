/* Steps of a model on several compute units at once, each unit with a queue of its own. */
#ifndef EK_UNITS_H
#define EK_UNITS_H
#include <stdatomic.h>
#include "../kernel.h"

#define EK_UNITS 4

typedef struct {
    const ek_model *model;
    const void *const *in;
    void *const *out;
} ek_inference;

typedef struct {
    void (*run)(const ek_inference *, int number);
    int number; /* in the whole model: given to run, and whose time stamp it is */
    /* How many steps of each queue must be over before this one starts. */
    int after[EK_UNITS];
} ek_step;

typedef struct {
    const ek_step *steps; /* in the order of the queue */
    int count;
} ek_queue;

/* Runs all queues, on as many threads of the pool as there are queues; also on one thread alone,
 * as long as the steps are in some order in which each follows all that it waits for. Returns when
 * every step is over. With stamps, stamps[s + 1] is what step number s took; see ek_stamps_add. */
void ek_run_units(const ek_inference *inference, const ek_queue *queues, int units);

/* What steps of [first, last) took becomes time stamps, one after the other from `start` on. */
void ek_stamps_add(uint64_t *stamps, int first, int last);
#endif
