/* The weights of a channel of a depthwise convolution, channels first. */
#ifndef EK_DWCONV_CHW_TAPS_H
#define EK_DWCONV_CHW_TAPS_H
#include "dwconv_chw.h"

#ifdef NARROW
#include "../gemm/narrow.h"

/* A channel's weights, widened into `held`, which holds a vector more. */
EK_INLINE const float *taps_of(const ek_dwconv_chw_args *a, long channel, long taps, float *held) {
    const narrow *from = (const narrow *)a->weights + channel * taps;
    for (long t = 0; t < taps; t += EK_VL)
        vf_store(held + t, narrow_load(from + t));
    return held;
}
#else
EK_INLINE const float *taps_of(const ek_dwconv_chw_args *a, long channel, long taps, float *held) {
    (void)held;
    return (const float *)a->weights + channel * taps;
}
#endif
#endif
