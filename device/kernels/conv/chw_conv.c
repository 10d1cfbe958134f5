/* f32 convolution (f16 with EK_HALF) of an image of few channels, whose rows are stored channel by
 * channel, each with its padding, in lines of win.w elements. x is the first line of the first
 * window. A task is a row of y.
 *
 * Compile-time parameters: NAME, MR (pixels), NV (vectors of output channels), TAPS (columns of a
 * window), STEP (columns between windows), EK_SIMD, and those of epilogue.h. Adjacent pixels share
 * a line: a few vectors hold what MR pixels read of it, and products take their lanes. Lines have
 * elements for all vectors of the last tile. */
#include "f32_finish.h"

#define SPAN ((MR - 1) * STEP + TAPS)
#define VECTORS ((SPAN + EK_VL - 1) / EK_VL)

/* Cores in order load a step's operands before the products of the last one, if registers hold
 * both. */
#define WEIGHTS_AHEAD EK_IN_ORDER
#define LINES_AHEAD (EK_IN_ORDER && MR * NV + 2 * VECTORS + 2 * NV <= 32)

/* The products of a line by lane; the weights of the next line follow at w, or are at `after`. */
EK_INLINE const ek_real *line(const int nv, const vf x[VECTORS], vf b[NV], const ek_real *w,
                              const ek_real *after, vf acc[MR][NV]) {
    EK_UNROLL
    for (int t = 0; t < TAPS; t++) {
        vf next[NV];
        w = t == TAPS - 1 ? after : w + nv * EK_VL;
        EK_UNROLL
        for (int j = 0; j < nv && WEIGHTS_AHEAD; j++)
            next[j] = vf_load(w + j * EK_VL);
        if (WEIGHTS_AHEAD)
            EK_IN_ORDER_HERE; /* otherwise the compiler loads them after the products */
        EK_UNROLL
        for (int j = 0; j < nv; j++) {
            EK_UNROLL
            for (int i = 0; i < MR; i++) {
                const int at = i * STEP + t;
                acc[i][j] = vf_fma(vf_splat(vlane(x[at / EK_VL], at % EK_VL)), b[j], acc[i][j]);
            }
        }
        EK_UNROLL
        for (int j = 0; j < nv; j++)
            b[j] = WEIGHTS_AHEAD ? next[j] : vf_load(w + j * EK_VL);
    }
    return w;
}

EK_INLINE void load_line(vf x[VECTORS], const ek_real *from) {
    EK_UNROLL
    for (int i = 0; i < VECTORS; i++)
        x[i] = vf_load(from + i * EK_VL);
}

/* `count` pixels whose first window starts at x. */
EK_INLINE void tile(const int nv, const ek_f32_conv_args *a, const ek_real *x, ek_real *y,
                    int count, long channel) {
    const ek_window *g = &a->win;
    const long lines = (long)g->kh * g->c;
    const ek_real *w = (const ek_real *)a->weights + channel * lines * TAPS;
    vf acc[MR][NV], b[NV], now[VECTORS];
    EK_UNROLL
    for (int j = 0; j < nv; j++) {
        const vf bias =
            BIAS_LAST ? vf_splat(0) : vf_load((const ek_real *)a->bias + channel + j * EK_VL);
        b[j] = vf_load(w + j * EK_VL);
        EK_UNROLL
        for (int i = 0; i < MR; i++)
            acc[i][j] = bias;
    }
    load_line(now, x);
    _Pragma("clang loop unroll(disable)") for (long n = lines; n > 0; n--) {
        /* The last line loads its own operands again. */
        const long more = n > 1;
        vf next[VECTORS];
        x += more ? g->w : 0;
        if (LINES_AHEAD)
            load_line(next, x);
        w = line(nv, now, b, w, more ? w + TAPS * nv * EK_VL : w, acc);
        if (!LINES_AHEAD)
            load_line(next, x);
        memcpy(now, next, sizeof now);
    }
    if (count == MR) {
        finish(MR, nv, a, acc, y + channel, a->pitch, NULL, channel);
        return;
    }
    ek_real kept[MR * NV * EK_VL];
    ek_f32_conv_args own = *a;
    own.pitch = NV * EK_VL;
    finish(MR, nv, &own, acc, kept, own.pitch, NULL, channel);
    for (int i = 0; i < count; i++)
        memcpy(y + i * a->pitch + channel, kept + i * NV * EK_VL,
               sizeof *y * (size_t)ek_min(nv * EK_VL, g->oc - channel));
}

void NAME(const void *args, long begin, long end) {
    const ek_f32_conv_args *a = args;
    const ek_window *g = &a->win;
    for (long oy = begin; oy < end; oy++) {
        const ek_real *row = (const ek_real *)a->x + oy * g->sh * g->c * g->w;
        for (long ox = 0; ox < g->ow; ox += MR) {
            const int count = (int)ek_min(MR, g->ow - ox);
            ek_real *y = (ek_real *)a->y + (oy * g->ow + ox) * a->pitch;
            long channel = 0;
            for (; channel + (NV - 1) * EK_VL < g->oc; channel += NV * EK_VL)
                tile(NV, a, row + ox * STEP, y, count, channel);
            if (channel < g->oc)
                tile(1, a, row + ox * STEP, y, count, channel);
        }
    }
}
