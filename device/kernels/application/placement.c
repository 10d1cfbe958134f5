#define _GNU_SOURCE
#include "placement.h"

#include <stdio.h>
#include <stdlib.h>

#include "agent.h"
#include "integrity.h"

enum { ANSWER = 16384, MOST_THREADS = 256 };

/* Adds the numbers in the list behind `key` to `cores`; returns their count. */
static int cores_of(const char *answer, const char *key, cpu_set_t *cores) {
    const char *at = ek_json_value(answer, key);
    int count = 0;
    CPU_ZERO(cores);
    while (at && (*at == '[' || *at == ',')) {
        char *end;
        unsigned long core = strtoul(at + 1, &end, 10);
        if (end == at + 1 || core >= CPU_SETSIZE)
            break;
        CPU_SET(core, cores);
        ++count;
        at = end;
    }
    return count;
}

ek_placement ek_placement_of(const char *root, const char *release) {
    ek_placement found = {.threads = 1};
    const char *const command[] = {"placement", "--release", release, NULL};
    char answer[ANSWER];
    if (!ek_manifest_has(root, release, "placements") ||
        ek_ask_agent(root, release, command, answer, sizeof answer))
        return found;
    const char *threads = ek_json_value(answer, "threads");
    int count = threads ? atoi(threads) : 1;
    found.threads = count < 1 ? 1 : count > MOST_THREADS ? MOST_THREADS : count;
    found.pinned = cores_of(answer, "cores", &found.cores) > 0;
    if (!cores_of(answer, "workers", &found.workers))
        found.workers = found.cores;
    return found;
}

int ek_go_to(const cpu_set_t *cores, cpu_set_t *before) {
    cpu_set_t both;
    if (sched_getaffinity(0, sizeof *before, before))
        return 0;
    CPU_AND(&both, before, cores);
    return !CPU_EQUAL(&both, before) && !sched_setaffinity(0, sizeof *cores, cores);
}

void ek_go_back(const cpu_set_t *before) {
    sched_setaffinity(0, sizeof *before, before);
}
