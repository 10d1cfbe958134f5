/* A deployed model in a C program on the board, which follows its releases: docs/applications.md.
 *
 * Link with libedgekit-app.so, or compile the C files beside app.c with the program (-ldl on old
 * systems). An ek_app may be used by several threads, one inference at a time; for several at once
 * open it several times: code and weights are in memory once. Not across fork. */
#ifndef EK_APP_H
#define EK_APP_H
#include <stddef.h>

#define EK_APP_RELEASE_BYTES 17 /* an id and its end */

typedef struct ek_app ek_app;

/* The model deployed as `name`, or the one without a name (NULL or "current"), in the folder `root`
 * (NULL: EDGEKIT_ROOT, which an installed application is given, else ~/.edgekit). `threads` work on
 * each inference, on any core; 0: as many as each release says, kept on the cores of its cluster,
 * as is the calling thread while it runs. NULL if there is none to run: then `error` says why in
 * one line. */
ek_app *ek_app_open(const char *root, const char *name, int threads, char *error, size_t bytes);

/* One inference of the release in service. `in` and `out` are in the order of ek_app_describe,
 * contiguous, naturally aligned. 0: done; `release` (or NULL) gets the release that ran. */
int ek_app_run(ek_app *app, const void *const *in, void *const *out,
               char release[EK_APP_RELEASE_BYTES]);

/* Follows now instead of with the next run: 1 another release runs, 0 the same, -1 the one in
 * service cannot be loaded, or its inputs or outputs are others than when the program opened it;
 * the one before runs on, and ek_app_error says why. Tries again one that could not be loaded. */
int ek_app_refresh(ek_app *app);

/* JSON, as ek_describe of ek.h: names, types and shapes of inputs and outputs. Those stay as long
 * as the ek_app, the text until it runs another release. */
const char *ek_app_describe(const ek_app *app);

/* Goes back from the release that runs to the one before, with a note of why. 1 if it did, 0 if
 * there is none or another is in service by now, -1 while a deploy is on its way. */
int ek_app_report_failure(ek_app *app, const char *reason);

/* What went wrong last; empty if nothing did. */
const char *ek_app_error(const ek_app *app);

/* Puts the state of a stateful model back to its initial values. */
void ek_app_reset(ek_app *app);

/* Tells the supervisor of an installed application that this program is well, for one that waits
 * where no inference runs: ek_app_run does it, too. `status` (or NULL) is a line for people. */
void ek_app_alive(const char *status);

void ek_app_close(ek_app *app);

#endif
