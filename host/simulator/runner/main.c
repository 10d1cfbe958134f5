/* Runs a compiled model on any board's CPU, once to warm up and once timed (matrix products:
 * product.c, sparse ones: spmv.c and spmm.c, split ones: outlier.c):
 *
 *   runner LIBRARY WEIGHTS ARENA STATE THREADS OPERATORS IN-FILE OUT-FILE IN-BYTES,...
 * OUT-BYTES,...
 *
 * IN-FILE contains the concatenated inputs, OUT-FILE receives the outputs likewise. Marks enclose
 * the warm-up run and the timed one; time stamps delimit laps. Exit code 3: the CPU lacks the
 * printed feature. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ek.h"
#include "runner.h"
#include "system.h"

enum { ARGUMENTS = 11, MAX_ARRAYS = 1024 };

typedef struct {
    int count;
    size_t bytes[MAX_ARRAYS];
    void *data[MAX_ARRAYS];
} arrays;

typedef struct {
    int (*run)(const ek_model *, const void *const *, void *const *);
    void (*reset)(const ek_model *);
    ek_pool *(*start)(int);
    void (*stop)(ek_pool *);
} functions;

enum { OUTPUT = 1, ERRORS = 2 };

static void print(int file, const char *text) {
    CALL(SYS_write, file, (long)text, (long)strlen(text));
}

void fail(const char *what, const char *which) {
    const char *part[] = {"runner: ", what, " ", which, "\n"};
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        print(ERRORS, part[i]);
    exit(1);
}

void mark(long number) {
    CALL(SYS_close, number);
}

int runner_clock(clockid_t clock, long now[2]) {
    (void)clock;
#ifdef __arm__
    mark(MARK_LAP);
#endif
    now[0] = now[1] = 0;
    return 0;
}

int runner_core(void) {
    return 0;
}

int runner_cores(int process, size_t bytes, void *set) {
    (void)process;
    memset(set, 0, bytes);
    *(unsigned char *)set = 0xff;
    return 0;
}

int runner_set_affinity(void *thread, size_t bytes, const void *set) {
    (void)thread, (void)bytes, (void)set;
    return 0;
}

int runner_set_cores(int process, size_t bytes, const void *set) {
    (void)process, (void)bytes, (void)set;
    return 0;
}

void *block(size_t bytes) {
    size_t rounded = (bytes + 63) / 64 * 64;
    void *memory = aligned_alloc(64, rounded ? rounded : 64);
    if (!memory)
        fail("expected memory, found", "none");
    /* Not zero: a model must not rely on the arena's initial contents. */
    memset(memory, 0xA5, rounded);
    return memory;
}

static long open_file(const char *path, int how) {
    const long file = CALL(SYS_openat, AT_FDCWD, (long)path, how, 0666);
    if (file < 0)
        fail("expected a file, found none:", path);
    return file;
}

/* Reads or writes all bytes. */
static void transfer(long number, long file, const void *data, size_t bytes, const char *path) {
    while (bytes) {
        const long done = CALL(number, file, (long)data, (long)bytes);
        if (done <= 0)
            fail("expected a whole file:", path);
        data = (const char *)data + done;
        bytes -= (size_t)done;
    }
}

void *read_file(const char *path, size_t *bytes) {
    const long file = open_file(path, O_RDONLY);
    *bytes = (size_t)CALL(SYS_lseek, file, 0, SEEK_END);
    CALL(SYS_lseek, file, 0, SEEK_SET);
    void *data = block(*bytes);
    transfer(SYS_read, file, data, *bytes, path);
    CALL(SYS_close, file);
    return data;
}

void write_file(const char *path, const void *data, size_t bytes) {
    const long file = open_file(path, O_WRONLY | O_CREAT | O_TRUNC);
    transfer(SYS_write, file, data, bytes, path);
    CALL(SYS_close, file);
}

long number_at(const char *text, const char **end) {
    const int negative = *text == '-';
    long value = 0;
    for (text += negative; *text >= '0' && *text <= '9'; text++)
        value = 10 * value + (*text - '0');
    if (end)
        *end = text;
    return negative ? -value : value;
}

static arrays allocate(const char *sizes) {
    arrays made = {0};
    for (const char *at = sizes; *at; made.count++) {
        if (made.count == MAX_ARRAYS)
            fail("expected fewer", "arrays");
        const char *end;
        made.bytes[made.count] = (size_t)number_at(at, &end);
        made.data[made.count] = block(made.bytes[made.count]);
        at = *end == ',' ? end + 1 : end;
    }
    return made;
}

void *required_symbol(const library *lib, const char *name) {
    void *found = library_symbol(lib, name);
    if (!found)
        fail("expected a library of ours, found one without", name);
    return found;
}

const library *usable_library(const char *path) {
    const library *lib = library_open(path);
    const char *missing = ((const char *(*)(void))required_symbol(lib, "ek_missing_feature"))();
    if (missing) {
        print(OUTPUT, missing);
        exit(3);
    }
    return lib;
}

ek_pool *pool_of(const library *lib, int threads) {
    ek_pool *(*start)(int);
    *(void **)&start = required_symbol(lib, "ek_pool_create");
    ek_pool *pool = threads > 1 ? start(threads) : NULL;
    if (threads > 1 && !pool)
        fail("expected threads to start, found", "none");
    return pool;
}

void time_call(void (*call)(void *), void *what) {
    /* A second lap to warm up takes the same path as the timed one, marks included. */
    enum { WARM_LAPS = 2 };
#pragma clang loop unroll(disable)
    for (int lap = 0; lap <= WARM_LAPS; lap++) {
        const int timed = lap == WARM_LAPS;
        mark(timed ? MARK_BEGIN : MARK_WARM_BEGIN);
        call(what);
        mark(timed ? MARK_END : MARK_WARM_END);
    }
}

static functions open_functions(const char *path) {
    const library *lib = usable_library(path);
    if (((int (*)(void))required_symbol(lib, "ek_abi"))() != EK_ABI)
        fail("expected a library of this release, found another:", path);
    functions f;
    *(void **)&f.run = required_symbol(lib, "ek_run");
    *(void **)&f.reset = required_symbol(lib, "ek_reset");
    *(void **)&f.start = required_symbol(lib, "ek_pool_create");
    *(void **)&f.stop = required_symbol(lib, "ek_pool_destroy");
    return f;
}

/* State is reset before the marks, so that exactly one inference is timed. */
static void warm_and_time(const functions *f, const ek_model *model, arrays *in, arrays *out) {
    f->reset(model);
    mark(MARK_WARM_BEGIN);
    int failed = f->run(model, (const void *const *)in->data, out->data);
    mark(MARK_WARM_END);
    f->reset(model);
    mark(MARK_BEGIN);
    failed |= f->run(model, (const void *const *)in->data, out->data);
    mark(MARK_END);
    if (failed)
        fail("expected the model to run, found", "an error");
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "product") == 0)
        return time_products(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "spmv") == 0)
        return time_spmv(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "spmm") == 0)
        return time_spmm(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "outlier") == 0)
        return time_outlier(argc - 1, argv + 1);
    if (argc != ARGUMENTS)
        fail("expected 10 arguments, found", argc > ARGUMENTS ? "more" : "fewer");
    functions f = open_functions(argv[1]);
    size_t bytes;
    ek_model model = {.weights = read_file(argv[2], &bytes)};
    model.arena = block((size_t)number_at(argv[3], NULL));
    model.state = block((size_t)number_at(argv[4], NULL));
    int threads = (int)number_at(argv[5], NULL);
    size_t stamps = (size_t)number_at(argv[6], NULL) + 1;
    model.stamps = calloc(stamps, sizeof *model.stamps);
    /* An operator's lap is identified by the address its time is written to. */
    CALL(SYS_close, MARK_STAMPS, (long)model.stamps, (long)stamps);
    arrays in = allocate(argv[9]), out = allocate(argv[10]);
    const long given = open_file(argv[7], O_RDONLY);
    const long made = open_file(argv[8], O_WRONLY | O_CREAT | O_TRUNC);
    for (int i = 0; i < in.count; i++)
        transfer(SYS_read, given, in.data[i], in.bytes[i], argv[7]);
    if (threads > 1 && !(model.pool = f.start(threads)))
        fail("expected threads to start, found", "none");
    warm_and_time(&f, &model, &in, &out);
    if (model.pool)
        f.stop(model.pool);
    for (int i = 0; i < out.count; i++)
        transfer(SYS_write, made, out.data[i], out.bytes[i], argv[8]);
    return 0;
}
