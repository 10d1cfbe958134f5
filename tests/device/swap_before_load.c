/* For LD_PRELOAD: replaces files of the release in RELEASE by those in OTHER at the latest moment,
 * when a program has verified them and is about to load the library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

void *dlopen(const char *path, int flags) {
    static const char *const names[] = {"model.so", "weights.bin"};
    void *(*real)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    const char *release = getenv("RELEASE"), *other = getenv("OTHER");
    char from[4096], to[4096];
    for (int i = 0; release && other && i < 2; ++i) {
        snprintf(from, sizeof from, "%s/%s", other, names[i]);
        snprintf(to, sizeof to, "%s/%s", release, names[i]);
        if (rename(from, to))
            abort();
    }
    unsetenv("RELEASE");
    return real(path, flags);
}
