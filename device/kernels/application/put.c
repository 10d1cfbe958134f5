#define _GNU_SOURCE
#include "put.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 19, PATH = 4096, NAME = 64, LOCK_ATTEMPTS = 100 };

/* Locks the folder; returns -1 if another process holds the lock for too long. */
static int lock(const char *folder) {
    char path[PATH + 16];
    snprintf(path, sizeof path, "%s/lock", folder);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    for (int i = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB); ++i) {
        if (i == LOCK_ATTEMPTS) {
            close(fd);
            return -1;
        }
        usleep(10000);
    }
    return fd;
}

/* Returns the highest number of a file in the folder; also the name of the lowest-numbered file and
 * the total size. */
static long look(const char *folder, char oldest[NAME], size_t *bytes) {
    char path[PATH + 2 * NAME];
    struct stat about;
    long most = 0, number;
    DIR *all = opendir(folder);
    *oldest = 0, *bytes = 0;
    for (struct dirent *one; all && (one = readdir(all));) {
        snprintf(path, sizeof path, "%s/%.63s", folder, one->d_name);
        if (strlen(one->d_name) >= NAME || sscanf(one->d_name, "%12ld-", &number) != 1 ||
            lstat(path, &about))
            continue;
        most = number > most ? number : most;
        *bytes += (size_t)about.st_size;
        if (!*oldest || strcmp(one->d_name, oldest) < 0)
            strcpy(oldest, one->d_name);
    }
    if (all)
        closedir(all);
    return most;
}

static int put(const char *folder, const char *uuid, const char *data, size_t size,
               unsigned long long *dropped) {
    char new[PATH + 16], path[PATH + 2 * NAME], oldest[NAME];
    size_t bytes;
    long last = look(folder, oldest, &bytes);
    for (; *oldest && bytes + size > MOST_BYTES; look(folder, oldest, &bytes), ++*dropped) {
        snprintf(path, sizeof path, "%s/%s", folder, oldest);
        if (unlink(path))
            return 0;
    }
    snprintf(new, sizeof new, "%s/.new", folder);
    snprintf(path, sizeof path, "%s/%012ld-%s.json", folder, last + 1, uuid);
    int fd = open(new, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int done =
        fd >= 0 && size <= MOST_BYTES && write(fd, data, size) == (ssize_t)size && !fsync(fd);
    if (fd >= 0)
        close(fd);
    done = done && !rename(new, path);
    if (!done)
        unlink(new);
    int all = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (all >= 0) {
        fsync(all);
        close(all);
    }
    return done;
}

int ek_put(const char *folder, const char *uuid, const char *data, size_t size,
           unsigned long long *dropped) {
    mkdir(folder, 0700);
    int held = lock(folder);
    int done = held >= 0 && put(folder, uuid, data, size, dropped);
    if (held >= 0)
        close(held);
    return done;
}
