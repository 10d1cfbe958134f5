/* Shared by the *_products.c programs. To the driver they look like models whose only input is a
 * file of cases. Each array of a case gets a separate heap block of its exact size, so that
 * sanitizers catch the first out-of-bounds byte. */
#ifndef EK_CASES_MODEL_H
#define EK_CASES_MODEL_H
#include <stdlib.h>
#include <string.h>

#include "ek.h"

/* Aligned like tensors, and filled with a value that no kernel may rely on. */
static void *block(size_t bytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, 64, bytes ? bytes : 1))
        abort();
    memset(memory, 0xA5, bytes);
    return memory;
}

const char *ek_describe(void) {
    return "{}";
}

void ek_reset(const ek_model *m) {
    (void)m;
}

/* Copies the next bytes of the case file. */
static void take(const char **from, void *to, size_t bytes) {
    memcpy(to, *from, bytes);
    *from += bytes;
}

/* Reads the next arrays, each into its own block; NULL where the byte count is -1. */
static void take_parts(const char **from, int count, const int64_t *bytes, void **parts) {
    for (int p = 0; p < count; p++) {
        parts[p] = bytes[p] < 0 ? NULL : block((size_t)bytes[p]);
        if (parts[p])
            take(from, parts[p], (size_t)bytes[p]);
    }
}

static void free_parts(int count, void **parts) {
    for (int p = 0; p < count; p++)
        free(parts[p]);
}

/* Reads one case, writes its result to `to` and returns where the next result goes. */
static char *run_case(const char **from, char *to, ek_pool *pool);

int ek_run(const ek_model *m, const void *const *in, void *const *out) {
    const char *from = in[0];
    char *to = out[0];
    int64_t count;
    take(&from, &count, sizeof count);
    for (int64_t i = 0; i < count; i++)
        to = run_case(&from, to, m->pool);
    return 0;
}
#endif
