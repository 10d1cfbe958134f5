#define _GNU_SOURCE
#include "ek_app.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent.h"
#include "ek.h"
#include "follow.h"
#include "placement.h"
#include "pools.h"
#include "release_files.h"
#include "repeats.h"
#include "samples.h"
#include "sd_notify.h"
#include "integrity.h"
#include "json.h"
#include "task.h"
#include "variant.h"

enum { PATH = 4096, TEXT = EK_TASK_ERROR, ALIGNMENT = 64, CHANGES = 5, BUSY = 6 };

/* A loaded release. */
typedef struct {
    char id[EK_APP_RELEASE_BYTES];
    void *library, *weights;
    size_t weights_bytes;
    const char *description;
    void (*reset)(const ek_model *);
    int (*run)(const ek_model *, const void *const *, void *const *);
    ek_model model;
    ek_placement placement;
    ek_shared_pool *threads; /* NULL: the caller's alone */
    ek_sampler *sampler;     /* NULL: inferences are not sampled */
    ek_repeats *repeats;     /* NULL: there is no float model */
    ek_task *task;           /* NULL: unknown */
} loaded;

struct ek_app {
    pthread_mutex_t lock;
    char root[PATH], signature[TEXT];
    int threads; /* 0: as each release specifies */
    loaded now;
    char failed[EK_APP_RELEASE_BYTES]; /* only ek_app_refresh retries it */
    char error[TEXT];
    char *interface; /* inputs and outputs as of ek_app_open */
};

static int fail(char *error, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error, TEXT, format, arguments);
    va_end(arguments);
    return 0;
}

static void unload(loaded *l) {
    ek_sampler_close(l->sampler);
    ek_repeats_close(l->repeats);
    ek_task_close(l->task);
    ek_pool_leave(l->threads);
    free(l->model.arena);
    free(l->model.state);
    if (l->weights)
        munmap(l->weights, l->weights_bytes);
    if (l->library)
        ek_pool_unload(l->library);
    memset(l, 0, sizeof *l);
}

static size_t number(const char *description, const char *key) {
    const char *value = ek_json_value(description, key);
    return value ? strtoull(value, NULL, 10) : 0;
}

static void *block(size_t size) {
    void *found = NULL;
    size = size ? size : 1;
    return posix_memalign(&found, ALIGNMENT, size) ? NULL : memset(found, 0, size);
}

static int map_weights(loaded *l, const ek_release_files *files, char *error) {
    struct stat about;
    size_t expected = number(l->description, "weights_bytes");
    int fd = ek_files_find(files, "weights.bin");
    if (fd < 0 || fstat(fd, &about) || (size_t)about.st_size < expected)
        return fail(error, "weights.bin: expected %zu bytes, found fewer; deploy again", expected);
    void *found = expected ? mmap(NULL, expected, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    if (found == MAP_FAILED)
        return fail(error, "weights.bin: expected memory to map it, found none; free some");
    l->weights = found, l->weights_bytes = expected, l->model.weights = found;
    return 1;
}

static int open_library(loaded *l, const ek_release_files *files, const char *name, char *error) {
    l->library = ek_files_load(files, name);
    if (!l->library)
        return fail(error, "model.so: expected a compiled model, found %s", dlerror());
    int (*abi)(void) = (int (*)(void))dlsym(l->library, "ek_abi");
    if (!abi || abi() != EK_ABI)
        return fail(error, "model.so: expected ABI %d, found another; compile it again", EK_ABI);
    const char *(*missing)(void) = (const char *(*)(void))dlsym(l->library, "ek_missing_feature");
    const char *feature = missing ? missing() : "ek_missing_feature";
    if (feature)
        return fail(error, "model.so: expected a CPU with %s, found one without", feature);
    const char *(*describe)(void) = (const char *(*)(void))dlsym(l->library, "ek_describe");
    l->reset = (void (*)(const ek_model *))dlsym(l->library, "ek_reset");
    l->run =
        (int (*)(const ek_model *, const void *const *, void *const *))dlsym(l->library, "ek_run");
    if (!describe || !l->reset || !l->run || !dlsym(l->library, "ek_pool_destroy"))
        return fail(error, "model.so: expected the functions of ek.h, found fewer");
    l->description = describe();
    return 1;
}

/* The text of the list behind `key`, including its closing bracket. */
static size_t list_of(const char *description, const char *key, const char **start) {
    *start = ek_json_value(description, key);
    return *start ? (size_t)(ek_json_end(*start) - *start) : 0;
}

/* Number of operators in the model. */
static size_t operators_of(const char *description) {
    const char *at = ek_json_first(ek_json_value(description, "operators"));
    size_t count = 0;
    for (; at; at = ek_json_next(at))
        ++count;
    return count;
}

/* Loads what ek_files_open verified. Returns the variant's number, or -1. */
static int load_files(loaded *l, const ek_release_files *files, const char *signature,
                      char *error) {
    char library[PATH];
    char *manifest = ek_read_open(ek_files_find(files, "manifest.json"), NULL);
    int variant = ek_find_variant(manifest, signature, library, sizeof library), loads = 0;
    if (variant < 0)
        fail(error, "release %s: expected signature %.99s, found none", l->id, signature);
    else
        loads = open_library(l, files, library, error) && map_weights(l, files, error);
    if (loads)
        l->task = ek_task_open(manifest, l->description, l->library, files);
    free(manifest);
    return loads ? variant : -1;
}

/* Verifies and loads a release. Returns 1, or on failure loads nothing and describes the problem in
 * `error`. */
static int load(const ek_app *app, const char *id, loaded *l, char *error) {
    char folder[PATH + 64], why[TEXT];
    memset(l, 0, sizeof *l);
    memcpy(l->id, id, sizeof l->id);
    snprintf(folder, sizeof folder, "%s/releases/%s", app->root, id);
    ek_release_files *files = ek_files_open(folder, why, sizeof why);
    if (!files)
        return fail(error, "release %s is damaged: %.300s; deploy it again", id, why);
    int variant = load_files(l, files, app->signature, error);
    ek_files_close(files);
    if (variant < 0) {
        unload(l);
        return 0;
    }
    l->model.arena = block(number(l->description, "arena_bytes"));
    l->model.state = block(number(l->description, "state_bytes"));
    if (app->threads < 1)
        l->placement = ek_placement_of(app->root, id);
    else
        l->placement.threads = app->threads;
    if (l->placement.threads > 1)
        l->threads = ek_pool_share(l->library, &l->placement);
    if (l->threads)
        l->model.pool = ek_pool_of(l->threads);
    if (!l->model.arena || !l->model.state || (l->placement.threads > 1 && !l->model.pool)) {
        unload(l);
        return fail(error, "release %s: expected memory and threads, found too few; free some", id);
    }
    l->reset(&l->model);
    l->sampler =
        ek_sampler_open(app->root, id, variant, operators_of(l->description), l->placement.threads);
    l->repeats = ek_repeats_open(app->root, id);
    return 1;
}

static char *interface_of(const char *description) {
    const char *in, *out;
    size_t of_in = list_of(description, "inputs", &in);
    size_t of_out = list_of(description, "outputs", &out);
    char *text = malloc(of_in + of_out + 1);
    if (text)
        snprintf(text, of_in + of_out + 1, "%.*s%.*s", (int)of_in, in ? in : "", (int)of_out,
                 out ? out : "");
    return text;
}

/* Rolls back from `release`, using the agent that the loaded release ships; returns its exit
 * code. */
static int report(const ek_app *app, const char *release, const char *reason) {
    char id[EK_APP_RELEASE_BYTES];
    memcpy(id, release, sizeof id);
    const char *const command[] = {"report-failure", "--release", id, "--reason", reason, NULL};
    return ek_ask_agent(app->root, app->now.id, command, NULL, 0);
}

/* Returns 1 if a different release now runs, 0 if the same, -1 if the one in service cannot be
 * loaded. The caller holds the lock. */
static int follow(ek_app *app) {
    char id[EK_APP_RELEASE_BYTES], again[EK_APP_RELEASE_BYTES];
    loaded found;
    for (int i = 0; i < CHANGES; ++i) {
        if (!ek_committed(app->root, id) || !strcmp(id, app->now.id))
            return 0;
        if (!strcmp(id, app->failed))
            return -1;
        if (load(app, id, &found, app->error)) {
            char *interface = interface_of(found.description);
            int same = interface && !strcmp(interface, app->interface);
            free(interface);
            if (same) {
                unload(&app->now);
                app->now = found;
                return 1;
            }
            unload(&found);
            memcpy(app->failed, id, sizeof id);
            fail(app->error,
                 "release %s: expected the inputs and outputs that the program opened, found "
                 "others; start the program again",
                 id);
            return -1;
        }
        if (ek_committed(app->root, again) && !strcmp(id, again)) {
            memcpy(app->failed, id, sizeof id);
            report(app, id, app->error);
            return -1;
        }
    }
    return -1;
}

ek_app *ek_app_open(const char *root, const char *name, int threads, char *error, size_t bytes) {
    return ek_app_open_signature(root, name, NULL, threads, error, bytes);
}

ek_app *ek_app_open_signature(const char *root, const char *name, const char *signature,
                              int threads, char *error, size_t bytes) {
    ek_app *app = calloc(1, sizeof *app);
    char id[EK_APP_RELEASE_BYTES], why[TEXT] = "expected memory, found none";
    if (app) {
        app->threads = threads;
        snprintf(app->signature, sizeof app->signature, "%s", signature ? signature : "");
        pthread_mutex_init(&app->lock, NULL);
        ek_root_of(app->root, sizeof app->root, root, name);
        fail(why, "expected a deployed model in %.300s, found none; deploy one: edgekit deploy",
             app->root);
        for (int i = 0; i < CHANGES && ek_committed(app->root, id); ++i)
            if (load(app, id, &app->now, why)) {
                app->interface = interface_of(app->now.description);
                if (app->interface)
                    return app;
            }
    }
    if (error)
        snprintf(error, bytes, "%s", why);
    ek_app_close(app);
    return NULL;
}

/* Loads the release in service if it is another one. The caller holds the lock. */
static void catch_up(ek_app *app) {
    char id[EK_APP_RELEASE_BYTES];
    if (ek_link_names(app->root, id) && strcmp(id, app->now.id))
        follow(app);
}

/* Runs one inference; the caller holds the lock. */
static int infer(ek_app *app, const void *const *in, void *const *out) {
    app->now.model.stamps = ek_sampler_due(app->now.sampler);
    cpu_set_t before;
    int went = app->now.placement.pinned && ek_go_to(&app->now.placement.cores, &before);
    ek_repeats_begin(app->now.repeats, app->now.model.state, in);
    int code = app->now.run(&app->now.model, in, out);
    if (!code)
        ek_repeats_end(app->now.repeats, out);
    if (went)
        ek_go_back(&before);
    if (!code && app->now.model.stamps)
        ek_sampler_record(app->now.sampler);
    if (code)
        fail(app->error, "ek_run: expected 0, found %d; please report this model", code);
    return code;
}

int ek_app_run(ek_app *app, const void *const *in, void *const *out,
               char release[EK_APP_RELEASE_BYTES]) {
    pthread_mutex_lock(&app->lock);
    catch_up(app);
    int code = infer(app, in, out);
    if (release)
        memcpy(release, app->now.id, EK_APP_RELEASE_BYTES);
    pthread_mutex_unlock(&app->lock);
    if (!code)
        ek_send_heartbeat();
    return code;
}

int ek_app_use(ek_app *app, const ek_use *use) {
    int found = -1;
    pthread_mutex_lock(&app->lock);
    catch_up(app);
    ek_task *task = app->now.task;
    if (!task || !use->fits(task, use->context)) {
        fail(app->error, "expected a model compiled with --task %s, found another", use->option);
    } else {
        do {
            int ready = use->take(task, use->context, app->error);
            if (ready)
                found = ready < 0 ? -1 : 0;
            else if (infer(app, ek_task_inputs(task), ek_task_outputs(task)))
                found = -1;
            else
                found = use->give(task, use->context, app->error);
        } while (found == EK_AGAIN);
    }
    pthread_mutex_unlock(&app->lock);
    if (found >= 0)
        ek_send_heartbeat();
    return found;
}

int ek_app_fail(ek_app *app, const char *reason) {
    pthread_mutex_lock(&app->lock);
    fail(app->error, "%s", reason);
    pthread_mutex_unlock(&app->lock);
    return -1;
}

int ek_app_refresh(ek_app *app) {
    pthread_mutex_lock(&app->lock);
    app->failed[0] = 0;
    int changed = follow(app);
    pthread_mutex_unlock(&app->lock);
    return changed;
}

const char *ek_app_describe(const ek_app *app) {
    return app->now.description;
}

const char *ek_app_error(const ek_app *app) {
    return app->error;
}

void ek_app_reset(ek_app *app) {
    pthread_mutex_lock(&app->lock);
    app->now.reset(&app->now.model);
    pthread_mutex_unlock(&app->lock);
}

int ek_app_report_failure(ek_app *app, const char *reason) {
    char failed[EK_APP_RELEASE_BYTES];
    pthread_mutex_lock(&app->lock);
    memcpy(failed, app->now.id, sizeof failed);
    int code = report(app, failed, reason);
    if (code)
        fail(app->error, "report-failure: expected exit code 0, found %d%s", code,
             code == BUSY ? ": a deploy is on its way" : "");
    else
        follow(app);
    int back = code ? -1 : strcmp(failed, app->now.id) != 0;
    pthread_mutex_unlock(&app->lock);
    return back;
}

void ek_app_close(ek_app *app) {
    if (!app)
        return;
    unload(&app->now);
    pthread_mutex_destroy(&app->lock);
    free(app->interface);
    free(app);
}
