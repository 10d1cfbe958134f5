/* Functions of <string.h>. Those that copy and fill are about as fast as a C library's, since
 * kernels use them: vectors at any address on ARM, aligned words on RISC-V. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __riscv
typedef uint64_t __attribute__((may_alias)) piece;
#define ALIGNMENT sizeof(piece)
#define FILLED(value) ((value) * UINT64_C(0x0101010101010101))
#else
typedef uint8_t __attribute__((vector_size(16), aligned(1), may_alias)) piece;
#define ALIGNMENT 1
#define FILLED(value) ((piece){0} + (value))
#endif
enum { PIECE = sizeof(piece), BLOCK = 4 * PIECE, SHORT = 16 };

static int is_aligned(const void *a, const void *b) {
    return ((uintptr_t)a | (uintptr_t)b) % ALIGNMENT == 0;
}

/* All copies read what they are about to overwrite first. */
static void copy_block(char *to, const char *from) {
    const piece *in = (const piece *)from;
    piece *out = (piece *)to;
    const piece a = in[0], b = in[1], c = in[2], d = in[3];
    out[0] = a, out[1] = b, out[2] = c, out[3] = d;
}

#ifdef __riscv
static void copy_short_upwards(char *to, const char *from, size_t bytes) {
    for (; bytes >= 4; bytes -= 4, to += 4, from += 4) {
        const char a = from[0], b = from[1], c = from[2], d = from[3];
        to[0] = a, to[1] = b, to[2] = c, to[3] = d;
    }
    for (; bytes; bytes--)
        *to++ = *from++;
}

static void copy_short_downwards(char *to, const char *from, size_t bytes) {
    while (bytes--)
        to[bytes] = from[bytes];
}

/* Aligns both addresses, or copies to words from parts of two each, which pays from twice SHORT.
 * Returns how much it copied. */
static size_t copy_unaligned(char *to, const char *from, size_t bytes) {
    size_t done = -(uintptr_t)to % PIECE;
    copy_short_upwards(to, from, done);
    const unsigned shift = (uintptr_t)(from + done) % PIECE * 8;
    const piece *in = (const piece *)(from + done - shift / 8);
    if (shift == 0)
        return done;
    for (piece low = *in++, high; bytes - done >= PIECE; done += PIECE, low = high) {
        high = *in++;
        *(piece *)(to + done) = low >> shift | high << (64 - shift);
    }
    return done;
}
#else
/* Two pieces that may overlap. */
#define COPY_ENDS(type)                                                                            \
    {                                                                                              \
        typedef type __attribute__((aligned(1), may_alias)) end;                                   \
        const size_t other = bytes - sizeof(end);                                                  \
        const end a = *(const end *)from, b = *(const end *)(from + other);                        \
        *(end *)to = a, *(end *)(to + other) = b;                                                  \
    }

static void copy_short_upwards(char *to, const char *from, size_t bytes) {
    if (bytes >= sizeof(uint64_t))
        COPY_ENDS(uint64_t)
    else if (bytes >= sizeof(uint32_t))
        COPY_ENDS(uint32_t)
    else if (bytes >= sizeof(uint16_t))
        COPY_ENDS(uint16_t)
    else if (bytes)
        *to = *from;
}

static void copy_short_downwards(char *to, const char *from, size_t bytes) {
    copy_short_upwards(to, from, bytes);
}

static size_t copy_unaligned(char *to, const char *from, size_t bytes) {
    (void)to, (void)from, (void)bytes;
    return 0;
}
#endif

static void copy_upwards(char *to, const char *from, size_t bytes) {
    if (bytes >= SHORT && (bytes >= 2 * SHORT || is_aligned(to, from))) {
        const size_t done = is_aligned(to, from) ? 0 : copy_unaligned(to, from, bytes);
        to += done, from += done, bytes -= done;
        for (; bytes >= BLOCK; bytes -= BLOCK, to += BLOCK, from += BLOCK)
            copy_block(to, from);
        for (; bytes >= PIECE; bytes -= PIECE, to += PIECE, from += PIECE)
            *(piece *)to = *(const piece *)from;
    }
    copy_short_upwards(to, from, bytes);
}

static void copy_downwards(char *to, const char *from, size_t bytes) {
    if (is_aligned(to + bytes, from + bytes)) {
        for (; bytes >= BLOCK; bytes -= BLOCK)
            copy_block(to + bytes - BLOCK, from + bytes - BLOCK);
        for (; bytes >= PIECE; bytes -= PIECE)
            *(piece *)(to + bytes - PIECE) = *(const piece *)(from + bytes - PIECE);
    }
    copy_short_downwards(to, from, bytes);
}

void *memcpy(void *restrict to, const void *restrict from, size_t bytes) {
    copy_upwards(to, from, bytes);
    return to;
}

void *memmove(void *to, const void *from, size_t bytes) {
    if ((uintptr_t)to - (uintptr_t)from >= bytes)
        copy_upwards(to, from, bytes);
    else
        copy_downwards(to, from, bytes);
    return to;
}

static void fill_short(char *to, int value, size_t bytes) {
#pragma clang loop unroll_count(4)
    for (size_t i = 0; i < bytes; i++)
        to[i] = (char)value;
}

void *memset(void *to, int value, size_t bytes) {
    char *out = to;
    if (bytes >= SHORT) {
        const piece pattern = FILLED((uint8_t)value);
        const size_t before = -(uintptr_t)out % ALIGNMENT;
        fill_short(out, value, before);
        for (out += before, bytes -= before; bytes >= BLOCK; bytes -= BLOCK, out += BLOCK)
            for (int i = 0; i < 4; i++)
                ((piece *)out)[i] = pattern;
        for (; bytes >= PIECE; bytes -= PIECE, out += PIECE)
            *(piece *)out = pattern;
    }
    fill_short(out, value, bytes);
    return to;
}

int memcmp(const void *a, const void *b, size_t bytes) {
    const uint8_t *left = a, *right = b;
    for (size_t i = 0; i < bytes; i++)
        if (left[i] != right[i])
            return left[i] - right[i];
    return 0;
}

int bcmp(const void *a, const void *b, size_t bytes) {
    return memcmp(a, b, bytes);
}

size_t strlen(const char *text) {
    size_t length = 0;
    while (text[length])
        length++;
    return length;
}

int strncmp(const char *a, const char *b, size_t most) {
    size_t i = 0;
    while (i < most && a[i] && a[i] == b[i])
        i++;
    return i == most ? 0 : (unsigned char)a[i] - (unsigned char)b[i];
}

int strcmp(const char *a, const char *b) {
    return strncmp(a, b, SIZE_MAX);
}

char *strchr(const char *text, int wanted) {
    while (*text && *text != (char)wanted)
        text++;
    return *text == (char)wanted ? (char *)text : NULL;
}

size_t strcspn(const char *text, const char *ends) {
    size_t length = 0;
    while (text[length] && !strchr(ends, text[length]))
        length++;
    return length;
}

char *strstr(const char *text, const char *part) {
    const size_t length = strlen(part);
    for (; *text || !length; text++)
        if (strncmp(text, part, length) == 0)
            return (char *)text;
    return NULL;
}
