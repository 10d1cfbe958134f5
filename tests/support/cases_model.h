/* What the programs *_products.c share: they look like models to the driver, whose one input is a
 * file of cases, and each array of a case stands in a block of its own, just large enough, so that
 * sanitizers see the first byte too far. */
#ifndef EK_CASES_MODEL_H
#define EK_CASES_MODEL_H
#include <stdlib.h>
#include <string.h>

#include "ek.h"

/* Aligned as tensors are, and full of what no kernel should count on. */
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
#endif
