/* Reads and verifies the agent's files on the board, for C programs. */
#ifndef EK_INTEGRITY_H
#define EK_INTEGRITY_H
#include <stddef.h>
#include <stdint.h>

uint32_t ek_crc32(uint32_t crc, const unsigned char *data, size_t size);

/* Returns the text of a small file, to be freed by the caller; NULL if it cannot be read or exceeds
 * 8 MiB. */
char *ek_read_text(const char *path, size_t *size);

/* The same for an open file. */
char *ek_read_open(int fd, size_t *size);

/* Returns the value after "key": in JSON that edgekit wrote; NULL if absent. */
const char *ek_json_value(const char *text, const char *key);

#endif
