/* Runs a deployed model from a C program on the board and follows its releases:
 * docs/applications.md.
 *
 * Link with libedgekit-app.so, or compile the C files in its folder into the program (-ldl on old
 * systems). Several threads may use an ek_app, one inference at a time; for concurrent inferences,
 * open it several times: code and weights are shared in memory. Do not use it across fork. */
#ifndef EK_APP_H
#define EK_APP_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EK_APP_RELEASE_BYTES 17 /* an id and its terminating NUL */

typedef struct ek_app ek_app;

/* Opens the model deployed as `name`, or the unnamed one (NULL or "current"), in folder `root`
 * (NULL: EDGEKIT_ROOT, which installed applications are given, else ~/.edgekit). `threads` run each
 * inference, on any core; 0 uses the number that each release specifies and pins them, and the
 * calling thread during inference, to the release's cluster. Returns NULL if there is no release to
 * run and describes the problem in `error`, in one line. */
ek_app *ek_app_open(const char *root, const char *name, int threads, char *error, size_t bytes);

/* Like ek_app_open, for one signature of a model that has several (NULL: its first). Open one
 * ek_app for each signature that the program uses. */
ek_app *ek_app_open_signature(const char *root, const char *name, const char *signature,
                              int threads, char *error, size_t bytes);

/* Runs one inference on the release in service. `in` and `out` are in the order of ek_app_describe,
 * contiguous, naturally aligned. Returns 0 on success; `release`, unless NULL, receives the id of
 * the release that ran. */
int ek_app_run(ek_app *app, const void *const *in, void *const *out,
               char release[EK_APP_RELEASE_BYTES]);

#define EK_APP_LABEL_BYTES 64 /* longer labels are cut */
#define EK_APP_POINTS 64      /* of a pose; more are left out */

/* A picture: red, green and blue bytes of each pixel, row by row. Rows are `stride` bytes apart; 0
 * means 3 * width. */
typedef struct {
    const uint8_t *pixels;
    int64_t width, height, stride;
} ek_frame;

/* A detection in pixels of the picture: `number` of its class, whose `label` is empty if unknown.
 */
typedef struct {
    float left, top, right, bottom, score;
    int number;
    char label[EK_APP_LABEL_BYTES];
} ek_box;

typedef struct {
    float score;
    int number;
    char label[EK_APP_LABEL_BYTES];
} ek_class;

/* A point of a body in pixels of the picture; `score` says how visible it is, 0 to 1. */
typedef struct {
    float x, y, score;
} ek_point;

/* A person or an animal: its box, and its points in the model's order, the first EK_APP_POINTS. */
typedef struct {
    ek_box box;
    int points;
    ek_point point[EK_APP_POINTS];
} ek_pose;

#define EK_APP_CORNERS 4

/* A rotated box: the upright box around it, and its corners in pixels of the picture, one after the
 * other around it, which may lie outside the picture. */
typedef struct {
    ek_box box;
    float x[EK_APP_CORNERS], y[EK_APP_CORNERS];
} ek_rotated;

/* Finds the `most` best boxes, or classes, of a picture, best first, with a model that was compiled
 * with --task detect, or classify. Returns their number, or -1 if the model has another task, the
 * picture no pixels, or a box a score above 1; ek_app_error has the reason. */
int ek_app_detect(ek_app *app, const ek_frame *frame, ek_box *boxes, int most);
int ek_app_classify(ek_app *app, const ek_frame *frame, ek_class *classes, int most);

/* The same for --task pose. */
int ek_app_pose(ek_app *app, const ek_frame *frame, ek_pose *poses, int most);

/* The same for models that find rotated boxes, or tell objects apart. `masks` (NULL: none) receives
 * width * height bytes for each object, row by row: 1 for its pixels, else 0. */
int ek_app_obb(ek_app *app, const ek_frame *frame, ek_rotated *rotated, int most);
int ek_app_instances(ek_app *app, const ek_frame *frame, ek_box *boxes, uint8_t *masks, int most);

/* Writes the class of each pixel of a picture, row by row, with a model that was compiled with
 * --task segment. Returns 0, or -1 as ek_app_detect does. */
int ek_app_segment(ek_app *app, const ek_frame *frame, uint8_t *classes);

/* A picture of `channels` bytes for each pixel, row by row: 1, or 3 with red first. */
typedef struct {
    int64_t width, height;
    int channels;
} ek_image;

/* Writes the rows of the picture that a model makes of one, with a model that was compiled with
 * --task image, as far as they fit into `bytes`; `made` receives the size of the whole. Returns the
 * bytes of the whole, or -1 as ek_app_detect does. */
int64_t ek_app_image(ek_app *app, const ek_frame *frame, uint8_t *pixels, size_t bytes,
                     ek_image *made);

/* Writes the vector of a picture, of length 1, with a model that was compiled with --task embed:
 * its first `most` values. Returns how many it has, or -1 as ek_app_detect does. */
int ek_app_embed(ek_app *app, const ek_frame *frame, float *vector, int most);

/* Writes the line of text in a picture, of any length, with a model that was compiled with --task
 * ocr, in UTF-8: at most `bytes` with the terminating NUL. `score` (or NULL) receives how sure the
 * model is, 0 to 1. Returns the bytes of the whole text without the NUL, or -1 as ek_app_detect
 * does. */
int64_t ek_app_ocr(ek_app *app, const ek_frame *frame, char *text, size_t bytes, float *score);

/* The same for what is said in `count` samples of sound, -1 to 1, of one channel, ek_app_rate of
 * them a second, with a model that was compiled with --task transcribe and scores characters (CTC).
 * Those with a decoder are for Python only. */
int64_t ek_app_transcribe(ek_app *app, const float *samples, int64_t count, char *text,
                          size_t bytes, float *score);

/* Samples a second that a model of sound takes; -1 if it is none. */
int ek_app_rate(ek_app *app);

/* A word, or speech, from `start` to `end` in seconds; `score` is the highest of its windows. */
typedef struct {
    double start, end;
    float score;
    int number;
    char label[EK_APP_LABEL_BYTES];
} ek_heard;

/* Finds words, or speech, in sound with a model that was compiled with --task keyword, or vad. One
 * thread at a time may use a listener; close it before its ek_app. */
typedef struct ek_listener ek_listener;

/* NULL if the model has another task, or if there is no memory. */
ek_listener *ek_app_listen(ek_app *app);

/* Takes the samples that follow the last ones, as ek_app_transcribe does, and writes what ended in
 * them: at most `most`; the next call has the others. Returns their number, or -1, and ek_app_error
 * has the reason. */
int ek_listener_feed(ek_listener *listener, const float *samples, int64_t count, ek_heard *heard,
                     int most);

/* The sound has ended: the same of what has not ended yet. Call it until it returns 0. */
int ek_listener_finish(ek_listener *listener, ek_heard *heard, int most);

void ek_listener_close(ek_listener *listener);

/* Switches to the release in service now instead of at the next run, and retries one that failed to
 * load. Returns 1 if a different release now runs, 0 if the same, -1 if the one in service cannot
 * be loaded or its inputs or outputs differ from those at ek_app_open; then the previous release
 * keeps running, and ek_app_error has the reason. */
int ek_app_refresh(ek_app *app);

/* Returns JSON in the format of ek_describe (ek.h): names, types and shapes of inputs and outputs.
 * These never change for an ek_app; the string is valid until the ek_app switches releases. */
const char *ek_app_describe(const ek_app *app);

/* Rolls back from the running release to the previous one and records the reason. Returns 1 if it
 * did, 0 if there is no previous release or another one is in service by now, -1 while a deploy is
 * in progress. */
int ek_app_report_failure(ek_app *app, const char *reason);

/* Returns the last error; empty if there was none. */
const char *ek_app_error(const ek_app *app);

/* Resets a stateful model to its initial state. */
void ek_app_reset(ek_app *app);

/* Reports to the supervisor of an installed application that this program is healthy. ek_app_run
 * does so too; call this while waiting without running inferences. `status` (or NULL) is one
 * human-readable line. */
void ek_app_alive(const char *status);

void ek_app_close(ek_app *app);

#ifdef __cplusplus
}
#endif

#endif
