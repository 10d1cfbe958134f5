/* Activations of recurrent layers; a and b are their parameters. */
#ifndef EK_RECURRENT_FUNCTIONS_H
#define EK_RECURRENT_FUNCTIONS_H
#include "../elementwise/functions.h"

EK_INLINE float apply_logistic(float x, float a, float b) {
    (void)a, (void)b;
    return ek_logistic(x);
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
