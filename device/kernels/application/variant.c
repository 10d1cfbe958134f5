#include "variant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "integrity.h"

enum { PATH = 8192, QUOTED = 512 };

/* Keys of the manifest are sorted and without spaces: the library of a variant precedes its
 * signature, and the signature of the first variant precedes all libraries. */
int ek_find_variant(const char *folder, const char *signature, char *path, size_t bytes) {
    static const char key[] = "\"library\":\"";
    char file[PATH], quoted[QUOTED];
    snprintf(path, bytes, "%s/model.so", folder);
    if (!*signature)
        return 0;
    snprintf(file, sizeof file, "%s/manifest.json", folder);
    snprintf(quoted, sizeof quoted, "\"signature\":\"%s\"", signature);
    char *manifest = ek_read_text(file, NULL);
    const char *end = manifest ? strstr(manifest, quoted) : NULL, *library = NULL;
    int number = end ? 0 : -1;
    for (const char *at = manifest; end && (at = strstr(at, key)) && at < end; ++number)
        library = at += sizeof key - 1;
    if (library)
        snprintf(path, bytes, "%s/%.*s", folder, (int)strcspn(library, "\""), library);
    free(manifest);
    return number;
}
