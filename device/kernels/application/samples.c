#define _GNU_SOURCE
#include "samples.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "put.h"
#include "environment.h"
#include "integrity.h"

#ifndef EK_SAMPLES_PERIOD_NS
#define EK_SAMPLES_PERIOD_NS 600000000000u /* maximum duration of a batch */
#endif

#ifndef EK_SAMPLES_BUDGET
#define EK_SAMPLES_BUDGET 0.01 /* fraction of inference time */
#endif

/* Same values as in device/runtime/agent/sampler.py. */
enum { EVERY = 10, MOST = 256, FIRST = 32, LONGEST_SKIP = 1 << 20 };
enum { PATH = 4096, NAME = 64 };
static const uint64_t second = 1000000000u;

/* Samples of one batch. Row 0 holds complete inferences, then one row per operator. */
typedef struct {
    uint64_t *rows, began, ended;
    size_t count, operators;
    uint64_t first, inferences; /* inferences before the batch, and in it */
    int core;
    ek_moment before;
    ek_sampler *of;
} collected;

struct ek_sampler {
    char folder[PATH], name[NAME], release[20];
    size_t operators;
    int threads, variant;
    uint64_t *stamps;
    uint64_t count, counted, skip;
    atomic_ullong spent, lost;
    uint64_t inferences_ns;
    collected now;
    pthread_t writer;
    int writes; /* a writer was started and not yet joined */
    atomic_int writing;
};

static uint64_t nanoseconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * second + (uint64_t)t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Count, median, 90th percentile and maximum. */
static void write_spread(FILE *to, uint64_t *row, size_t count) {
    size_t last = count - 1;
    qsort(row, count, sizeof *row, ascending);
    fprintf(to, "[%zu, %llu, %llu, %llu]", count, (unsigned long long)row[last / 2],
            (unsigned long long)row[(last * 9 + 9) / 10], (unsigned long long)row[last]);
}

static void write_document(FILE *to, const collected *c, const char *uuid, uint64_t lost) {
    const ek_sampler *s = c->of;
    char boot[40] = "";
    FILE *known = fopen("/proc/sys/kernel/random/boot_id", "re");
    struct timespec clock;
    clock_gettime(CLOCK_REALTIME, &clock);
    if (known && fgets(boot, sizeof boot, known))
        boot[strspn(boot, "0123456789abcdef-")] = 0;
    if (known)
        fclose(known);
    fprintf(to, "{\"uuid\": \"%s\", \"boot\": \"%s\", \"name\": \"%s\", \"release\": \"%s\"", uuid,
            boot, s->name, s->release);
    fprintf(to, ", \"variant\": %d, \"threads\": %d", s->variant, s->threads);
    fprintf(to, ", \"began_ns\": %llu, \"ended_ns\": %llu", (unsigned long long)c->began,
            (unsigned long long)c->ended);
    fprintf(to, ", \"clock\": %lld.%03ld, \"lost\": %llu, \"inferences\": %llu",
            (long long)clock.tv_sec, clock.tv_nsec / 1000000, (unsigned long long)lost,
            (unsigned long long)c->inferences);
    fprintf(to, ", \"core\": %d", c->core);
    ek_write_environment(to, &c->before);
    fputs(", \"whole\": ", to);
    write_spread(to, c->rows, c->count);
    fputs(", \"operators\": [", to);
    for (size_t i = 1; i <= c->operators; ++i) {
        if (i > 1)
            fputs(", ", to);
        write_spread(to, c->rows + i * MOST, c->count);
    }
    fputs("]}", to);
}

/* The text of a batch, preceded by its CRC-32 as in installed.json; the caller frees it. */
static char *document(collected *c, const char *uuid, unsigned long long lost, size_t *size) {
    char *inner = NULL, *text = NULL;
    size_t inner_size = 0;
    FILE *to = open_memstream(&inner, &inner_size);
    if (!to)
        return NULL;
    write_document(to, c, uuid, lost);
    FILE *outer = fclose(to) ? NULL : open_memstream(&text, size);
    if (outer) {
        fprintf(outer, "{\"crc32\": %lu, \"samples\": %s}\n",
                (unsigned long)ek_crc32(0, (const unsigned char *)inner, inner_size), inner);
        if (fclose(outer))
            free(text), text = NULL;
    }
    free(inner);
    return text;
}

/* Returns whether it succeeded. Losses, including files dropped for space, are reported in the next
 * batch. */
static int write_batch(collected *c) {
    ek_sampler *s = c->of;
    unsigned char random[16];
    char uuid[2 * sizeof random + 1];
    unsigned long long dropped = 0, lost = atomic_load(&s->lost);
    FILE *source = fopen("/dev/urandom", "re");
    int done = source && fread(random, sizeof random, 1, source) == 1;
    if (source)
        fclose(source);
    for (size_t i = 0; i < sizeof random; ++i)
        snprintf(uuid + 2 * i, 3, "%02x", random[i]);
    size_t size = 0;
    char *text = done ? document(c, uuid, lost, &size) : NULL;
    done = text && ek_put(s->folder, uuid, text, size, &dropped);
    free(text);
    atomic_fetch_add(&s->lost, dropped + !done - (done ? lost : 0));
    return done;
}

static void *work(void *job) {
    collected *c = job;
    ek_sampler *s = c->of;
    uint64_t start = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    write_batch(c);
    free(c->rows);
    free(c);
    atomic_fetch_add(&s->spent, nanoseconds(CLOCK_THREAD_CPUTIME_ID) - start);
    atomic_store(&s->writing, 0);
    return NULL;
}

static void join(ek_sampler *s) {
    if (s->writes)
        pthread_join(s->writer, NULL);
    s->writes = 0;
}

/* Writes in the background; postponed while the previous batch is still being written. */
static void finish(ek_sampler *s, uint64_t now) {
    if (atomic_load(&s->writing))
        return;
    join(s);
    collected *job = malloc(sizeof *job);
    s->now.ended = now, s->now.inferences = s->count - s->now.first;
    if (job) {
        *job = s->now;
        atomic_store(&s->writing, 1);
        s->writes = !pthread_create(&s->writer, NULL, work, job);
    }
    if (!job || !s->writes) { /* out of memory or threads: drop the batch, the model must keep
                                 running */
        atomic_store(&s->writing, 0);
        free(job);
        free(s->now.rows);
        atomic_fetch_add(&s->lost, 1);
    }
    s->now.rows = NULL;
}

/* Allocates the batch's rows if needed; returns whether there are any. */
static int begin(ek_sampler *s, uint64_t now) {
    if (s->now.rows)
        return 1;
    memset(&s->now, 0, sizeof s->now);
    s->now.rows = malloc((s->operators + 1) * MOST * sizeof *s->now.rows);
    if (!s->now.rows)
        return 0;
    s->now.of = s, s->now.operators = s->operators, s->now.began = now, s->now.first = s->counted;
    s->now.before = ek_moment_now();
    return 1;
}

/* Number of inferences to skip before the next sample, to stay within the budget and spread samples
 * over the period. */
static uint64_t skip_count(const ek_sampler *s, uint64_t each, uint64_t now) {
    uint64_t skip = EVERY - 1;
    double debt = (double)atomic_load(&s->spent) - EK_SAMPLES_BUDGET * (double)s->inferences_ns;
    each = each ? each : 1;
    if (debt > (double)(skip * each) * EK_SAMPLES_BUDGET)
        skip = (uint64_t)(debt / (EK_SAMPLES_BUDGET * (double)each)) + 1;
    if (s->now.rows) {
        uint64_t elapsed = now - s->now.began, apart = EK_SAMPLES_PERIOD_NS / (MOST - FIRST);
        uint64_t allowed = FIRST + elapsed / apart, count = s->count - s->now.first;
        if (s->now.count >= (allowed < MOST ? allowed : MOST)) {
            uint64_t wall = elapsed / (count ? count : 1);
            wall = wall > each ? wall : each;
            skip = apart / wall > skip ? apart / wall : skip;
        }
    }
    return skip < LONGEST_SKIP ? skip : LONGEST_SKIP;
}

uint64_t *ek_sampler_due(ek_sampler *s) {
    if (!s)
        return NULL;
    ++s->count;
    if (!s->skip)
        return s->stamps;
    --s->skip;
    return NULL;
}

void ek_sampler_record(ek_sampler *s) {
    uint64_t start = nanoseconds(CLOCK_MONOTONIC), now = nanoseconds(CLOCK_BOOTTIME);
    uint64_t total = s->stamps[s->operators] - s->stamps[0];
    if (begin(s, now) && s->now.count < MOST) {
        uint64_t *at = s->now.rows + s->now.count++;
        *at = total;
        for (size_t i = 0; i < s->operators; ++i)
            at[(i + 1) * MOST] = s->stamps[i + 1] - s->stamps[i];
        s->now.core = sched_getcpu();
    }
    s->inferences_ns += total * (s->count - s->counted);
    s->counted = s->count;
    if (s->now.rows && now - s->now.began >= EK_SAMPLES_PERIOD_NS)
        finish(s, now);
    atomic_fetch_add(&s->spent, nanoseconds(CLOCK_MONOTONIC) - start);
    s->skip = skip_count(s, total, now);
}

void ek_sampler_close(ek_sampler *s) {
    if (!s)
        return;
    join(s);
    if (s->now.rows) {
        s->now.ended = nanoseconds(CLOCK_BOOTTIME), s->now.inferences = s->count - s->now.first;
        write_batch(&s->now);
        free(s->now.rows);
    }
    free(s->stamps);
    free(s);
}

/* The board's folder for `root`, which may belong to a named model; returns 0 for a release on
 * trial (temporary/). */
static int board_of(ek_sampler *s, const char *root, char board[PATH]) {
    snprintf(board, PATH, "%s", root);
    char *name = strrchr(board, '/');
    if (!name)
        return 1;
    *name = 0;
    char *outer = strrchr(board, '/');
    if (outer && !strcmp(outer, "/temporary"))
        return 0;
    if (!outer || strcmp(outer, "/named")) {
        *name = '/';
        return 1;
    }
    *outer = 0;
    snprintf(s->name, sizeof s->name, "%s", name + 1);
    return strspn(s->name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == strlen(name + 1);
}

ek_sampler *ek_sampler_open(const char *root, const char *release, int variant, size_t operators,
                            int threads) {
    ek_sampler *s = calloc(1, sizeof *s);
    char board[PATH], off[PATH + 16];
    uint64_t *stamps = calloc(operators + 1, sizeof *stamps);
    int wanted = s && stamps && operators && board_of(s, root, board);
    if (wanted) {
        snprintf(off, sizeof off, "%s/spool/off", board);
        wanted = access(off, F_OK) != 0;
    }
    if (!wanted) {
        free(stamps);
        free(s);
        return NULL;
    }
    snprintf(s->folder, sizeof s->folder, "%.4000s/spool", board);
    mkdir(s->folder, 0700);
    strcat(s->folder, "/samples");
    snprintf(s->release, sizeof s->release, "%s", release);
    s->stamps = stamps, s->operators = operators, s->threads = threads, s->skip = 1;
    s->variant = variant;
    return s;
}
