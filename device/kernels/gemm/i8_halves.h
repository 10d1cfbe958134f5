/* Steps of i8_tile.h for products of sixteen bytes, half of them at a time (vi_mull16). */
#ifndef EK_GEMM_I8_HALVES_H
#define EK_GEMM_I8_HALVES_H

#if I8_SCHEDULED && MR == 4
#include "i8_in_order.h"
#endif
EK_INLINE void i8_step(const int mr, const int nv, i8_sums *sums, const i8_row *const row[MR],
                       long p, const i8_value *w, vi flips, const i8_rows a) {
    vi x[MR];
    EK_UNROLL
    for (int i = 0; i < mr; i++)
        x[i] = i8_vector(row[i] + p) ^ flips;
    EK_UNROLL
    for (int j = 0; j < nv * EK_VL; j++) {
        const vi b = i8_vector(w + j * 16);
        EK_UNROLL
        for (int i = 0; i < mr; i++)
            sums->of[i][j] = vi_mull16(sums->of[i][j], x[i], b, a.narrow);
    }
}

/* The last step if only its lower half meets weights other than zero. */
EK_INLINE void i8_half_step(const int mr, const int nv, i8_sums *sums, const i8_row *const row[MR],
                            long p, const i8_value *w, vi flips) {
    vi x[MR];
    EK_UNROLL
    for (int i = 0; i < mr; i++)
        x[i] = i8_vector(row[i] + p) ^ flips;
    EK_UNROLL
    for (int j = 0; j < nv * EK_VL; j++) {
        const vi b = i8_vector(w + j * 16);
        EK_UNROLL
        for (int i = 0; i < mr; i++)
            sums->of[i][j] = vi_mull8(sums->of[i][j], x[i], b);
    }
}

/* Whether four rows by a vector may be scheduled for a core out of order. */
#if !EK_IN_ORDER && defined __aarch64__ && MR == 4
#define I8_INTERLEAVED 1
#include "i8_out_of_order.h"
#else
#define I8_INTERLEAVED 0
#endif
#endif
