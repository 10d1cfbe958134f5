/* Runs the board's agent from C programs. */
#ifndef EK_AGENT_H
#define EK_AGENT_H
#include <stddef.h>

/* Runs a NULL-terminated command with the agent that `release` in folder `root` ships. Returns its
 * exit code, or -1 if it could not be run. `answer` receives the output, truncated to `bytes`; NULL
 * discards it. */
int ek_ask_agent(const char *root, const char *release, const char *const command[], char *answer,
                 size_t bytes);

/* The same with these descriptors as its stdin and stdout. */
int ek_connect_agent(const char *root, const char *release, const char *const command[], int in,
                     int out);

/* Whether the manifest of `release` has `key`; if not, there is no need to run the agent. */
int ek_manifest_has(const char *root, const char *release, const char *key);

#endif
