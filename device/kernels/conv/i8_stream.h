/* Panels of i8_conv.c whose weights are stored as a row streams them (outlier/grouped_row.h), in
 * panels of STREAM vectors of columns: values and scales are unpacked once for all pixels. */
#ifndef EK_I8_STREAM_H
#define EK_I8_STREAM_H
#include "../outlier/stream.h"

/* Scales, as floats, are behind the values. */
#define UNPACKED_SCALES EK_I8_UNPACKED_BYTES
#define UNPACKED (UNPACKED_SCALES + UNPACKED_SCALES / GROUPS * 4)
#define AHEAD 1024 /* bytes of the stream */
_Static_assert(NV <= 2 && STREAM % NV == 0, "a stored panel has whole panels of a tile");

#define STEP (EK_VL * I8_GROUP)                             /* bytes of a vector of columns */
#define CHUNK ((I8_GROUP == 1 ? NV : 1) * EK_VL * I8_GROUP) /* that are unpacked at once */

/* The values of `size` bytes; those of the same byte are `run` apart. */
EK_INLINE void unpack_bytes(const int size, const uint8_t *w, weight *to, long run) {
    typedef int8_t values __attribute__((vector_size(CHUNK)));
    typedef uint8_t bytes __attribute__((vector_size(CHUNK)));
    bytes all = {0};
    memcpy(&all, w, (size_t)size);
    EK_UNROLL
    for (int shift = 0; shift < 8; shift += STREAM_BITS, to += run) {
        values found = (values)(all << (8 - STREAM_BITS - shift)) >> (8 - STREAM_BITS);
        if (stream_is_raised(STREAM_BITS))
            found = (values)(all >> shift & ((1 << STREAM_BITS) - 1)) - (1 << (STREAM_BITS - 1));
        memcpy(to, &found, (size_t)size);
    }
}

/* A group of `vectors` vectors of columns, whose steps are `pitch` bytes apart. */
EK_INLINE void unpack_group(const int vectors, const uint8_t *w, long pitch, weight *to) {
    const int size = vectors * STEP, chunk = ek_min(CHUNK, size);
    const long steps = GROUPS * STREAM_BITS / 8 / I8_GROUP;
    for (long step = 0; step < steps; step++, w += pitch, to += size) {
        EK_UNROLL
        for (int at = 0; at < size; at += chunk) {
            if (at == 0)
                __builtin_prefetch(w + AHEAD);
            if (STREAM_BITS == 8)
                memcpy(to + at, w + at, (size_t)chunk);
            else
                unpack_bytes(chunk, w + at, to + at, steps * size);
        }
    }
}

static void unpack_panel(const ek_i8_conv_args *a, long panel, weight *to) {
    const long at = panel * NV, stored = at / STREAM * STREAM, in = at - stored;
    const long all = (a->win.oc + EK_VL - 1) / EK_VL, width = ek_min(STREAM, all - stored) * EK_VL;
    const long values = stream_values(width, GROUPS, STREAM_BITS);
    const long block = stream_block(width, GROUPS, STREAM_BITS, SCALES);
    const long vectors = ek_min(NV, all - at);
    const uint8_t *w = (const uint8_t *)a->weights + a->first * block +
                       stored * EK_VL * a->streamed * stream_block(1, GROUPS, STREAM_BITS, SCALES);
    float *scale = (float *)(void *)(to + UNPACKED_SCALES);
    for (long g = 0; g < a->groups; g++, w += block) {
        const uint8_t *first = w + in * EK_VL * I8_GROUP;
        if (vectors == NV)
            unpack_group(NV, first, width * I8_GROUP, to);
        else
            unpack_group(1, first, width * I8_GROUP, to);
        to += vectors * EK_VL * GROUPS;
        for (long j = 0; j < vectors; j++, scale += EK_VL) {
            const uint8_t *from = w + values + (in + j) * EK_VL * stream_scale_bytes(SCALES);
            vf_store(scale, stream_scales(SCALES, from) * stream_unit(SCALES));
        }
    }
}
#endif
