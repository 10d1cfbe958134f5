/* Nothing here waits for the other process, which only has the time that nobody else wants. */
#define _GNU_SOURCE
#include "repeats.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"

enum { STATES, INPUTS, OUTPUTS, SIZES }; /* of the first message */

/* The other messages of device/runtime/agent/repeats.py. */
typedef struct {
    uint64_t inferences, ns, spent; /* since the last message; `spent` on copies */
} done;

typedef struct {
    uint64_t skip, until; /* inferences; ns of all inferences before which none is repeated */
} wish;

struct ek_repeats {
    int socket, waits; /* waits: an inference is being repeated */
    unsigned char *memory;
    size_t bytes;
    uint64_t *sizes;
    wish next;
    done now;
    int due;               /* the running inference will be repeated */
    uint64_t began, total; /* when the inference began; ns of all inferences */
};

static uint64_t nanoseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The first message, to be freed by the caller; NULL if it is not complete. */
static uint64_t *read_sizes(int socket) {
    ssize_t bytes = recv(socket, NULL, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
    uint64_t *sizes = bytes < (ssize_t)(SIZES * sizeof *sizes) ? NULL : malloc((size_t)bytes);
    if (sizes && (recv(socket, sizes, (size_t)bytes, MSG_DONTWAIT) != bytes ||
                  (size_t)bytes != (SIZES + sizes[INPUTS] + sizes[OUTPUTS]) * sizeof *sizes)) {
        free(sizes);
        return NULL;
    }
    return sizes;
}

static ek_repeats *begin(int socket, int memory) {
    ek_repeats *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->socket = socket, r->sizes = read_sizes(socket), r->next.skip = 1; /* caches are cold */
    if (!r->sizes) {
        free(r);
        return NULL;
    }
    r->bytes = r->sizes[STATES];
    for (uint64_t i = 0; i < r->sizes[INPUTS] + r->sizes[OUTPUTS]; ++i)
        r->bytes += r->sizes[SIZES + i];
    void *found = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (found == MAP_FAILED) {
        free(r->sizes);
        free(r);
        return NULL;
    }
    r->memory = found;
    return r;
}

ek_repeats *ek_repeats_open(const char *root, const char *release) {
    const char *const command[] = {"repeat", "--release", release, NULL};
    int ends[2], memory;
    if (!ek_manifest_has(root, release, "shadow") ||
        (memory = memfd_create("edgekit-repeats", MFD_CLOEXEC)) < 0)
        return NULL;
    ek_repeats *r = NULL;
    if (!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) {
        int code = ek_connect_agent(root, release, command, memory, ends[1]);
        close(ends[1]);
        r = code ? NULL : begin(ends[0], memory);
        if (!r)
            close(ends[0]);
    }
    close(memory);
    return r;
}

static void give_up(ek_repeats *r) {
    close(r->socket);
    r->socket = -1;
}

/* Whether to repeat the next inference. */
static int is_due(ek_repeats *r) {
    if (r->waits) {
        ssize_t got = recv(r->socket, &r->next, sizeof r->next, MSG_DONTWAIT);
        if (got >= 0 ? got != sizeof r->next : errno != EAGAIN && errno != EINTR)
            give_up(r);
        r->waits = got < 0;
        return 0;
    }
    if (!r->next.skip)
        return r->total >= r->next.until;
    --r->next.skip;
    return 0;
}

static void copy_inputs(ek_repeats *r, const void *state, const void *const *in) {
    uint64_t start = nanoseconds();
    unsigned char *to = r->memory;
    memcpy(to, state, r->sizes[STATES]);
    to += r->sizes[STATES];
    for (uint64_t i = 0; i < r->sizes[INPUTS]; to += r->sizes[SIZES + i++])
        memcpy(to, in[i], r->sizes[SIZES + i]);
    r->now.spent += nanoseconds() - start;
}

void ek_repeats_begin(ek_repeats *r, const void *state, const void *const *in) {
    if (!r || r->socket < 0)
        return;
    r->due = is_due(r);
    if (r->due)
        copy_inputs(r, state, in);
    r->began = nanoseconds();
}

void ek_repeats_end(ek_repeats *r, void *const *out) {
    if (!r || r->socket < 0)
        return;
    uint64_t start = nanoseconds(), ns = start - r->began;
    ++r->now.inferences, r->now.ns += ns, r->total += ns;
    if (!r->due)
        return;
    const uint64_t *sizes = r->sizes + SIZES + r->sizes[INPUTS];
    unsigned char *to = r->memory + r->bytes;
    for (uint64_t i = r->sizes[OUTPUTS]; i-- > 0;)
        memcpy(to -= sizes[i], out[i], sizes[i]);
    r->now.spent += nanoseconds() - start;
    if (send(r->socket, &r->now, sizeof r->now, MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof r->now)
        give_up(r);
    r->waits = 1;
    memset(&r->now, 0, sizeof r->now);
}

void ek_repeats_close(ek_repeats *r) {
    if (!r)
        return;
    if (r->socket >= 0)
        give_up(r);
    munmap(r->memory, r->bytes);
    free(r->sizes);
    free(r);
}
