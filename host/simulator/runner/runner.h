/* Internal interface of the program that runs compiled models and products under qemu-user. */
#ifndef EK_RUNNER_H
#define EK_RUNNER_H
#include <stddef.h>
#include <time.h>

#include "ek.h"
#include "gemm/gemm.h"

/* Arguments of `close` system calls that mark beginnings and ends for the plugin; to everything
 * else they are descriptors that are not open. */
enum {
    MARK_BEGIN = 777001,
    MARK_END = 777002,
    MARK_LAP = 777003,
    MARK_WARM_BEGIN = 777004,
    MARK_WARM_END = 777005,
    MARK_STAMPS = 777006 /* address and count of the time stamps that identify laps */
};

void mark(long number);

/* The clock that a model reads: it costs almost nothing, and where it provides the time stamps
 * (32-bit ARM, whose counter is inaccessible to programs) every reading is a lap. `now` is a
 * `timespec`. */
int runner_clock(clockid_t clock, long now[2]);

/* The calling thread reports the first of several cores, whichever one it runs on; restricting the
 * others' affinity has no effect. */
int runner_core(void);
int runner_cores(int process, size_t bytes, void *set);
int runner_set_affinity(void *thread, size_t bytes, const void *set);
int runner_set_cores(int process, size_t bytes, const void *set);

/* On RISC-V: executes instructions of SpacemiT's matrix unit, which QEMU lacks. */
void handle_refusals(void);

/* A shared library that needs no dynamic loader; exits if it cannot be loaded. */
typedef struct library library;
library *library_open(const char *path);
void *library_symbol(const library *lib, const char *name); /* NULL if missing */

void *required_symbol(const library *lib, const char *name); /* likewise; exits if missing */

/* The library, if this CPU has all it needs; else prints the feature and exits with code 3. */
const library *usable_library(const char *path);

/* 64-byte aligned memory, with every byte nonzero. */
void *block(size_t bytes);

/* Commands of the files of these names, with the rest of the command line. */
int time_outlier(int argc, char **argv);
int time_products(int argc, char **argv);
int time_spmm(int argc, char **argv);
int time_spmv(int argc, char **argv);

/* Calls a product to warm up, then as a region between marks. */
void time_call(void (*call)(void *), void *what);

/* The library's pool; NULL for one thread; exits if the threads do not start. */
ek_pool *pool_of(const library *lib, int threads);

/* The method mc,kc,nc,mr,nr,pack_a,pack_b,split; exits if the text is none. */
ek_gemm_method method_of(const char *text);

/* Prints one line on stderr and exits with code 1. */
_Noreturn void fail(const char *what, const char *which);

/* A file's contents, 64-byte aligned. */
void *read_file(const char *path, size_t *bytes);

/* Writes a file that did not exist. */
void write_file(const char *path, const void *data, size_t bytes);

/* The decimal number at the start of a text; `end`, unless NULL, is what follows it. */
long number_at(const char *text, const char **end);

#endif
