/* A panel whose last vector has one column. Included by i8_tile.h, whose types and macros it uses.
 */
#ifndef EK_GEMM_I8_NARROW_H
#define EK_GEMM_I8_NARROW_H
/* One column more than nv vectors, as in images with odd sides (7 x 7 = 3 * 16 + 1): its sums go
 * along the rows of a packed panel of A, one vector in total instead of one per row. Requires
 * products that take 32 bits of a row, and partial loads as fast as full ones. */
#if defined __AVX2__ && (EK_I8 == EK_I8_DOT4_US || EK_I8 == EK_I8_PAIR16)
#define I8_NARROW(mr, nv) ((mr) <= EK_VL && (mr) * (nv) >= 8)
EK_INLINE vi i8_accumulate_narrow(const int mr, const int nv, i8_sums *sums, const i8_rows a,
                                  long length, const i8_value *w) {
    const long end = length / I8_STEP * a.step;
    vi last = {0};
    for (long p = 0; p < end; p += a.step, w += (nv + 1) * EK_VL * I8_STEP) {
        const i8_value *const of_last = w + nv * EK_VL * I8_STEP;
        const int32_t *const rows = (const int32_t *)(a.row[0] + p);
        const vi x = mr == EK_VL ? vi_load(rows) : vi_load_n(rows, mr);
#if EK_I8 == EK_I8_PAIR16
        last = vi_pair16(last, x, vi_splat(i8_pairs(of_last, 0, a.zero)[0]));
#else
        int32_t group;
        memcpy(&group, of_last, sizeof group);
        const vi b = vi_splat(group);
        last = B_UNSIGNED ? vi_dot4(last, b, x) : vi_dot4(last, x, b);
#endif
        i8_step(mr, nv, sums, a.row, p, w, (vi){0}, a);
    }
    return last;
}
#else
#define I8_NARROW(mr, nv) 0
EK_INLINE vi i8_accumulate_narrow(const int mr, const int nv, i8_sums *sums, const i8_rows a,
                                  long length, const i8_value *w) {
    (void)mr, (void)nv, (void)sums, (void)a, (void)length, (void)w;
    return (vi){0};
}
#endif
#endif
