/* What a model is for: pictures or sound as its input, and boxes, poses, classes, lines of text and
 * words as its results. Mirrors device/runtime/agent/task.py, fitting.py and
 * device/runtime/application/pictures.py. */
#ifndef EK_TASK_H
#define EK_TASK_H
#include "ek_app.h"
#include "release_files.h"

typedef struct ek_task ek_task;

enum { EK_TASK_ERROR = 512, EK_AGAIN = -2 };

/* The task of a release of `files` whose `library` has that `description`. NULL if it has none, if
 * this variant lacks its input or output, or if there is no memory. */
ek_task *ek_task_open(const char *manifest, const char *description, void *library,
                      const ek_release_files *files);
void ek_task_close(ek_task *task);

/* Whether the task is of this kind; it is not if there is none. */
int ek_task_is(const ek_task *task, const char *kind);
/* What --task names for this kind. */
const char *ek_task_option(const char *kind);

/* Makes the model's input of a picture. Returns 0, or -1 if the picture has no pixels. */
int ek_task_take(ek_task *task, const ek_frame *frame, char *error);

/* What ek_run takes. */
const void *const *ek_task_inputs(const ek_task *task);
void *const *ek_task_outputs(const ek_task *task);

/* Inferences for one result, by one release. `fits` says whether the model is for that, else the
 * error names the `option` of --task. `take` makes the inputs: 0, 1 if there is nothing to run, or
 * -1. `give` takes the outputs: a result, EK_AGAIN for another inference, or -1. Errors have
 * EK_TASK_ERROR bytes. */
typedef struct {
    const char *option;
    void *context;
    int (*fits)(const ek_task *, const void *context);
    int (*take)(ek_task *, void *context, char *error);
    int (*give)(ek_task *, void *context, char *error);
} ek_use;

/* Returns the result (0 if there was nothing to run), or -1, and ek_app_error has the reason. In
 * app.c. */
int ek_app_use(ek_app *app, const ek_use *use);

/* Writes the reason why the last call failed; returns -1. */
int ek_app_fail(ek_app *app, const char *reason);

#endif
