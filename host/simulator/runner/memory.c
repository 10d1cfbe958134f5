/* The runner's allocator, which places blocks the same way on every machine: cache misses, and with
 * them estimates, must not depend on its number of cores.
 *
 * Small blocks come from a heap that is as before once they are freed: the same work gets the same
 * addresses again. Large ones are mapped by themselves. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "system.h"

enum { GRANULE = 64, LARGE = 32768, HEAP = 1 << 20 };

typedef struct chunk {
    struct chunk *next; /* free chunk at the next higher address */
    size_t bytes;
} chunk;

typedef struct {
    chunk *chunk;
    size_t bytes; /* of the block */
} header;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static chunk *free_chunks;

static chunk *map(size_t bytes) {
    chunk *made = map_memory(bytes);
    if (made)
        made->bytes = bytes;
    return made;
}

static void join_next(chunk *c) {
    if ((char *)c + c->bytes != (char *)c->next)
        return;
    c->bytes += c->next->bytes;
    c->next = c->next->next;
}

static void give_back(chunk *c) {
    chunk *before = NULL, **at = &free_chunks;
    for (; *at && *at < c; at = &before->next)
        before = *at;
    c->next = *at;
    *at = c;
    join_next(c);
    if (before)
        join_next(before);
}

/* The first free chunk that is large enough, cut to size. */
static chunk *take_first(size_t bytes) {
    chunk **at = &free_chunks;
    while (*at && (*at)->bytes < bytes)
        at = &(*at)->next;
    chunk *c = *at;
    if (!c)
        return NULL;
    *at = c->next;
    if (c->bytes > bytes) {
        *at = (chunk *)((char *)c + bytes);
        **at = (chunk){c->next, c->bytes - bytes};
        c->bytes = bytes;
    }
    return c;
}

static chunk *take_from_heap(size_t bytes) {
    pthread_mutex_lock(&lock);
    chunk *c = take_first(bytes);
    chunk *more = c ? NULL : map(HEAP);
    if (more) {
        give_back(more);
        c = take_first(bytes);
    }
    pthread_mutex_unlock(&lock);
    return c;
}

static header *header_of(void *block) {
    return (header *)block - 1;
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    size_t offset = alignment < GRANULE ? GRANULE : alignment;
    size_t whole = (bytes + offset + GRANULE - 1) / GRANULE * GRANULE;
    chunk *c = NULL;
    if (whole > bytes)
        c = whole < LARGE ? take_from_heap(whole) : map(whole);
    if (!c)
        return NULL;
    char *made = (char *)(((uintptr_t)c + offset) / offset * offset);
    *header_of(made) = (header){c, bytes};
    return made;
}

void *malloc(size_t bytes) {
    return aligned_alloc(GRANULE, bytes);
}

int posix_memalign(void **made, size_t alignment, size_t bytes) {
    *made = aligned_alloc(alignment, bytes);
    return *made ? 0 : ENOMEM;
}

void *calloc(size_t count, size_t each) {
    size_t bytes;
    if (__builtin_mul_overflow(count, each, &bytes))
        return NULL;
    /* Not malloc: compilers turn that and memset into a call of calloc. */
    void *made = aligned_alloc(GRANULE, bytes);
    return made ? memset(made, 0, bytes) : NULL;
}

void free(void *block) {
    if (!block)
        return;
    chunk *c = header_of(block)->chunk;
    if (c->bytes >= LARGE) {
        unmap_memory(c, c->bytes);
        return;
    }
    pthread_mutex_lock(&lock);
    give_back(c);
    pthread_mutex_unlock(&lock);
}

void *realloc(void *block, size_t bytes) {
    void *made = malloc(bytes);
    if (made && block) {
        size_t held = header_of(block)->bytes;
        memcpy(made, block, held < bytes ? held : bytes);
        free(block);
    }
    return made;
}
