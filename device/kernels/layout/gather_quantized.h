/* y[i, :] = table[indices[i], :] times that row's scales: dequantizes values of few bits. */
#ifndef EK_GATHER_QUANTIZED_H
#define EK_GATHER_QUANTIZED_H
#include "../kernel.h"

typedef struct {
    long size;  /* rows */
    long run;   /* values per row */
    long group; /* adjacent values that share a scale; divides run */
    /* [size][run]; with INT4 two per byte, as in gemm/i4_unpack.h: value i of a row, plus 8, in the
     * low half of its byte i, value i + run / 2 in the high half; with FROM_F16, f16 */
    const void *table;
    /* With PACKED: the weights of an 8-bit product (outlier/layer.h), whose outputs are rows. With
     * STREAM: those of outlier/grouped_row.h, which have the scales. */
    long depth, columns, padded;
    /* [size][run / group]: floats; with SCALE_BITS 16 their upper halves (bfloat16); with 8 the
     * sign, the low 4 bits of the exponent relative to `least`, and 3 bits of fraction */
    const void *scale;
    uint32_t least; /* bits of a power of two */
    const void *indices;
    float *y;
} ek_gather_quantized_args;
#endif
