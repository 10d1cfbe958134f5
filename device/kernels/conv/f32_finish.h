/* What follows the sums of a float convolution's tile: bias, residual, function, clamp, stores.
 *
 * Before inclusion: MR, NV (the largest tile) and epilogue.h. */
#ifndef EK_CONV_F32_FINISH_H
#define EK_CONV_F32_FINISH_H
#ifndef EK_IN_ORDER
#define EK_IN_ORDER 0
#endif
#include <math.h>
#include "epilogue.h"
#include "f32_conv.h"

/* Whether all sums of a tile are finished before the first is stored. A load may not be moved above
 * a store, so 64-bit ARM cores in order would wait for each step of one vector before the next
 * vector begins, and f16 would load its bias for each row. Tiles that need all 32 registers would
 * spill sums. */
#if defined __aarch64__ && (EK_IN_ORDER || BIAS_LAST)
#define STORES_LAST(mr, nv) ((mr) * (nv) + (mr) + 2 * (nv) <= 32)
#else
#define STORES_LAST(mr, nv) 0
#endif

EK_INLINE void store_sum(const int whole, ek_real *y, vf v, long left) {
    if (whole)
        vf_store(y, v);
    else
        vf_store_n(y, v, left);
}

EK_INLINE vf load_addend(const int whole, const ek_real *residual, long left) {
    return whole ? vf_load(residual) : vf_load_n(residual, left);
}

EK_INLINE void finish_sums(const int mr, const int nv, const int full, const int adds,
                           const int clamps, const ek_f32_conv_args *a, vf acc[MR][NV], ek_real *y,
                           long pitch, const ek_real *residual, long channel, long left) {
    const vf low = vf_bound(a->low), high = vf_bound(a->high);
    const int last = STORES_LAST(mr, nv);
    EK_UNROLL
    for (int i = 0; i < mr; i++) {
        EK_UNROLL
        for (int j = 0; j < nv; j++) {
            const int whole = full || j < nv - 1, stored = GATHERS || whole;
            vf v = acc[i][j];
            if (BIAS_LAST)
                v += vf_load((const ek_real *)a->bias + channel + j * EK_VL);
            if (ADDS_LAST)
                v = epilogue(&a->epilogue, v, channel + j * EK_VL);
            if (adds)
                v += load_addend(whole, residual + j * EK_VL, left);
            if (!ADDS_LAST)
                v = epilogue(&a->epilogue, v, channel + j * EK_VL);
            if (clamps)
                v = vf_clamp(v, low, high);
            if (last)
                acc[i][j] = v;
            else
                store_sum(stored, y + j * EK_VL, v, left);
        }
        if (adds)
            residual += a->residual_pitch;
        if (!last)
            y += GATHERS ? pitch : a->pitch; /* an X60 takes longer if a register holds it */
    }
    EK_UNROLL
    for (int i = 0; i < mr && last; i++) {
        EK_UNROLL
        for (int j = 0; j < nv; j++)
            store_sum(GATHERS || full || j < nv - 1, y + i * pitch + j * EK_VL, acc[i][j], left);
    }
}

/* Finishes mr x nv vectors at y, whose rows are `pitch` elements apart, as in `a`; `residual` is
 * NULL or what is added to them. The last vector is cut to the channels that exist. */
EK_INLINE void finish(const int mr, const int nv, const ek_f32_conv_args *a, vf acc[MR][NV],
                      ek_real *y, long pitch, const ek_real *residual, long channel) {
    const long left = a->win.oc - channel - (nv - 1) * EK_VL;
    const int full = EK_VL == 1 || left >= EK_VL, adds = !ADDS_TO_ROWS && residual != NULL;
    const int clamps = a->low > -INFINITY || a->high < INFINITY;
    ek_real gathered[MR * NV * EK_VL] __attribute__((aligned(64)));
    ek_real *to = GATHERS ? gathered : y;
    const long step = GATHERS ? nv * EK_VL : pitch;
#define FINISH(full, adds, clamps)                                                                 \
    finish_sums(mr, nv, full, adds, clamps, a, acc, to, step, residual, channel, left)
    if (full && clamps && !adds)
        FINISH(1, 0, 1);
    else if (full && clamps)
        FINISH(1, 1, 1);
    else if (full && !adds)
        FINISH(1, 0, 0);
    else if (full)
        FINISH(1, 1, 0);
    else if (!adds)
        FINISH(0, 0, 1);
    else
        FINISH(0, 1, 1);
#undef FINISH
    if (!GATHERS) {
        const long n = ek_min(nv * EK_VL, a->win.oc - channel);
        epilogue_rows(&a->epilogue, y, pitch, mr, channel, n);
        if (ADDS_TO_ROWS)
            add_rows(y, pitch, residual, a->residual_pitch, mr, n);
        return;
    }
    epilogue_rows(&a->epilogue, gathered, step, mr, channel, step);
    for (int i = 0; i < mr; i++, y += pitch) {
        EK_UNROLL
        for (int j = 0; j < nv; j++) {
            const int whole = full || j < nv - 1;
            vf v = vf_load(gathered + (i * nv + j) * EK_VL);
            if (ADDS_TO_ROWS)
                v += load_addend(whole, residual + i * a->residual_pitch + j * EK_VL, left);
            store_sum(whole, y + j * EK_VL, v, left);
        }
    }
}
#endif
