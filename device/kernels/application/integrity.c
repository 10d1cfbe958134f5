#include "integrity.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 23, CHUNK = 1 << 16, PATH = 4096 };

uint32_t ek_crc32(uint32_t crc, const unsigned char *data, size_t size) {
    uint32_t table[256];
    for (uint32_t i = 0; i < 256; ++i) {
        table[i] = i;
        for (int bit = 0; bit < 8; ++bit)
            table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xedb88320u : 0);
    }
    crc = ~crc;
    for (size_t i = 0; i < size; ++i)
        crc = table[(crc ^ data[i]) & 255] ^ crc >> 8;
    return ~crc;
}

char *ek_read_text(const char *path, size_t *size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat about;
    if (fd < 0)
        return NULL;
    char *text = NULL;
    if (!fstat(fd, &about) && S_ISREG(about.st_mode) && about.st_size <= MOST_BYTES)
        text = malloc((size_t)about.st_size + 1);
    size_t found = 0;
    for (ssize_t got = 1; text && got > 0 && found < (size_t)about.st_size; found += (size_t)got)
        if ((got = read(fd, text + found, (size_t)about.st_size - found)) < 0)
            got = 0;
    close(fd);
    if (text)
        text[found] = 0;
    if (size)
        *size = found;
    return text;
}

const char *ek_json_value(const char *text, const char *key) {
    char quoted[64];
    int length = snprintf(quoted, sizeof quoted, "\"%s\"", key);
    for (const char *at = text; (at = strstr(at, quoted)); at += length) {
        const char *next = at + length + strspn(at + length, " ");
        if (*next == ':')
            return next + 1 + strspn(next + 1, " ");
    }
    return NULL;
}

static int same_sum(const char *path, uint64_t size, uint32_t crc) {
    static const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    int fd = open(path, flags);
    struct stat about;
    if (fd < 0)
        return 0;
    unsigned char *chunk = malloc(CHUNK);
    uint32_t found = 0;
    uint64_t seen = 0;
    if (chunk && !fstat(fd, &about) && S_ISREG(about.st_mode) && (uint64_t)about.st_size == size) {
        for (ssize_t got; (got = read(fd, chunk, CHUNK)) > 0; seen += (uint64_t)got)
            found = ek_crc32(found, chunk, (size_t)got);
    }
    free(chunk);
    close(fd);
    return seen == size && found == crc && (size > 0 || crc == 0);
}

/* The record is {"crc32": N, "files": {"path": [size, crc], ...}}, where N is the CRC-32 of the
 * text of "files"; paths in a manifest need no escapes. */
static int check_record(const char *folder, const char *text, size_t size, char *error,
                        size_t bytes) {
    const char *own = ek_json_value(text, "crc32"), *files = ek_json_value(text, "files");
    const char *end = text + size - 2;
    if (!own || !files || size < 4 || end <= files || strcmp(end, "}\n") ||
        strtoul(own, NULL, 10) !=
            ek_crc32(0, (const unsigned char *)files, (size_t)(end - files))) {
        snprintf(error, bytes, "expected installed.json as it was written, found another text");
        return 0;
    }
    char name[PATH], path[2 * PATH];
    unsigned long long length;
    unsigned long crc;
    for (const char *at = files; (at = strchr(at, '"')); at = strchr(at, ']')) {
        if (sscanf(at, "\"%4095[^\"]\": [%llu, %lu]", name, &length, &crc) != 3)
            break;
        snprintf(path, sizeof path, "%s/%s", folder, name);
        if (!same_sum(path, length, (uint32_t)crc)) {
            snprintf(error, bytes, "%.200s: expected it as it was installed, found other bytes",
                     name);
            return 0;
        }
    }
    return 1;
}

int ek_is_intact(const char *folder, char *error, size_t bytes) {
    char path[PATH];
    size_t size = 0;
    snprintf(path, sizeof path, "%s/installed.json", folder);
    char *text = ek_read_text(path, &size);
    int intact = text && check_record(folder, text, size, error, bytes);
    if (!text)
        snprintf(error, bytes, "expected installed.json, found none to read");
    free(text);
    return intact;
}
