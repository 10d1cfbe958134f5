/* The files of a release, verified and then loaded through the same descriptors: a path can name
 * another file at any moment. Mirrors device/runtime/agent/release_files.py. */
#ifndef EK_RELEASE_FILES_H
#define EK_RELEASE_FILES_H
#include <stddef.h>

typedef struct ek_release_files ek_release_files;

/* Opens all files in `folder` that installed.json, which device/runtime/agent/integrity.py writes,
 * lists, and verifies them; symbolic links are not followed. NULL if one differs; `error` names
 * it. */
ek_release_files *ek_files_open(const char *folder, char *error, size_t bytes);

/* The descriptor of a verified library or of a file at the top of the folder, or -1. It is closed
 * with the others; what was loaded or mapped through it stays. */
int ek_files_find(const ek_release_files *files, const char *name);

/* dlopen of a verified library; NULL if it fails. */
void *ek_files_load(const ek_release_files *files, const char *name);

void ek_files_close(ek_release_files *files);

#endif
