/* A depthwise convolution fused with its pointwise neighbors, a few rows at a time, so that the
 * intermediate images are never materialized. */
#ifndef EK_CHAIN_H
#define EK_CHAIN_H
#include "dwconv.h"
#include "f32_conv.h"
#include "i8_conv.h"

/* Each member's arguments are those of the unfused operator, except for the addresses of the
 * intermediate images. Batch size 1. */
typedef struct {
    ek_f32_conv_args first; /* if present */
    ek_dwconv_args depthwise;
    ek_f32_conv_args last; /* if present */
    int rows;              /* depthwise output rows per pass */
    int columns;           /* its columns per pass, with COLUMNS */
    int held;              /* offset in the buffer, in elements, of the first member's output
                              rows */
} ek_f32_chain_args;

typedef struct {
    ek_i8_conv_args first;
    ek_dwconv_args depthwise;
    ek_i8_conv_args last;
    int rows, columns, held;
} ek_i8_chain_args;
#endif
