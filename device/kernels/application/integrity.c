#include "integrity.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 23 };

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

char *ek_read_open(int fd, size_t *size) {
    struct stat about;
    char *text = NULL;
    if (!fstat(fd, &about) && S_ISREG(about.st_mode) && about.st_size <= MOST_BYTES)
        text = malloc((size_t)about.st_size + 1);
    size_t found = 0;
    for (ssize_t got = 1; text && got > 0 && found < (size_t)about.st_size; found += (size_t)got)
        if ((got = pread(fd, text + found, (size_t)about.st_size - found, (off_t)found)) < 0)
            got = 0;
    if (text)
        text[found] = 0;
    if (size)
        *size = found;
    return text;
}

char *ek_read_text(const char *path, size_t *size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    char *text = ek_read_open(fd, size);
    close(fd);
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
