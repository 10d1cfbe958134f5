#define _GNU_SOURCE
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

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

int ek_ask_agent(const char *root, const char *release, const char *const command[], char *answer,
                 size_t bytes) {
    char runtime[PATH + 64];
    snprintf(runtime, sizeof runtime, "%s/releases/%s/runtime.pyz", root, release);
    const char *arguments[MOST] = {"python3", "-I", "-S", runtime, "--root", root};
    for (int i = 0; command[i] && BEFORE + i < MOST - 1; ++i)
        arguments[BEFORE + i] = command[i];
    int ends[2] = {-1, -1}, status = -1;
    posix_spawn_file_actions_t actions;
    pid_t child;
    if (answer && pipe2(ends, O_CLOEXEC))
        return -1;
    int failed = posix_spawn_file_actions_init(&actions);
    if (!failed) {
        if (answer)
            posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
        else
            posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
        failed = posix_spawnp(&child, "python3", &actions, NULL, (char **)arguments, environ);
        posix_spawn_file_actions_destroy(&actions);
    }
    if (answer) {
        close(ends[1]);
        read_answer(ends[0], answer, bytes);
        close(ends[0]);
    }
    while (!failed && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return !failed && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
