/* A depthwise convolution with the pointwise ones before and after it, a few rows at a time: the
 * images between them are never whole. */
#ifndef EK_CHAIN_H
#define EK_CHAIN_H
#include "dwconv.h"
#include "f32_conv.h"
#include "i8_conv.h"

/* As each member would be alone, but for the addresses of the images between them. One image. */
typedef struct {
    ek_f32_conv_args first; /* if there is one */
    ek_dwconv_args depthwise;
    ek_f32_conv_args last; /* if there is one */
    int rows;              /* of the depthwise one's result that are made at once: whole tiles */
    int held;              /* elements before rows of the first one's result in the buffer */
} ek_f32_chain_args;

typedef struct {
    ek_i8_conv_args first;
    ek_dwconv_args depthwise;
    ek_i8_conv_args last;
    int rows, held;
} ek_i8_chain_args;
#endif
