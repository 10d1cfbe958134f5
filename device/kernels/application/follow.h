/* Finds the release to run; mirrors device/runtime/application/follow.py. */
#ifndef EK_FOLLOW_H
#define EK_FOLLOW_H
#include "ek_app.h"

/* Writes the folder of the releases deployed as `name` (NULL or "current": without a name) below
 * `root` (NULL: EDGEKIT_ROOT, which installed applications are given, else ~/.edgekit). */
void ek_root_of(char *to, size_t bytes, const char *root, const char *name);

/* The release that `current` names, which a deploy may not have committed yet. Returns 0 if
 * there is none. */
int ek_link_names(const char *root, char id[EK_APP_RELEASE_BYTES]);

/* The release that a deploy committed. Returns 0 if there is none. */
int ek_committed(const char *root, char id[EK_APP_RELEASE_BYTES]);

#endif
