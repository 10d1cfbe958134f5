/* Runs a compiled model on a virtual board, in plain C:
 *
 *   driver LIBRARY                  prints ek_describe's JSON
 *   driver LIBRARY WEIGHTS ARENA STATE STEPS CALLS IN-FILE OUT-FILE THREADS
 *          IN-BYTES,... OUT-BYTES,...
 *
 * IN-FILE holds the inputs of call 0, then of call 1, ...; OUT-FILE receives the outputs in the
 * same layout. The state is reset before every STEPS-th call. Exit code 3: the CPU lacks the
 * feature printed. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ek.h"

/* What ek.h promises of the arena, and of inputs and outputs. */
enum { MAX_ARRAYS = 1024, ALIGNMENT = 64, NATURAL = 8 };

typedef struct {
    int count;
    size_t bytes[MAX_ARRAYS];
    void *data[MAX_ARRAYS];
} arrays;

static void *library;

static void fail(const char *what) {
    fprintf(stderr, "driver: %s\n", what);
    exit(1);
}

static void *symbol(const char *name) {
    void *found = dlsym(library, name);
    if (!found)
        fail(name);
    return found;
}

/* Memory that ends with its last byte, up to `alignment`: a page that nobody may touch follows, or
 * the sanitizer's own. Nonzero: a model may not rely on its arena's contents. */
static void *block(size_t bytes, size_t alignment) {
    void *memory = NULL;
#if __has_feature(address_sanitizer)
    if (posix_memalign(&memory, alignment, bytes ? bytes : 1) != 0)
        fail("out of memory");
#else
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (bytes + page) / page * page;
    size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    const int kind = MAP_PRIVATE | MAP_ANONYMOUS;
    char *pages = mmap(NULL, room + 2 * page, PROT_READ | PROT_WRITE, kind, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages, page, PROT_NONE) != 0 ||
        mprotect(pages + page + room, page, PROT_NONE) != 0)
        fail("out of memory");
    memory = pages + page + room - rounded;
#endif
    memset(memory, 0xA5, bytes);
    return memory;
}

static arrays allocate(const char *sizes) {
    arrays result = {0};
    for (const char *at = sizes; *at && result.count < MAX_ARRAYS; result.count++) {
        char *end;
        result.bytes[result.count] = strtoul(at, &end, 10);
        result.data[result.count] = block(result.bytes[result.count], NATURAL);
        at = *end == ',' ? end + 1 : end;
        if (*at && result.count + 1 == MAX_ARRAYS)
            fail("more inputs or outputs than this driver takes");
    }
    return result;
}

static void *read_whole(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0)
        fail(path);
    *bytes = (size_t)ftell(file);
    rewind(file);
    void *data = block(*bytes, ALIGNMENT);
    if (fread(data, 1, *bytes, file) != *bytes)
        fail(path);
    fclose(file);
    return data;
}

static void run_calls(char **argv, const ek_model *model) {
    long steps = atol(argv[5]), calls = atol(argv[6]);
    FILE *in_file = fopen(argv[7], "rb"), *out_file = fopen(argv[8], "wb");
    if (!in_file || !out_file)
        fail("cannot open the input or output file");
    arrays in = allocate(argv[10]), out = allocate(argv[11]);
    void (*reset)(const ek_model *) = (void (*)(const ek_model *))symbol("ek_reset");
    int (*run)(const ek_model *, const void *const *, void *const *) =
        (int (*)(const ek_model *, const void *const *, void *const *))symbol("ek_run");
    for (long call = 0; call < calls; call++) {
        if (call % steps == 0)
            reset(model);
        for (int i = 0; i < in.count; i++)
            if (fread(in.data[i], 1, in.bytes[i], in_file) != in.bytes[i])
                fail("short input file");
        if (run(model, (const void *const *)in.data, out.data) != 0)
            fail("ek_run");
        for (int i = 0; i < out.count; i++)
            fwrite(out.data[i], 1, out.bytes[i], out_file);
    }
    fclose(in_file);
    if (fclose(out_file) != 0)
        fail("cannot write the output file");
}

int main(int argc, char **argv) {
    if (argc != 2 && argc != 12)
        fail("expected 1 or 11 arguments");
    library = dlopen(argv[1], RTLD_NOW);
    if (!library)
        fail(dlerror());
    if (((int (*)(void))symbol("ek_abi"))() != EK_ABI)
        fail("another ABI");
    const char *missing = ((const char *(*)(void))symbol("ek_missing_feature"))();
    if (missing) {
        puts(missing);
        return 3;
    }
    if (argc == 2) {
        puts(((const char *(*)(void))symbol("ek_describe"))());
        return 0;
    }
    ek_model model = {0};
    size_t weight_bytes;
    model.weights = read_whole(argv[2], &weight_bytes);
    model.arena = block(strtoul(argv[3], NULL, 10), ALIGNMENT);
    model.state = block(strtoul(argv[4], NULL, 10), ALIGNMENT);
    int threads = atoi(argv[9]);
    if (threads > 1) {
        model.pool = ((ek_pool * (*)(int)) symbol("ek_pool_create"))(threads);
        if (!model.pool)
            fail("ek_pool_create");
    }
    run_calls(argv, &model);
    if (model.pool)
        ((void (*)(ek_pool *))symbol("ek_pool_destroy"))(model.pool);
    return 0;
}
