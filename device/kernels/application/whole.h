/* The notes that the agent keeps on the board, read by C programs. */
#ifndef EK_WHOLE_H
#define EK_WHOLE_H
#include <stddef.h>
#include <stdint.h>

uint32_t ek_crc32(uint32_t crc, const unsigned char *data, size_t size);

/* The text of a small file, to be freed; NULL if it cannot be read or has more than 8 MiB. */
char *ek_read_text(const char *path, size_t *size);

/* The value behind "key": in JSON of our own making; NULL if there is none. */
const char *ek_json_value(const char *text, const char *key);

/* Whether all files of a release are as installed.json says, which
 * device/runtime/agent/integrity.py writes; else `error` names the first that is not. */
int ek_is_whole(const char *folder, char *error, size_t bytes);

#endif
