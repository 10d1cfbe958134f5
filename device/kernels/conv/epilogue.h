/* The activation fused into a float convolution, applied after the sums and before the clamp: one
 * OP_* of elementwise/functions.h with EPILOGUE 1, or EPILOGUE 2 with an operand per channel.
 * Without EPILOGUE there is none. With ADDS_LAST the residual is added to its results, otherwise to
 * the sums.
 *
 * Functions of a few instructions (IN_REGISTERS) are applied to sums before they are stored, all
 * others to a tile's rows afterwards, while these are in L1. */
#ifndef EK_CONV_EPILOGUE_H
#define EK_CONV_EPILOGUE_H
#include "../kernel.h"
#include "../elementwise/activations.h"

/* f16 sums start at 0: added to a large bias first, their products would lose digits to
 * rounding. */
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

#ifndef ADDS_LAST
#define ADDS_LAST 0
#endif
#define ADDS_TO_ROWS (ADDS_LAST && !IN_REGISTERS)

/* Whether a function follows that is applied to stored sums. Cores in order gather those of a tile
 * first: a function then takes several vectors side by side, and y is written once. */
#if defined EPILOGUE && !IN_REGISTERS && defined EK_IN_ORDER && EK_IN_ORDER && defined __aarch64__
#define GATHERS 1
#else
#define GATHERS 0
#endif

/* Adds rows `apart` elements apart to rows of n values at y, which are `pitch` apart. */
EK_INLINE void add_rows(ek_real *y, long pitch, const ek_real *residual, long apart, long rows,
                        long n) {
    for (; rows > 0; rows--, y += pitch, residual += apart) {
        long i = 0;
        for (; i + EK_VL <= n; i += EK_VL)
            vf_store(y + i, vf_load(y + i) + vf_load(residual + i));
        if (i < n)
            vf_store_n(y + i, vf_load_n(y + i, n - i) + vf_load_n(residual + i, n - i), n - i);
    }
}

/* Fetches the first line of each: they are far from each other and, when added, from other reads.
 */
EK_INLINE void fetch_rows(const ek_real *residual, long apart, long rows) {
    for (; rows > 0; rows--, residual += apart)
        __builtin_prefetch(residual);
}

/* Applies it to sums of channels `channel` and up. */
EK_INLINE vf epilogue(const ek_epilogue *e, vf x, long channel) {
    (void)e, (void)channel;
#if defined OP_HARD_SWISH
    const vf gate = vf_min(vf_max(x + (ek_real)3.0f, vf_splat(0)), vf_splat((ek_real)6.0f));
#ifdef EK_HALF
    return x * vf_fma(gate, vf_splat((ek_real)EK_SIXTH), gate * (ek_real)EK_SIXTH_REST);
#else
    return x * (gate * (1.0f / 6.0f));
#endif
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
#include "../elementwise/piecewise.h"
#include "../elementwise/silu_vectors.h"

/* Vectors in flight: four chains of f32 operations where vectors are short, two where they are long
 * or computed as two of f32. */
#if EK_VL == 1 || (defined __aarch64__ && !defined EK_HALF)
#define EPILOGUE_VECTORS 4
#elif defined __riscv || defined __aarch64__
#define EPILOGUE_VECTORS 2
#else
#define EPILOGUE_VECTORS 1
#endif

#if EPILOGUE == 2
#define EPILOGUE_OF(v, i) f(v, ((const ek_real *)e->operand)[channel + (i)], e->p, e->q)
#else
#define EPILOGUE_OF(v, i) f(v, e->p, e->q)
#endif

/* Applies it in place to a vector of channels `channel` and up. */
EK_INLINE void epilogue_vector(const ek_epilogue *e, ek_real *restrict y, long channel) {
    (void)channel;
#pragma clang loop vectorize_width(EK_VL) interleave_count(1) unroll(disable)
    for (int i = 0; i < EK_VL; i++)
        y[i] = EPILOGUE_OF(y[i], i);
}

/* Applies it to 2 or 4 vectors side by side: one alone would wait for each of its results. */
EK_INLINE void epilogue_pair(const ek_epilogue *e, ek_real *restrict y, long channel) {
    (void)channel;
#pragma clang loop vectorize_width(EK_VL) interleave_count(2) unroll(disable)
    for (int i = 0; i < 2 * EK_VL; i++)
        y[i] = EPILOGUE_OF(y[i], i);
}
EK_INLINE void epilogue_four(const ek_epilogue *e, ek_real *restrict y, long channel) {
    (void)channel;
#if EK_VL == 1
#pragma clang loop unroll_count(4)
#else
#pragma clang loop vectorize_width(EK_VL) interleave_count(4) unroll(disable)
#endif
    for (int i = 0; i < 4 * EK_VL; i++)
        y[i] = EPILOGUE_OF(y[i], i);
}

/* Narrow rows on cores out of order: 4 vectors come from 4 / `vectors` rows. */
#if EPILOGUE == 1 && !EK_IN_ORDER
#define EPILOGUE_GATHERS (EPILOGUE_VECTORS == 4)
#else
#define EPILOGUE_GATHERS 0
#endif
EK_INLINE void epilogue_gathered(const int vectors, const ek_epilogue *e, ek_real *y, long pitch) {
    const int n = vectors * EK_VL;
    ek_real four[4 * EK_VL];
    EK_UNROLL
    for (int r = 0; r < 4 / vectors; r++)
        memcpy(four + r * n, y + r * pitch, (size_t)n * sizeof *y);
    epilogue_four(e, four, 0);
    EK_UNROLL
    for (int r = 0; r < 4 / vectors; r++)
        memcpy(y + r * pitch, four + r * n, (size_t)n * sizeof *y);
}

/* Applies it to `rows` rows of n values, `pitch` apart, that start at the same channel. */
static void __attribute__((noinline)) epilogue_rows(const ek_epilogue *args, ek_real *y, long pitch,
                                                    long rows, long channel, long n) {
    const ek_epilogue e = *args;     /* a copy, because stores to y might alias it */
    if (EPILOGUE == 1 && n == pitch) /* all channels: if there are few, one vector covers several
                                        pixels */
        n *= rows, rows = 1;
#ifdef EK_BY_VECTORS
    if (EK_VECTORS_FIT(e.p)) {
        for (; rows > 0; rows--, y += pitch)
            ek_vectors_run(y, y, n);
        return;
    }
#endif
    /* Columns first: the constants of a loop over few columns would be loaded for every row. */
    long i = 0;
    for (; EPILOGUE_VECTORS == 4 && i + 4 * EK_VL <= n; i += 4 * EK_VL)
        for (long r = 0; r < rows; r++)
            epilogue_four(&e, y + r * pitch + i, channel + i);
    for (; EPILOGUE_VECTORS > 1 && i + 2 * EK_VL <= n; i += 2 * EK_VL) {
        long r = 0;
        for (; EPILOGUE_GATHERS && r + 2 <= rows; r += 2)
            epilogue_gathered(2, &e, y + r * pitch + i, pitch);
        for (; r < rows; r++)
            epilogue_pair(&e, y + r * pitch + i, channel + i);
    }
    for (; i + EK_VL <= n; i += EK_VL) {
        long r = 0;
        for (; EPILOGUE_GATHERS && r + 4 <= rows; r += 4)
            epilogue_gathered(1, &e, y + r * pitch + i, pitch);
        for (; r < rows; r++)
            epilogue_vector(&e, y + r * pitch + i, channel + i);
    }
    for (long r = 0; i < n && r < rows; r++) {
        ek_real *at = y + r * pitch + i, last[EK_VL] = {0};
        ek_copy_short(last, at, (n - i) * (long)sizeof *y);
        epilogue_vector(&e, last, channel + i);
        ek_copy_short(at, last, (n - i) * (long)sizeof *y);
    }
}
#else
EK_INLINE void epilogue_rows(const ek_epilogue *e, ek_real *y, long pitch, long rows, long channel,
                             long n) {
    (void)e, (void)y, (void)pitch, (void)rows, (void)channel, (void)n;
}
#endif
#endif
