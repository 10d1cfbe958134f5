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

#define STEP (EK_VL * I8_GROUP) /* bytes of a vector of columns */
/* Bytes that are unpacked at once; their third bits follow each other, too. */
#if STREAM_BITS == 3
#define CHUNK (I8_GROUP == 1 ? EK_VL : 16)
#else
#define CHUNK (STREAM_BITS & STREAM_TABLES ? 16 : (I8_GROUP == 1 ? NV : 1) * STEP)
#endif

typedef int8_t values __attribute__((vector_size(CHUNK)));
typedef uint8_t bytes __attribute__((vector_size(CHUNK)));

#if STREAM_BITS == 3
/* The values of CHUNK bytes, whose third bits are at `third`; those of a byte are `run` apart. */
EK_INLINE void unpack_thirds(const uint8_t *w, const uint8_t *third, int low, weight *to,
                             long run) {
    bytes all, upper;
    memcpy(&all, w, CHUNK);
    memcpy(&upper, third, CHUNK);
    upper = (bytes)(upper >> low) << 2;
    EK_UNROLL
    for (int q = 0; q < 4; q++, to += run) {
        const values found = (values)((all >> 2 * q & 3) | (upper >> (q / 2 * 4 + q % 2) & 4)) - 4;
        memcpy(to, &found, CHUNK);
    }
}
#elif !(STREAM_BITS & STREAM_TABLES) && !STREAM_BY_COLUMNS(STREAM_BITS)
/* The values of `size` bytes; those of the same byte are `run` apart. */
EK_INLINE void unpack_bytes(const int size, const uint8_t *w, weight *to, long run) {
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
#endif

#if STREAM_BITS & STREAM_TABLES
/* A group, from the byte of its first column on; four steps of EK_VL columns have 16 values each.
 */
EK_INLINE void unpack_group(const int vectors, const uint8_t *w, long first, long width,
                            weight *to) {
    const bytes shift = {0, 2, 4, 6, 0, 2, 4, 6, 0, 2, 4, 6, 0, 2, 4, 6};
    _Static_assert(I8_GROUP == 16 && EK_VL == 4, "only kernels without dot products look up");
    w += first / I8_GROUP;
    for (long step = 0; step < GROUPS / 4; step += 4, w += 4 * width)
        for (int j = 0; j < vectors; j++) {
            bytes all;
            EK_UNROLL
            for (int i = 0; i < 4; i++)
                memcpy((char *)&all + 4 * i, w + i * width + j * EK_VL, 4);
            if (j == 0)
                __builtin_prefetch(w + AHEAD);
            EK_UNROLL
            for (int i = 0; i < EK_VL; i++, to += I8_GROUP) {
                const bytes at =
                    (bytes){0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12} + (uint8_t)i;
                const bytes four = (bytes)vqtbl1q_u8((uint8x16_t)all, (uint8x16_t)at);
                const values found = (values)(four >> shift & 3) - 2;
                memcpy(to, &found, sizeof found);
            }
        }
}
#elif STREAM_BY_COLUMNS(STREAM_BITS)
/* A group of `vectors` vectors of columns from the one at byte `first` of unpacked steps on. */
EK_INLINE void unpack_group(const int vectors, const uint8_t *w, long first, long width,
                            weight *to) {
    const int vector = (int)(first / STEP);
    (void)width;
    for (long step = 0; step < GROUPS / I8_GROUP; step++, w += STEP) {
        __builtin_prefetch(w + AHEAD);
        EK_UNROLL
        for (int j = 0; j < vectors; j++) {
            EK_UNROLL
            for (int at = 0; at < STEP; at += CHUNK, to += CHUNK) {
                bytes all;
                memcpy(&all, w + at, CHUNK);
                const values top = (values)((all ^ 0x2a) << (6 - 2 * (vector + j))),
                             found = top >> 6;
                memcpy(to, &found, CHUNK);
            }
        }
    }
}
#else
/* A group of `vectors` vectors of columns, `first` bytes behind the first one of `width` columns'
 * steps. */
EK_INLINE void unpack_group(const int vectors, const uint8_t *w, long first, long width,
                            weight *to) {
    const int size = vectors * STEP, chunk = ek_min(CHUNK, size);
    const long steps = stream_steps(GROUPS, STREAM_BITS);
    const long pitch = stream_step(width, STREAM_BITS);
    for (long step = 0; step < steps; step++, w += pitch, to += size) {
        EK_UNROLL
        for (int at = 0; at < size; at += chunk) {
            const uint8_t *from = w + stream_byte(width, first + at, STREAM_BITS);
            if (at == 0)
                __builtin_prefetch(from + AHEAD);
#if STREAM_BITS == 3
            int low;
            const uint8_t *third = stream_third_at(w, width, first + at, &low);
            unpack_thirds(from, third, low, to + at, steps * size);
#else
            if (STREAM_BITS == 8)
                memcpy(to + at, from, (size_t)chunk);
            else
                unpack_bytes(chunk, from, to + at, steps * size);
#endif
        }
    }
}
#endif

static void unpack_panel(const ek_i8_conv_args *a, long panel, weight *to) {
    const long at = panel * NV, stored = at / STREAM * STREAM, in = at - stored;
    const long all = stream_vectors(a->win.oc, STREAM_BITS),
               width = ek_min(STREAM, all - stored) * EK_VL;
    const long values = stream_values(width, GROUPS, STREAM_BITS);
    const long block = stream_block(width, GROUPS, STREAM_BITS, SCALES);
    const long vectors = ek_min(NV, (a->win.oc + EK_VL - 1) / EK_VL - at);
    const uint8_t *w = (const uint8_t *)a->weights + a->first * block +
                       a->streamed * stream_full(stored * EK_VL, GROUPS, STREAM_BITS, SCALES);
    float *scale = (float *)(void *)(to + UNPACKED_SCALES);
    for (long g = 0; g < a->groups; g++, w += block) {
        if (vectors == NV)
            unpack_group(NV, w, in * STEP, width, to);
        else
            unpack_group(1, w, in * STEP, width, to);
        to += vectors * EK_VL * GROUPS;
        for (long j = 0; j < vectors; j++, scale += EK_VL) {
            const uint8_t *from = w + values + (in + j) * EK_VL * stream_scale_bytes(SCALES);
            vf_store(scale, stream_scales(SCALES, from) * stream_unit(SCALES));
        }
    }
}
#endif
