#include "json.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char *skip(const char *at) {
    return at + strspn(at, " \n");
}

const char *ek_json_end(const char *at) {
    int depth = 0, quoted = 0;
    for (; *at; ++at) {
        if (quoted && *at == '\\' && at[1])
            ++at;
        else if (*at == '"')
            quoted = !quoted;
        else if (!quoted && strchr("[{", *at))
            ++depth;
        else if (!quoted && strchr("]}", *at) && --depth < 0)
            break;
        else if (!quoted && !depth && *at == ',')
            break;
    }
    return at;
}

const char *ek_json_first(const char *list) {
    const char *at = list && *list == '[' ? skip(list + 1) : NULL;
    return at && *at && *at != ']' ? at : NULL;
}

const char *ek_json_next(const char *element) {
    const char *end = ek_json_end(element);
    return *end == ',' ? skip(end + 1) : NULL;
}

/* Writes a character in UTF-8; returns the byte after it. */
static char *put(char *to, uint32_t code) {
    if (code < 0x80)
        return *to = (char)code, to + 1;
    int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const uint8_t first[] = {0, 0xC0, 0xE0, 0xF0};
    *to++ = (char)(first[more] | code >> 6 * more);
    while (more--)
        *to++ = (char)(0x80 | (code >> 6 * more & 0x3F));
    return to;
}

static uint32_t unit(const char *at) {
    char digits[5] = {0};
    strncpy(digits, at, 4);
    return (uint32_t)strtoul(digits, NULL, 16);
}

char *ek_json_text(const char *at) {
    static const char escaped[] = "bfnrt", plain[] = "\b\f\n\r\t";
    char *made = malloc((size_t)(ek_json_end(at) - at) + 1); /* no escape is shorter than UTF-8 */
    char *to = made;
    if (!made || *at++ != '"')
        return free(made), NULL;
    while (*at && *at != '"') {
        if (*at != '\\') {
            *to++ = *at++;
            continue;
        }
        const char *known = at[1] ? strchr(escaped, at[1]) : NULL;
        if (at[1] != 'u') {
            *to++ = known ? plain[known - escaped] : at[1];
            at += 2;
            continue;
        }
        uint32_t code = unit(at + 2);
        at += 6;
        if (code >> 10 == 0x36 && at[0] == '\\' && at[1] == 'u') { /* the first of a pair */
            code = 0x10000 + ((code & 0x3FF) << 10) + (unit(at + 2) & 0x3FF);
            at += 6;
        }
        to = put(to, code);
    }
    *to = 0;
    return made;
}
