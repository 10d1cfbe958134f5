#define _GNU_SOURCE
#include "environment.h"

#include <ctype.h>
#include <glob.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define CPU "/sys/devices/system/cpu/cpu"
#define THERMAL "/sys/class/thermal/"

enum { IDLE = 3, FIELDS = 8, TEXT = 64 };

static int usable(cpu_set_t *cores) {
    return !sched_getaffinity(0, sizeof *cores, cores);
}

static double busy_seconds(void) {
    char line[512];
    unsigned long long ticks[FIELDS], busy = 0;
    int core, found = 0;
    cpu_set_t cores;
    FILE *stat = usable(&cores) ? fopen("/proc/stat", "re") : NULL;
    while (stat && fgets(line, sizeof line, stat))
        if (isdigit((unsigned char)line[3]) && /* otherwise the line is the total over all cores */
            sscanf(line, "cpu%d %llu %llu %llu %llu %llu %llu %llu %llu", &core, ticks, ticks + 1,
                   ticks + 2, ticks + 3, ticks + 4, ticks + 5, ticks + 6, ticks + 7) == FIELDS + 1)
            for (int i = 0;
                 core >= 0 && core < CPU_SETSIZE && CPU_ISSET(core, &cores) && i < FIELDS;
                 ++i, found = 1)
                busy += i == IDLE || i == IDLE + 1 ? 0 : ticks[i];
    if (stat)
        fclose(stat);
    return found ? (double)busy / (double)sysconf(_SC_CLK_TCK) : -1;
}

static double own_seconds(void) {
    double seconds = 0;
    for (int children = 0; children < 2; ++children) {
        struct rusage r;
        getrusage(children ? RUSAGE_CHILDREN : RUSAGE_SELF, &r);
        seconds += (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
                   (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
    }
    return seconds;
}

/* Reads the first line of a kernel file; returns whether there is one. */
static int line_of(const char *path, char text[TEXT]) {
    FILE *file = fopen(path, "re");
    int found = file && fgets(text, TEXT, file);
    if (file)
        fclose(file);
    if (found)
        text[strcspn(text, "\n")] = 0;
    return found && *text;
}

static int number_of(const char *path, long *number) {
    char text[TEXT], *end = text;
    if (line_of(path, text))
        *number = strtol(text, &end, 10);
    return end != text && !*end;
}

enum { SUM, MOST, COOLING };

/* The sum or maximum of the numbers in the files matching a pattern; -1 if there are none. COOLING:
 * the maximum over devices that throttle CPUs. `count` receives the number of files. */
static long numbers(const char *pattern, int what, size_t *count) {
    glob_t files;
    long result = -1, one;
    char path[256], text[TEXT];
    *count = 0;
    if (glob(pattern, GLOB_NOSORT, NULL, &files))
        return -1;
    *count = files.gl_pathc;
    for (size_t i = 0; i < files.gl_pathc; ++i) {
        const char *name = files.gl_pathv[i];
        snprintf(path, sizeof path, "%.*s/type", (int)(strrchr(name, '/') - name), name);
        if (what == COOLING && !(line_of(path, text) && strstr(text, "cpufreq")))
            continue;
        if (number_of(name, &one))
            result = result < 0 ? one : what == SUM ? result + one : one > result ? one : result;
    }
    globfree(&files);
    return result;
}

static long throttle_count(void) {
    size_t count;
    long sum = numbers(CPU "[0-9]*/thermal_throttle/core_throttle_count", SUM, &count);
    if (sum >= 0)
        return sum;
    numbers(THERMAL "cooling_device*/cur_state", MOST, &count);
    return count ? 0 : -1;
}

ek_moment ek_moment_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (ek_moment){(double)t.tv_sec + (double)t.tv_nsec / 1e9, busy_seconds(), own_seconds(),
                       throttle_count()};
}

static void write_number(FILE *to, const char *name, int known, double value) {
    if (known)
        fprintf(to, ", \"%s\": %.3f", name, value);
    else
        fprintf(to, ", \"%s\": null", name);
}

static void write_integer(FILE *to, const char *name, int known, long long value) {
    if (known)
        fprintf(to, ", \"%s\": %lld", name, value);
    else
        fprintf(to, ", \"%s\": null", name);
}

static void write_clock_of_core(FILE *to) {
    char path[128], governor[TEXT] = "";
    long khz = 0;
    int core = 0, known;
    cpu_set_t cores;
    while (usable(&cores) && core < CPU_SETSIZE - 1 && !CPU_ISSET(core, &cores))
        ++core;
    snprintf(path, sizeof path, CPU "%d/cpufreq/scaling_cur_freq", core);
    known = number_of(path, &khz);
    write_number(to, "frequency_mhz", known, (double)khz / 1e3);
    snprintf(path, sizeof path, CPU "%d/cpufreq/scaling_governor", core);
    known = line_of(path, governor);
    for (const char *c = governor; *c; ++c)
        known = known && (isalnum((unsigned char)*c) || *c == '_' || *c == '-');
    fprintf(to, known ? ", \"governor\": \"%s\"" : ", \"governor\": null", governor);
}

static long long available_bytes(void) {
    char line[TEXT * 2];
    long long kib = -1;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof line, file) && sscanf(line, "MemAvailable: %lld", &kib) != 1)
        ;
    if (file)
        fclose(file);
    return kib < 0 ? -1 : kib * 1024;
}

void ek_write_environment(FILE *to, const ek_moment *before) {
    ek_moment now = ek_moment_now();
    double seconds = now.clock - before->clock, load = 0, others = 0;
    size_t count;
    long hottest = numbers(THERMAL "thermal_zone*/temp", MOST, &count);
    long cooling = numbers(THERMAL "cooling_device*/cur_state", COOLING, &count);
    int known = before->busy >= 0 && now.busy >= 0 && seconds > 0;
    struct rusage own;
    getrusage(RUSAGE_SELF, &own);
    if (known)
        others = (now.busy - before->busy - (now.own - before->own)) / seconds;
    write_clock_of_core(to);
    write_number(to, "temperature_c", hottest >= 0, (double)hottest / 1e3);
    fprintf(to, ", \"throttled\": %s",
            before->throttle_count < 0 || now.throttle_count < 0         ? "null"
            : now.throttle_count > before->throttle_count || cooling > 0 ? "true"
                                                                         : "false");
    write_number(to, "others", known, others > 0 ? others : 0);
    write_number(to, "load", getloadavg(&load, 1) == 1, load);
    write_integer(to, "available_bytes", available_bytes() >= 0, available_bytes());
    write_integer(to, "resident_bytes", 1, (long long)own.ru_maxrss * 1024);
}
