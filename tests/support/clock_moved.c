/* LD_PRELOAD library: programs see a clock that read START seconds after the epoch at boot. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#ifndef START
#define START 0
#endif

int clock_gettime(clockid_t clock, struct timespec *t) {
    if (clock != CLOCK_REALTIME)
        return (int)syscall(SYS_clock_gettime, clock, t);
    int code = (int)syscall(SYS_clock_gettime, CLOCK_MONOTONIC, t);
    t->tv_sec += START;
    return code;
}

time_t time(time_t *t) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (t)
        *t = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec;
    t->tv_usec = now.tv_nsec / 1000;
    return 0;
}
