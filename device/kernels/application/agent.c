#define _GNU_SOURCE
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "integrity.h"

enum { PATH = 4096, BEFORE = 6, MOST = 16 };

extern char **environ;

/* Reads to the end, so that the writer never blocks on a full pipe, and keeps what fits. */
static void read_answer(int fd, char *answer, size_t bytes) {
    char rest[256];
    size_t found = 0;
    for (;;) {
        size_t space = bytes - 1 - found;
        ssize_t got = space ? read(fd, answer + found, space) : read(fd, rest, sizeof rest);
        if (got == 0 || (got < 0 && errno != EINTR))
            break;
        found += got > 0 && space ? (size_t)got : 0;
    }
    answer[found] = 0;
}

/* Starts the agent; `in`: its stdin, or -1 for this process's, `out`: its stdout, or -1 for none.
 * Returns its process, or -1. */
static pid_t start(const char *root, const char *release, const char *const command[], int in,
                   int out) {
    char runtime[PATH + 64];
    snprintf(runtime, sizeof runtime, "%s/releases/%s/runtime.pyz", root, release);
    const char *arguments[MOST] = {"python3", "-I", "-S", runtime, "--root", root};
    for (int i = 0; command[i] && BEFORE + i < MOST - 1; ++i)
        arguments[BEFORE + i] = command[i];
    posix_spawn_file_actions_t actions;
    pid_t child;
    if (posix_spawn_file_actions_init(&actions))
        return -1;
    if (in >= 0)
        posix_spawn_file_actions_adddup2(&actions, in, 0);
    if (out >= 0)
        posix_spawn_file_actions_adddup2(&actions, out, 1);
    else
        posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    int failed = posix_spawnp(&child, "python3", &actions, NULL, (char **)arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return failed ? -1 : child;
}

/* Waits for the agent to end; returns its exit code, or -1. */
static int exit_code(pid_t child) {
    int status = -1;
    while (child >= 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return child >= 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int ek_ask_agent(const char *root, const char *release, const char *const command[], char *answer,
                 size_t bytes) {
    int ends[2] = {-1, -1};
    if (answer && pipe2(ends, O_CLOEXEC))
        return -1;
    pid_t child = start(root, release, command, -1, ends[1]);
    if (answer) {
        close(ends[1]);
        read_answer(ends[0], answer, bytes);
        close(ends[0]);
    }
    return exit_code(child);
}

int ek_connect_agent(const char *root, const char *release, const char *const command[], int in,
                     int out) {
    return exit_code(start(root, release, command, in, out));
}

int ek_manifest_has(const char *root, const char *release, const char *key) {
    char path[PATH + 64];
    snprintf(path, sizeof path, "%s/releases/%s/manifest.json", root, release);
    char *manifest = ek_read_text(path, NULL);
    int found = manifest && ek_json_value(manifest, key);
    free(manifest);
    return found;
}
