/* 8-bit quantized SVDF (filters over time). Compile-time parameter: NAME. */
#include "quantized_svdf.h"
#include "fixed16.h"

EK_DOT(dot, int8_t)
EK_DOT(dot_of_times, int16_t)

/* Task: batch entry x unit. */
void NAME(const void *args, long begin, long end) {
    const ek_quantized_svdf_args *g = args;
    const long m = g->frames;
    for (long t = begin; t < end; t++) {
        const long unit = t % g->units;
        const int8_t *x = g->x + t / g->units * g->size;
        int32_t sum = g->bias[unit];
        for (long r = 0; r < g->rank; r++) {
            const long filter = unit * g->rank + r, at = (t * g->rank + r) * m;
            int16_t *state = g->state + at;
            memcpy(state, g->before + at + 1, sizeof(int16_t) * (size_t)(m - 1));
            const int32_t new = dot(x, g->weights + filter * g->size, g->size, g->offset[filter]);
            state[m - 1] = (int16_t)ek_short(ek_rescaled(new, g->of_input));
            sum = dot_of_times(state, g->times + filter * m, m, sum);
        }
        const int32_t y = ek_short(ek_rescaled(sum, g->to_output)) + g->zero;
        g->y[t] = (int8_t)ek_bounded(y, INT8_MIN, INT8_MAX);
    }
}
