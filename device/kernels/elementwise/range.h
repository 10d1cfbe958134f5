/* The value range that quantization covers. Before inclusion: kernel.h. */
#ifndef EK_ELEMENTWISE_RANGE_H
#define EK_ELEMENTWISE_RANGE_H

#define EK_RANGE_VECTORS 4 /* vectors per iteration, as independent accumulators */

/* The minimum and maximum of n values and 0. */
static void range_of(const float *x, long n, float *low, float *high) {
    vf least[EK_RANGE_VECTORS], most[EK_RANGE_VECTORS];
    float lows[EK_VL], highs[EK_VL];
    long i = 0;
    for (int s = 0; s < EK_RANGE_VECTORS; s++)
        least[s] = most[s] = vf_splat(0.0f);
    for (; i + EK_RANGE_VECTORS * EK_VL <= n; i += EK_RANGE_VECTORS * EK_VL)
        for (int s = 0; s < EK_RANGE_VECTORS; s++) {
            const vf v = vf_load(x + i + s * EK_VL);
            least[s] = vf_min(least[s], v);
            most[s] = vf_max(most[s], v);
        }
    for (; i + EK_VL <= n; i += EK_VL) {
        const vf v = vf_load(x + i);
        least[0] = vf_min(least[0], v);
        most[0] = vf_max(most[0], v);
    }
    for (int s = 1; s < EK_RANGE_VECTORS; s++) {
        least[0] = vf_min(least[0], least[s]);
        most[0] = vf_max(most[0], most[s]);
    }
    vf_store(lows, least[0]);
    vf_store(highs, most[0]);
    *low = *high = 0.0f;
    for (int l = 0; l < EK_VL; l++) {
        *low = lows[l] < *low ? lows[l] : *low;
        *high = highs[l] > *high ? highs[l] : *high;
    }
    for (; i < n; i++) {
        *low = x[i] < *low ? x[i] : *low;
        *high = x[i] > *high ? x[i] : *high;
    }
}

#endif
