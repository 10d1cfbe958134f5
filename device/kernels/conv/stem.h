/* The first operators of a network for images, some rows at a time: a channel-major image that is
 * put channels last, a convolution, a maximum pool; the first or the last perhaps missing. */
#ifndef EK_STEM_H
#define EK_STEM_H
#include "../pool/pool.h"
#include "f32_conv.h"

/* As each would be alone, but for the addresses of the images between them. One image. */
typedef struct {
    const void *x; /* where it is channel-major: f32 */
    ek_f32_conv_args conv;
    ek_pool2d_args pool; /* if there is one */
    int rows;            /* of the result that are made at once */
    int held;            /* elements before rows of the image in the buffer */
} ek_stem_args;
#endif
