/* What becomes of the sums of an f32 convolution before they are stored: with HARD_SWISH,
 * x relu6(x + 3) / 6, else themselves. */
#ifndef EK_CONV_GATE_H
#define EK_CONV_GATE_H
#include "../kernel.h"

EK_INLINE vf gated(vf x) {
#ifdef HARD_SWISH
    const vf gate = vf_min(vf_max(x + 3.0f, vf_splat(0.0f)), vf_splat(6.0f));
    return x * (gate * (1.0f / 6.0f));
#else
    return x;
#endif
}
#endif
