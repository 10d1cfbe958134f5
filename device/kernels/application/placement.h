/* On how many threads, and on which cores, a release runs: device/runtime/agent/placement.py
 * decides. */
#ifndef EK_PLACEMENT_H
#define EK_PLACEMENT_H
#include <sched.h>

typedef struct {
    int threads;
    int pinned;        /* 0: on any core */
    cpu_set_t cores;   /* of whoever runs an inference */
    cpu_set_t workers; /* of the threads beside it */
} ek_placement;

/* Of a release in the folder `root`; one thread on any core if it does not say, or nobody can be
 * asked. */
ek_placement ek_placement_of(const char *root, const char *release);

/* Keeps the calling thread, and threads that it starts, on `cores`. 1: it could go elsewhere, as
 * `before` has it, for ek_go_back. */
int ek_go_to(const cpu_set_t *cores, cpu_set_t *before);
void ek_go_back(const cpu_set_t *before);

#endif
