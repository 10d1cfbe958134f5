#define _GNU_SOURCE
#include "pools.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

struct ek_shared_pool {
    ek_shared_pool *next;
    pid_t process; /* threads do not survive a fork */
    int layout, users;
    ek_placement placement;
    cpu_set_t allowed; /* to the thread that started it */
    void *library;
    int unloads; /* references to the library to give up with the pool */
    void (*end)(ek_pool *);
    ek_pool *pool;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ek_shared_pool *pools;

/* `p`: NULL for so many threads anywhere. */
static int is_alike(const ek_shared_pool *s, int layout, int threads, const ek_placement *p,
                    const cpu_set_t *allowed) {
    if (!layout || s->layout != layout || s->process != getpid() || s->placement.threads != threads)
        return 0;
    if (!p)
        return CPU_EQUAL(&s->allowed, allowed);
    return s->placement.pinned == p->pinned &&
           (!p->pinned || CPU_EQUAL(&s->placement.workers, &p->workers));
}

static cpu_set_t allowed_here(void) {
    cpu_set_t found;
    CPU_ZERO(&found);
    sched_getaffinity(0, sizeof found, &found);
    return found;
}

static int layout_of(void *library) {
    int (*layout)(void) = (int (*)(void))dlsym(library, "ek_pool_layout");
    return layout ? layout() : 0;
}

static ek_shared_pool *start(void *library, int layout, const ek_placement *p) {
    ek_pool *(*create)(int) = (ek_pool * (*)(int)) dlsym(library, "ek_pool_create");
    ek_shared_pool *s = create ? calloc(1, sizeof *s) : NULL;
    if (!s)
        return NULL;
    s->process = getpid(), s->layout = layout, s->placement = *p, s->library = library;
    s->allowed = allowed_here();
    s->end = (void (*)(ek_pool *))dlsym(library, "ek_pool_destroy");
    cpu_set_t before;
    int went = p->pinned && ek_go_to(&p->workers, &before);
    s->pool = create(p->threads);
    if (went)
        ek_go_back(&before);
    if (!s->pool) {
        free(s);
        return NULL;
    }
    s->next = pools;
    return pools = s;
}

static ek_shared_pool *share(void *library, int threads, const ek_placement *placement) {
    const int layout = layout_of(library);
    const cpu_set_t allowed = allowed_here();
    const ek_placement anywhere = {.threads = threads};
    pthread_mutex_lock(&lock);
    ek_shared_pool *s = pools;
    while (s && !is_alike(s, layout, threads, placement, &allowed))
        s = s->next;
    if (!s)
        s = start(library, layout, placement ? placement : &anywhere);
    if (s)
        ++s->users;
    pthread_mutex_unlock(&lock);
    return s;
}

ek_shared_pool *ek_pool_share(void *library, const ek_placement *placement) {
    return share(library, placement->threads, placement);
}

ek_shared_pool *ek_pool_share_any(void *library, int threads) {
    return share(library, threads, NULL);
}

ek_pool *ek_pool_of(const ek_shared_pool *shared) {
    return shared->pool;
}

void ek_pool_leave(ek_shared_pool *shared) {
    if (!shared)
        return;
    pthread_mutex_lock(&lock);
    int unloads = 0;
    void *library = shared->library;
    if (!--shared->users) {
        ek_shared_pool **at = &pools;
        while (*at != shared)
            at = &(*at)->next;
        *at = shared->next;
        shared->end(shared->pool);
        unloads = shared->unloads;
        free(shared);
    }
    pthread_mutex_unlock(&lock);
    while (unloads--)
        dlclose(library);
}

void ek_pool_unload(void *library) {
    pthread_mutex_lock(&lock);
    ek_shared_pool *s = pools;
    while (s && s->library != library)
        s = s->next;
    if (s)
        ++s->unloads;
    pthread_mutex_unlock(&lock);
    if (!s)
        dlclose(library);
}
