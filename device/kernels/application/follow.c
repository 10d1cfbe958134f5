#include "follow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "integrity.h"

enum { PATH = 4096 };

void ek_root_of(char *to, size_t bytes, const char *root, const char *name) {
    const char *below = root || (root = getenv("EDGEKIT_ROOT")) ? "" : "/.edgekit";
    const int named = name && strcmp(name, "current");
    if (!root)
        root = getenv("HOME");
    snprintf(to, bytes, "%s%s%s%s", root ? root : "", below, named ? "/named/" : "",
             named ? name : "");
}

static int is_id(const char *text) {
    return strspn(text, "0123456789abcdef") == EK_APP_RELEASE_BYTES - 1;
}

int ek_link_names(const char *root, char id[EK_APP_RELEASE_BYTES]) {
    static const char folder[] = "releases/";
    char path[PATH + 16], target[64];
    snprintf(path, sizeof path, "%s/current", root);
    ssize_t size = readlink(path, target, sizeof target - 1);
    if (size != (ssize_t)(sizeof folder - 1 + EK_APP_RELEASE_BYTES - 1))
        return 0;
    target[size] = 0;
    if (strncmp(target, folder, sizeof folder - 1) || !is_id(target + sizeof folder - 1))
        return 0;
    memcpy(id, target + sizeof folder - 1, EK_APP_RELEASE_BYTES);
    return 1;
}

int ek_committed(const char *root, char id[EK_APP_RELEASE_BYTES]) {
    char path[PATH + 16], again[EK_APP_RELEASE_BYTES];
    snprintf(path, sizeof path, "%s/pending.json", root);
    for (;;) {
        if (!ek_link_names(root, id))
            return 0;
        char *note = ek_read_text(path, NULL);
        if (note) {
            const char *value = ek_json_value(note, "current");
            int found = value && *value == '"' && is_id(value + 1);
            int none = value && !strncmp(value, "null", 4);
            if (found)
                snprintf(id, EK_APP_RELEASE_BYTES, "%s", value + 1);
            free(note);
            if (found || none)
                return found;
        } /* ignore a damaged note: the agent's next command repairs it */
        if (ek_link_names(root, again) && !strcmp(id, again))
            return 1;
    }
}
