/* Sums over windows of the bytes as the multiplier sees them, needed if the weights have a zero
 * point. Part of i8_conv.c. */
#ifndef EK_I8_ROW_SUMS_H
#define EK_I8_ROW_SUMS_H
#if ROW_SUMS

/* 1: rows are read in full vectors, including the remainder of k. */
#define FULL_VECTORS (EK_I8_SIGNED_DOTS || EK_I8 == EK_I8_MULL16)

#if I8_BYTES
EK_INLINE vi add_bytes(vi sum, vi bytes, vi counted) {
#if EK_I8 == EK_I8_MULL16
    return vi_mull16(sum, bytes, counted, 1);
#else
    return vi_dot4(sum, bytes, counted);
#endif
}
#endif

#if FULL_VECTORS
/* Sums four rows of k bytes at once, as independent accumulators. */
EK_INLINE vi sums_of_rows(const elem *const row[4], long k) {
    static const int8_t ones[32] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const vi flips = vi_splat(FLIP);
    vi sum[4] = {0};
    for (long p = 0; p < k; p += 16) {
        const vi counted = i8_vector(ones + 16 - ek_min(k - p, 16));
        EK_UNROLL
        for (int i = 0; i < 4; i++)
            sum[i] = add_bytes(sum[i], i8_vector(row[i] + p) ^ flips, counted);
    }
    return vi_sum4(sum[0], sum[1], sum[2], sum[3]);
}
#else
static int32_t sum_of(const elem *row, long k) {
    int32_t sum = 0;
    long p = 0;
#if I8_BYTES
    const vi ones = vi_splat(0x01010101), flips = vi_splat(FLIP);
    vi sums = {0};
    for (; p + 4 * EK_VL <= k; p += 4 * EK_VL)
        sums = add_bytes(sums, i8_vector(row + p) ^ flips, ones);
    sum = __builtin_reduce_add(sums);
#endif
    for (; p < k; p++)
        sum += (I8_IN_PLACE ? (TX)row[p] : row[p]) + (FLIP ? (X_IS_UNSIGNED ? -128 : 128) : 0);
    return sum;
}
#endif

/* Sums the `count` windows of a tile, k values each, multiplied by the weights' zero point if all
 * channels share it. */
static void sum_rows(const ek_i8_conv_args *a, rows_t *rows, int count, long k) {
    const int32_t factor = W_ZERO == 1 ? a->w_zero : 1;
#if FULL_VECTORS
    int i = 0;
    for (; i + 4 <= count; i += 4)
        vi_store(rows->sum + i, sums_of_rows(rows->ptr + i, k) * factor);
    for (; i < count; i++) {
        const elem *const alone[4] = {rows->ptr[i], rows->ptr[i], rows->ptr[i], rows->ptr[i]};
        rows->sum[i] = sums_of_rows(alone, k)[0] * factor;
    }
#else
    for (int i = 0; i < count; i++)
        rows->sum[i] = sum_of(rows->ptr[i], k) * factor;
#endif
}

#if SUMS_FIRST
/* Subtracts the row sums from a tile's initial sums; afterwards, each subtraction would wait for a
 * load. */
EK_INLINE void subtract_row_sums(const int mr, const int nv, const rows_t *rows, i8_sums *sums) {
    EK_UNROLL
    for (int i = 0; i < mr; i++) {
#if EK_I8 == EK_I8_MULL16
        const vi off = {-rows->sum[i]}; /* the lanes of a partial sum are added at the end */
#else
        const vi off = vi_splat(-rows->sum[i]);
#endif
        EK_UNROLL
        for (int j = 0; j < I8_SUMS(nv); j++)
            sums->of[i][j] += off;
    }
}
#endif
#endif
#endif
