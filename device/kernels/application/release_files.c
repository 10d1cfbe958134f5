#define _GNU_SOURCE
#include "release_files.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "integrity.h"

enum { CHUNK = 1 << 16, PATH = 4096 };

static const char descriptors[] = "/proc/self/fd";
static const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;

typedef struct kept {
    struct kept *next;
    int fd;
    char name[];
} kept;

struct ek_release_files {
    int folder;
    kept *first;
    char path[PATH];
};

/* Opens a regular file below `folder`; returns -1 if a part of its path is a symbolic link. */
static int open_below(int folder, const char *name) {
    char part[PATH];
    int within = folder, found;
    for (const char *slash; (slash = strchr(name, '/')); name = slash + 1) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - name), name);
        found = openat(within, part, flags | O_DIRECTORY);
        if (within != folder)
            close(within);
        if ((within = found) < 0)
            return -1;
    }
    found = openat(within, name, flags);
    if (within != folder)
        close(within);
    return found;
}

static int same_sum(int fd, uint64_t size, uint32_t crc) {
    struct stat about;
    unsigned char *chunk = malloc(CHUNK);
    uint32_t found = 0;
    uint64_t seen = 0;
    if (chunk && !fstat(fd, &about) && S_ISREG(about.st_mode) && (uint64_t)about.st_size == size) {
        for (ssize_t got; (got = pread(fd, chunk, CHUNK, (off_t)seen)) > 0; seen += (uint64_t)got)
            found = ek_crc32(found, chunk, (size_t)got);
    }
    free(chunk);
    return seen == size && found == crc && (size > 0 || crc == 0);
}

/* Keeps the descriptor of a file that may be loaded; the others are many. Returns 0 without
 * memory. */
static int keep(ek_release_files *files, const char *name, int fd) {
    size_t length = strlen(name);
    if (strchr(name, '/') && (length < 3 || strcmp(name + length - 3, ".so"))) {
        close(fd);
        return 1;
    }
    kept *made = malloc(sizeof *made + length + 1);
    if (!made) {
        close(fd);
        return 0;
    }
    memcpy(made->name, name, length + 1);
    made->fd = fd, made->next = files->first, files->first = made;
    return 1;
}

/* The record is {"crc32": N, "files": {"path": [size, crc], ...}}, where N is the CRC-32 of the
 * text of "files"; paths in a manifest need no escapes. */
static int check_record(ek_release_files *files, const char *text, size_t size, char *error,
                        size_t bytes) {
    const char *own = ek_json_value(text, "crc32"), *listed = ek_json_value(text, "files");
    const char *end = text + size - 2;
    if (!own || !listed || size < 4 || end <= listed || strcmp(end, "}\n") ||
        strtoul(own, NULL, 10) !=
            ek_crc32(0, (const unsigned char *)listed, (size_t)(end - listed))) {
        snprintf(error, bytes, "expected installed.json as it was written, found another text");
        return 0;
    }
    char name[PATH];
    unsigned long long length;
    unsigned long crc;
    for (const char *at = listed; (at = strchr(at, '"')); at = strchr(at, ']')) {
        if (sscanf(at, "\"%4095[^\"]\": [%llu, %lu]", name, &length, &crc) != 3)
            break;
        int fd = open_below(files->folder, name);
        int same = fd >= 0 && same_sum(fd, length, (uint32_t)crc);
        if (!same && fd >= 0)
            close(fd);
        if (!same || !keep(files, name, fd)) {
            snprintf(error, bytes, "%.200s: expected it as it was installed, found other bytes",
                     name);
            return 0;
        }
    }
    return 1;
}

ek_release_files *ek_files_open(const char *folder, char *error, size_t bytes) {
    ek_release_files *files = calloc(1, sizeof *files);
    size_t size = 0;
    snprintf(error, bytes, "expected installed.json, found none to read");
    if (!files)
        return NULL;
    snprintf(files->path, sizeof files->path, "%s", folder);
    files->folder = open(folder, flags | O_DIRECTORY);
    int fd = files->folder < 0 ? -1 : open_below(files->folder, "installed.json");
    char *text = fd < 0 ? NULL : ek_read_open(fd, &size);
    int intact = text && check_record(files, text, size, error, bytes);
    free(text);
    if (fd >= 0)
        close(fd);
    if (intact)
        return files;
    ek_files_close(files);
    return NULL;
}

int ek_files_find(const ek_release_files *files, const char *name) {
    const kept *at = files->first;
    while (at && strcmp(at->name, name))
        at = at->next;
    return at ? at->fd : -1;
}

/* The loader takes a path that it has seen for the same library, though descriptors are reused.
 * Each call therefore spells the path differently: with "/" for a 0 and "/." for a 1. */
void *ek_files_load(const ek_release_files *files, const char *name) {
    static unsigned calls;
    char path[2 * PATH];
    int fd = ek_files_find(files, name);
    snprintf(path, sizeof path, "%s/%s", files->path, name);
    if (fd >= 0 && !access(descriptors, X_OK)) {
        int end = snprintf(path, sizeof path, "%s", descriptors);
        for (unsigned left = __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED); left; left >>= 1)
            end += snprintf(path + end, sizeof path - (size_t)end, left & 1 ? "/." : "/");
        snprintf(path + end, sizeof path - (size_t)end, "/%d", fd);
    }
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

void ek_files_close(ek_release_files *files) {
    if (!files)
        return;
    while (files->first) {
        kept *at = files->first;
        files->first = at->next;
        close(at->fd);
        free(at);
    }
    if (files->folder >= 0)
        close(files->folder);
    free(files);
}
