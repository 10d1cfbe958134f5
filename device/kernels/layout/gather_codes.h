/* y[i, :] = codes[indices[i], :] times the scales of that row: floats of codes of few bits. */
#ifndef EK_GATHER_CODES_H
#define EK_GATHER_CODES_H
#include "../kernel.h"

typedef struct {
    long size;  /* rows */
    long run;   /* codes of a row */
    long group; /* neighbors that share a scale; it divides run */
    /* [size][run]; with FOUR two per byte, as gemm/i4_unpack.h has them: code i of a row, plus 8,
     * in the low half of its byte i, code i + run / 2 in the high half */
    const void *codes;
    /* With PACKED: the weights of a product of bytes (outlier/layer.h), whose outputs are rows. */
    long depth, columns, padded;
    /* [size][run / group]: floats; with SCALE_BITS 16 their upper halves (bfloat16); with 8 their
     * signs, the low 4 bits of their exponents less that of `least`, and 3 bits of fraction */
    const void *scale;
    uint32_t least; /* the bits of a power of two */
    const void *indices;
    float *y;
} ek_gather_codes_args;
#endif
