/* The function that is part of a convolution of floats, after its sums and before its clamp: one
 * OP_* of elementwise/functions.h with EPILOGUE 1, or EPILOGUE 2 with an operand for each channel.
 * Without EPILOGUE there is none.
 *
 * What takes a few instructions (IN_REGISTERS) is done to sums before they are stored, all else to
 * the rows of a tile behind that, while they are in the core's L1 cache. */
#ifndef EK_CONV_EPILOGUE_H
#define EK_CONV_EPILOGUE_H
#include "../kernel.h"

/* Sums of f16 begin with 0: rounded beside a large bias, their products would lose digits. */
#ifdef EK_HALF
#define BIAS_LAST 1
#else
#define BIAS_LAST 0
#endif

#if defined OP_HARD_SWISH || defined OP_LEAKY_RELU || defined OP_PRELU
#define IN_REGISTERS 1
#else
#define IN_REGISTERS 0
#endif

/* Sums of the channels from `channel` on. */
EK_INLINE vf epilogue(const ek_epilogue *e, vf x, long channel) {
    (void)e, (void)channel;
#if defined OP_HARD_SWISH
    const vf gate = vf_min(vf_max(x + (ek_real)3.0f, vf_splat(0)), vf_splat((ek_real)6.0f));
    return x * (gate * (ek_real)(1.0f / 6.0f));
#elif defined OP_LEAKY_RELU
    return vf_where(EK_MASK(x < (ek_real)0.0f), x * (ek_real)e->p, x);
#elif defined OP_PRELU
    const vf slope = vf_load((const ek_real *)e->operand + channel);
    return vf_where(EK_MASK(x < (ek_real)0.0f), x * slope, x);
#else
    return x;
#endif
}

#if defined EPILOGUE && !IN_REGISTERS
#define TA ek_real
#define TY ek_real
#include "../elementwise/functions.h"

/* A vector of the channels from `channel` on. */
EK_INLINE void epilogue_vector(const ek_epilogue *e, ek_real *restrict y, long channel) {
    (void)channel;
#pragma clang loop vectorize_width(EK_VL) interleave_count(1) unroll(disable)
    for (int i = 0; i < EK_VL; i++)
#if EPILOGUE == 2
        y[i] = f(y[i], ((const ek_real *)e->operand)[channel + i], e->p, e->q);
#else
        y[i] = f(y[i], e->p, e->q);
#endif
}

/* `rows` of n values, `pitch` apart, that begin with the same channel. */
static void __attribute__((noinline)) epilogue_rows(const ek_epilogue *args, ek_real *y, long pitch,
                                                    long rows, long channel, long n) {
    const ek_epilogue e = *args;     /* a copy, so that stores to y cannot change it */
    if (EPILOGUE == 1 && n == pitch) /* all channels: of few, several pixels fill a vector */
        n *= rows, rows = 1;
    for (; rows > 0; rows--, y += pitch) {
        long i = 0;
        for (; i + EK_VL <= n; i += EK_VL)
            epilogue_vector(&e, y + i, channel + i);
        if (i < n) {
            ek_real last[EK_VL] = {0};
            ek_copy_short(last, y + i, (n - i) * (long)sizeof *y);
            epilogue_vector(&e, last, channel + i);
            ek_copy_short(y + i, last, (n - i) * (long)sizeof *y);
        }
    }
}
#else
EK_INLINE void epilogue_rows(const ek_epilogue *e, ek_real *y, long pitch, long rows, long channel,
                             long n) {
    (void)e, (void)y, (void)pitch, (void)rows, (void)channel, (void)n;
}
#endif
#endif
