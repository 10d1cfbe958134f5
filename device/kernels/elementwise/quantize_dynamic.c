/* f32 -> s8, symmetric, with the scale of each image taken from its largest magnitude.
 *
 * Compile-time parameters: NAME, EK_SIMD. One task for the whole tensor: an image of a small
 * board is quantized faster than a second thread wakes up. */
#include <math.h>
#include "round.h"
#include "unary.h"

void NAME(const void *args, long begin, long end) {
    const ek_unary_args *g = args;
    const float *restrict x = (const float *)g->x;
    int8_t *restrict y = (int8_t *)g->y;
    (void)begin;
    (void)end;
    float largest = 0.0f;
    for (long i = 0; i < g->n; i++) {
        float v = fabsf(x[i]);
        largest = v > largest ? v : largest;
    }
    if (largest == 0.0f) {
        memset(y, 0, g->n);
        *g->x_scale = 1.0f;
        return;
    }
    *g->x_scale = largest / 127.0f;
    const float inverse = 127.0f / largest;
    for (long i = 0; i < g->n; i++) {
        float v = ek_round(x[i] * inverse);
        v = v > -127.0f ? v : -127.0f;
        y[i] = (int8_t)(int32_t)(v < 127.0f ? v : 127.0f);
    }
}
