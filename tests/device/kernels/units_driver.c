/* Random steps on random units, on a pool that has cores of its own and on one that has not. Each
 * step sums the results of its dependencies from plain memory, so a step that starts too early
 * gives a wrong sum and a data race for ThreadSanitizer. Arguments: first seed, seeds, threads. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include "runtime/units.h"

#define STEPS 60

static int before[STEPS][STEPS]; /* before[s][d]: step s uses the result of step d */
static long value[STEPS];

static void compute(int s) {
    long sum = s + 1;
    for (int d = 0; d < s; d++)
        if (before[s][d])
            sum += value[d] * (d + 3) % 1000003;
    value[s] = sum;
}

static ek_pool *shared; /* by the threads of each step */
static atomic_int strangers;

static void run(const ek_inference *inference, int s) {
    strangers += inference->pool != shared;
    compute(s);
}

static int wrong(unsigned seed, ek_pool *pool, int is_elsewhere) {
    srand(seed);
    int units = 1 + rand() % EK_UNITS, steps = rand() % (STEPS + 1), density = 1 + rand() % 20;
    int unit[STEPS], place[STEPS], count[EK_UNITS] = {0};
    static ek_step step[EK_UNITS][STEPS];
    uint64_t stamps[STEPS + 1] = {0};
    for (int s = 0; s < steps; s++) {
        unit[s] = rand() % units;
        place[s] = count[unit[s]]++;
        ek_step *made = &step[unit[s]][place[s]];
        *made = (ek_step){run, s, {0}};
        for (int d = 0; d < s; d++) {
            before[s][d] = rand() % density == 0;
            if (before[s][d] && made->after[unit[d]] < place[d] + 1)
                made->after[unit[d]] = place[d] + 1;
        }
    }
    long expected[STEPS];
    for (int s = 0; s < steps; s++)
        compute(s);
    memcpy(expected, value, sizeof expected);
    memset(value, 0, sizeof value);
    ek_queue queues[EK_UNITS];
    for (int u = 0; u < EK_UNITS; u++)
        queues[u] = (ek_queue){step[u], count[u]};
    shared = is_elsewhere && ek_pool_threads(pool) <= units ? NULL : pool;
    strangers = 0;
    ek_model model = {.pool = pool, .stamps = seed % 2 ? stamps : NULL};
    ek_run_units(&(ek_inference){.model = &model}, queues, units);
    return strangers || memcmp(expected, value, (size_t)steps * sizeof *value) != 0;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    unsigned first = (unsigned)atoi(argv[1]), seeds = (unsigned)atoi(argv[2]);
    int threads = atoi(argv[3]), core = 0;
    cpu_set_t own, others;
    sched_getaffinity(0, sizeof others, &others);
    while (!CPU_ISSET(core, &others))
        core++;
    CPU_ZERO(&own);
    CPU_SET(core, &own);
    ek_pool *beside = ek_pool_create(threads);
    CPU_CLR(core, &others);
    if (CPU_COUNT(&others))
        sched_setaffinity(0, sizeof others, &others);
    ek_pool *elsewhere = ek_pool_create(threads);
    sched_setaffinity(0, sizeof own, &own);
    for (unsigned seed = first; seed < first + seeds; seed++)
        if (wrong(seed, beside, 0) || wrong(seed, elsewhere, CPU_COUNT(&others) > 0)) {
            fprintf(stderr, "seed %u\n", seed);
            return 1;
        }
    ek_pool_destroy(beside);
    ek_pool_destroy(elsewhere);
    return 0;
}
