/* Activations of recurrent layers; a and b are their parameters. */
#ifndef EK_RECURRENT_FUNCTIONS_H
#define EK_RECURRENT_FUNCTIONS_H
#include "../elementwise/functions.h"

EK_INLINE float apply_logistic(float x, float a, float b) {
    (void)a, (void)b;
#ifdef EK_HALF
    /* One step of Newton more than ek_logistic: a gate that is 1e-4 below 1 loses a tenth of a
     * state in 1000 steps. */
    const ek_argument edge = (ek_argument)EK_EDGE;
    const float d = 1.0f + ek_exp_scaled(ek_bounded(x, -edge, edge), -1.0f), y = ek_reciprocal(d);
    return y + y * (1.0f - d * y);
#else
    return ek_logistic(x);
#endif
}
EK_INLINE float apply_tanh(float x, float a, float b) {
    (void)a, (void)b;
    return ek_tanh(x);
}
EK_INLINE float apply_clamp(float x, float low, float high) {
    return x < low ? low : x > high ? high : x;
}
EK_INLINE float apply_hard_sigmoid(float x, float alpha, float beta) {
    return apply_clamp(alpha * x + beta, 0.0f, 1.0f);
}
#endif
