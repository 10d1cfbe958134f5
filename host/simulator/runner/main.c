/* Runs a compiled model on any board's CPU, once to warm up and once timed (matrix products:
 * product.c, sparse ones: spmv.c):
 *
 *   runner LIBRARY WEIGHTS ARENA STATE THREADS OPERATORS IN-FILE OUT-FILE IN-BYTES,...
 * OUT-BYTES,...
 *
 * IN-FILE contains the concatenated inputs, OUT-FILE receives the outputs likewise. Marks enclose
 * the warm-up run and the timed one; time stamps delimit laps. Exit code 3: the CPU lacks the
 * printed feature. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ek.h"
#include "runner.h"

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

void fail(const char *what, const char *which) {
    fprintf(stderr, "runner: %s %s\n", what, which);
    exit(1);
}

/* Not `close`: a C library's may do more than the system call. */
void mark(long number) {
    syscall(SYS_close, number);
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

void *block(size_t bytes) {
    size_t rounded = (bytes + 63) / 64 * 64;
    void *memory = aligned_alloc(64, rounded ? rounded : 64);
    if (!memory)
        fail("expected memory, found", "none");
    /* Not zero: a model must not rely on the arena's initial contents. */
    memset(memory, 0xA5, rounded);
    return memory;
}

void *read_file(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0)
        fail("expected a file, found none:", path);
    *bytes = (size_t)ftell(file);
    rewind(file);
    void *data = block(*bytes);
    if (fread(data, 1, *bytes, file) != *bytes)
        fail("expected a whole file:", path);
    fclose(file);
    return data;
}

static arrays allocate(const char *sizes) {
    arrays made = {0};
    for (const char *at = sizes; *at; made.count++) {
        if (made.count == MAX_ARRAYS)
            fail("expected fewer", "arrays");
        char *end;
        made.bytes[made.count] = strtoul(at, &end, 10);
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
        puts(missing);
        exit(3);
    }
    return lib;
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
    if (argc != ARGUMENTS)
        fail("expected 10 arguments, found", argc > ARGUMENTS ? "more" : "fewer");
    functions f = open_functions(argv[1]);
    size_t bytes;
    ek_model model = {.weights = read_file(argv[2], &bytes)};
    model.arena = block(strtoul(argv[3], NULL, 10));
    model.state = block(strtoul(argv[4], NULL, 10));
    int threads = atoi(argv[5]);
    size_t stamps = strtoul(argv[6], NULL, 10) + 1;
    model.stamps = calloc(stamps, sizeof *model.stamps);
    /* An operator's lap is identified by the address its time is written to. */
    syscall(SYS_close, MARK_STAMPS, model.stamps, stamps);
    arrays in = allocate(argv[9]), out = allocate(argv[10]);
    FILE *given = fopen(argv[7], "rb"), *made = fopen(argv[8], "wb");
    if (!given || !made)
        fail("expected files for inputs and outputs, found", strerror(errno));
    for (int i = 0; i < in.count; i++)
        if (fread(in.data[i], 1, in.bytes[i], given) != in.bytes[i])
            fail("expected a whole file:", argv[7]);
    if (threads > 1 && !(model.pool = f.start(threads)))
        fail("expected threads to start, found", "none");
    warm_and_time(&f, &model, &in, &out);
    if (model.pool)
        f.stop(model.pool);
    for (int i = 0; i < out.count; i++)
        fwrite(out.data[i], 1, out.bytes[i], made);
    return fclose(made) == 0 ? 0 : 1;
}
