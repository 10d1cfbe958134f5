/* Element-wise functions of one operand.
 *
 * Compile-time parameters: NAME, EK_SIMD and one OP_*: CLAMP (floats), TABLE (quantized TX -> TY,
 * one table entry per value), BYTE_TABLE (the same for bytes), DEQUANTIZE (TQ -> f32). */
#include <math.h>
#include "unary.h"

#if defined OP_BYTE_TABLE
#include "look_up.h"
#elif defined OP_CLAMP
#define TX ek_real
#define TY ek_real
EK_INLINE ek_real apply(const ek_unary_args *g, ek_real x) {
    const ek_real low = (ek_real)g->low, high = (ek_real)g->high;
    x = EK_AT_LEAST(x, low);
    return EK_AT_MOST(x, high);
}
#elif defined OP_TABLE
EK_INLINE TY apply(const ek_unary_args *g, TX x) {
    return ((const TY *)g->table)[x];
}
#elif defined OP_DEQUANTIZE
#define TX TQ
#define TY float
EK_INLINE float apply(const ek_unary_args *g, TQ x) {
    return g->scale * (float)(x - g->zero);
}
#endif

/* Task: one chunk of EK_UNARY_CHUNK elements. */
void NAME(const void *task, long begin, long end) {
    const ek_unary_args *args = task;
#ifdef OP_BYTE_TABLE
    const long from = begin * EK_UNARY_CHUNK;
    ek_look_up((const uint8_t *)args->table, (const uint8_t *)args->x + from,
               (uint8_t *)args->y + from, ek_min(end * EK_UNARY_CHUNK, args->n) - from);
#else
    const ek_unary_args g = *args; /* a copy, because stores to y might alias it */
    const TX *restrict x = (const TX *)g.x;
    TY *restrict y = (TY *)g.y;
    EK_VECTOR_LOOP
    for (long i = begin * EK_UNARY_CHUNK; i < ek_min(end * EK_UNARY_CHUNK, g.n); i++)
        y[i] = apply(&g, x[i]);
#endif
}
