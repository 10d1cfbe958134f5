/* The range of values that codes are made for. Before inclusion: kernel.h. */
#ifndef EK_ELEMENTWISE_RANGE_H
#define EK_ELEMENTWISE_RANGE_H

/* The least and the largest of n values and 0. */
static void range_of(const float *x, long n, float *low, float *high) {
    vf least = vf_splat(0.0f), most = vf_splat(0.0f);
    float lows[EK_VL], highs[EK_VL];
    long i = 0;
    for (; i + EK_VL <= n; i += EK_VL) {
        const vf v = vf_load(x + i);
        least = vf_min(least, v);
        most = vf_max(most, v);
    }
    vf_store(lows, least);
    vf_store(highs, most);
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
