/* Threads and cores of a release, as decided by device/runtime/agent/placement.py. */
#ifndef EK_PLACEMENT_H
#define EK_PLACEMENT_H
#include <sched.h>

typedef struct {
    int threads;
    int pinned;        /* 0: on any core */
    cpu_set_t cores;   /* for the thread that runs an inference */
    cpu_set_t workers; /* for the other threads of the pool */
} ek_placement;

/* Placement of a release in folder `root`; one thread on any core if the release specifies none or
 * the agent cannot be run. */
ek_placement ek_placement_of(const char *root, const char *release);

/* Pins the calling thread, and threads that it starts, to `cores`. Returns 1 if this changed its
 * affinity; `before` holds the old one, for ek_go_back. */
int ek_go_to(const cpu_set_t *cores, cpu_set_t *before);
void ek_go_back(const cpu_set_t *before);

#endif
