/* The board's agent, asked by C programs. */
#ifndef EK_AGENT_H
#define EK_AGENT_H
#include <stddef.h>

/* Runs a command of the agent that `release` in the folder `root` brought along, which ends in a
 * NULL; its exit code, -1 if it could not be run. Its answer goes to `answer`, cut where that ends;
 * NULL: to nobody. */
int ek_ask_agent(const char *root, const char *release, const char *const command[], char *answer,
                 size_t bytes);

#endif
