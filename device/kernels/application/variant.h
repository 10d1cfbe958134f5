/* Finds the library of a signature, for C programs. */
#ifndef EK_VARIANT_H
#define EK_VARIANT_H
#include <stddef.h>

/* Writes the path, in the release's folder, of the first library that computes `signature` (that of
 * the first variant if it is empty). Returns the variant's number in the manifest, from 0, or -1 if
 * the release lacks the signature. */
int ek_find_variant(const char *manifest, const char *signature, char *library, size_t bytes);

#endif
