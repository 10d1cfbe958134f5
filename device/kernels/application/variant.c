#include "variant.h"

#include <stdio.h>
#include <string.h>

enum { QUOTED = 512 };

/* Keys of the manifest are sorted and without spaces: the library of a variant precedes its
 * signature, and the signature of the first variant precedes all libraries. */
int ek_find_variant(const char *manifest, const char *signature, char *library, size_t bytes) {
    static const char key[] = "\"library\":\"";
    char quoted[QUOTED];
    snprintf(library, bytes, "model.so");
    if (!*signature)
        return 0;
    snprintf(quoted, sizeof quoted, "\"signature\":\"%s\"", signature);
    const char *end = manifest ? strstr(manifest, quoted) : NULL, *value = NULL;
    int number = end ? 0 : -1;
    for (const char *at = manifest; end && (at = strstr(at, key)) && at < end; ++number)
        value = at += sizeof key - 1;
    if (value)
        snprintf(library, bytes, "%.*s", (int)strcspn(value, "\""), value);
    return number;
}
