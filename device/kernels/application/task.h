/* What a model is for: pictures as its input, and boxes, poses, classes and those of pixels as its
 * results. Mirrors device/runtime/agent/task.py, fitting.py and
 * device/runtime/application/pictures.py. */
#ifndef EK_TASK_H
#define EK_TASK_H
#include "ek_app.h"

typedef struct ek_task ek_task;

/* The task of a release whose `library` has that `description`. NULL if it has none, if this
 * variant lacks its input or output, or if there is no memory. */
ek_task *ek_task_open(const char *manifest, const char *description, void *library);
void ek_task_close(ek_task *task);

/* Whether the task is of this kind; it is not if there is none. */
int ek_task_is(const ek_task *task, const char *kind);
/* What --task names for this kind. */
const char *ek_task_option(const char *kind);
/* Whether results have boxes. */
int ek_task_has_boxes(const ek_task *task);

/* Makes the model's input of a picture. Returns 0, or -1 if the picture has no pixels. */
int ek_task_take(ek_task *task, const ek_frame *frame);

/* What ek_run takes. */
const void *const *ek_task_inputs(const ek_task *task);
void *const *ek_task_outputs(const ek_task *task);

/* Where boxes and masks of objects are written. */
typedef struct {
    ek_box *boxes;
    uint8_t *masks;
} ek_objects;

/* Writes the `most` best results of the last run, best first, as they are for this kind of task:
 * ek_box, ek_pose, ek_rotated, ek_class, or into ek_objects. Returns their number, or -1 if there
 * is no memory; of segments, writes the class of each pixel and returns 0. */
int ek_task_results(const ek_task *task, const char *kind, void *into, int most);

/* A score above 1 of a box or pose of the last run: then outputs are not decoded as the model means
 * them. 0 if there is none. */
float ek_task_odd_score(const ek_task *task);

/* Runs the model on a picture if it has the task `kind`; returns what ek_task_results does, or -1,
 * and ek_app_error has the reason. In app.c. */
int ek_app_find(ek_app *app, const char *kind, const ek_frame *frame, void *into, int most);

#endif
