/* A program that runs a compiled model, or products, under qemu-user: its parts. */
#ifndef EK_RUNNER_H
#define EK_RUNNER_H
#include <stddef.h>
#include <time.h>

/* System calls `close` of these numbers tell the plugin where something begins and ends; all else
 * takes them for a descriptor that is not open. */
enum {
    MARK_BEGIN = 777001,
    MARK_END = 777002,
    MARK_LAP = 777003,
    MARK_WARM_BEGIN = 777004,
    MARK_WARM_END = 777005,
    MARK_STAMPS = 777006 /* an address, a count: places of time stamps, by which laps are known */
};

void mark(long number);

/* The clock that a model reads: costs next to nothing, and where time stamps come from it (32-bit
 * ARM, whose counter programs may not read) every reading is a lap. The model's C library is
 * another one, whose `timespec` is two longs. */
int runner_clock(clockid_t clock, long now[2]);

/* The calling thread runs on the first of so many cores, whichever this machine gives it; where
 * others are kept off changes nothing. */
int runner_core(void);
int runner_cores(int process, size_t bytes, void *set);
int runner_keep_off(void *thread, size_t bytes, const void *set);

/* A shared library that needs nothing of a dynamic loader; ends the program if it cannot be. */
typedef struct library library;
library *library_open(const char *path);
void *library_symbol(const library *lib, const char *name); /* NULL: it has none */

void *needed(const library *lib, const char *name); /* the same; ends the program instead */

/* The library, if this CPU has what it needs; else exit code 3, with the feature printed. */
const library *usable_library(const char *path);

/* Memory of 64-byte aligned bytes, none of them 0. */
void *block(size_t bytes);

/* What product.c and spmv.c do with their part of the command line. */
int time_products(int argc, char **argv);
int time_spmv(int argc, char **argv);

/* One line on stderr, and exit code 1. */
_Noreturn void fail(const char *what, const char *which);

/* A file's bytes behind each other, 64-byte aligned. */
void *read_whole(const char *path, size_t *bytes);

#endif
