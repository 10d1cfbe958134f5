/* Tiles of i8_conv.c whose weights have one scale per group of k and channel: sums within a group
 * are exact, the total over groups is float. Part of i8_conv.c, for matrices (1x1 windows) only;
 * GROUPS is a group's depth in the packed weights. */
#ifndef EK_I8_GROUPS_H
#define EK_I8_GROUPS_H

/* Rows are read in place. Values read beyond a group meet zero weights; the host pads x for the
 * last group. 16-bit values are widened into scratch. */
static void find_rows(const ek_i8_conv_args *a, rows_t *rows, elem *scratch, long pixel,
                      int count) {
    const TX *x = (const TX *)a->x + pixel * a->win.c;
    rows->count = 1;
    rows->length = GROUPS;
#if I8_IN_PLACE
    (void)scratch, (void)count;
    EK_UNROLL
    for (int i = 0; i < MR; i++, x += a->win.c)
        rows->ptr[i] = (const elem *)x;
#else
    const long length = (a->groups - 1) * a->group + GROUPS;
    for (int i = 0; i < count; i++, x += a->win.c, scratch += length) {
        for (long p = 0; p < length; p++)
            scratch[p] = x[p];
        rows->ptr[i] = scratch;
    }
#endif
}

/* Stores rows of a tile: total * scale + bias, plus the old y if it is added, clamped. `full`: no
 * vector extends beyond the last channel. */
EK_INLINE void finish_rows(const int mr, const int nv, const int full, const ek_i8_conv_args *a,
                           vf total[MR][NV], long pixel, long channel) {
    const vf low = vf_bound(a->low_f32), high = vf_bound(a->high_f32);
    const int adds = a->add && *a->add;
    const long pitch = a->pitch;
    const float *x_scale = a->x_scale + pixel * a->x_scale_step;
    EK_UNROLL
    for (int j = 0; j < nv; j++) {
        const long at = channel + j * EK_VL, left = a->win.oc - at;
        const int fits = full || EK_VL == 1 || left >= EK_VL;
        const vf bias = vf_load(a->bias_f32 + at);
        float *y = (float *)a->y + pixel * pitch + at;
        EK_UNROLL
        for (int i = 0; i < mr; i++, y += pitch) {
            vf v = total[i][j] * vf_splat(x_scale[i * a->x_scale_step]) + bias;
            if (adds)
                v += fits ? vf_load(y) : vf_load_n(y, left);
            v = vf_clamp(v, low, high);
            if (fits)
                vf_store(y, v);
            else
                vf_store_n(y, v, left);
        }
    }
}

/* Group scales, and loading a vector of them as floats. */
#ifdef BF16_SCALES
typedef uint16_t group_scale;
#define SCALES_AT(a, w, channel) ((a)->scale16 + (channel))
EK_INLINE vf scales_at(const group_scale *p) {
    return vf_from_bf16(p);
}
#else
typedef float group_scale;
#ifdef STREAM
#define SCALES_AT(a, w, channel) ((const float *)(const void *)((w) + UNPACKED_SCALES))
#define SCALE_PITCH(a, nv) ((nv) * EK_VL)
#else
#define SCALES_AT(a, w, channel) ((a)->scale + (channel))
#endif
EK_INLINE vf scales_at(const group_scale *p) {
    return vf_load(p);
}
#endif
#ifndef SCALE_PITCH
#define SCALE_PITCH(a, nv) ((a)->scale_pitch)
#endif

/* total += the scaled sums of all groups. */
EK_INLINE void add_groups(const int mr, const int nv, const ek_i8_conv_args *a, const i8_row **row,
                          const i8_value *w, const group_scale *scale, vf total[MR][NV]) {
    for (long g = 0; g < a->groups; g++, scale += SCALE_PITCH(a, nv)) {
        i8_sums sums;
        i8_clear(&sums);
        const i8_rows from = {row, I8_STEP, FLIP, NARROW, 0};
        w = i8_accumulate(mr, nv, &sums, from, GROUPS, w);
        EK_UNROLL
        for (int i = 0; i < mr; i++) {
            row[i] += a->group;
            EK_UNROLL
            for (int j = 0; j < nv; j++)
                total[i][j] += vcast(i8_sum(nv, &sums, i, j), vf) * scales_at(scale + j * EK_VL);
        }
    }
}

#if defined INT4 && I8_TWO
#define SHORT_SUMS 1
#define SHORT_STEPS 32 /* products of -127..127 and -8..7 whose sum fits 16 bits */
typedef float two_floats __attribute__((vector_size(8 * EK_VL)));

EK_INLINE two_floats two_scales_at(const group_scale *p) {
#ifdef BF16_SCALES
    typedef uint32_t two_vu __attribute__((vector_size(8 * EK_VL)));
    i8_two16 upper;
    memcpy(&upper, p, sizeof upper);
    return (two_floats)(vcast(upper, two_vu) << 16);
#else
    two_floats v;
    memcpy(&v, p, sizeof v);
    return v;
#endif
}

/* One step along k. */
EK_INLINE void short_step(const int mr, const int nv, i8_two16 part[MR][(NV + 1) / 2],
                          const i8_row *const row[MR], long p, const i8_value *w) {
    EK_UNROLL
    for (int j = 0; j < nv / 2; j++) {
        i8_signed8 b;
        memcpy(&b, w + j * 2 * EK_VL, sizeof b);
        EK_UNROLL
        for (int i = 0; i < mr; i++)
            part[i][j] += vcast(b, i8_two16) * vcast(row[i][p] - (i8_signed8){0}, i8_two16);
    }
}

/* add_groups with 16-bit sums, converted directly to float; nv is even. */
EK_INLINE void add_groups_short(const int mr, const int nv, const ek_i8_conv_args *a,
                                const i8_row **row, const i8_value *w, const group_scale *scale,
                                vf total[MR][NV]) {
    two_floats sum[MR][(NV + 1) / 2] = {0};
    for (long g = 0; g < a->groups; g++, scale += SCALE_PITCH(a, nv)) {
        for (long from = 0; from < GROUPS; from += SHORT_STEPS) {
            const long until = ek_min(from + SHORT_STEPS, GROUPS);
            i8_two16 part[MR][(NV + 1) / 2] = {0};
            long p = from;
            /* Unrolled by four, otherwise the loop counter costs as much as the loads. */
            for (; p + 4 <= until; p += 4) {
                EK_UNROLL
                for (int u = 0; u < 4; u++, w += nv * EK_VL) {
                    short_step(mr, nv, part, row, p + u, w);
                    EK_IN_ORDER_HERE;
                }
            }
            for (; p < until; p++, w += nv * EK_VL)
                short_step(mr, nv, part, row, p, w);
            EK_UNROLL
            for (int j = 0; j < nv / 2; j++) {
                const two_floats by = two_scales_at(scale + j * 2 * EK_VL);
                EK_UNROLL
                for (int i = 0; i < mr; i++)
                    sum[i][j] += vcast(part[i][j], two_floats) * by;
            }
        }
        EK_UNROLL
        for (int i = 0; i < mr; i++)
            row[i] += a->group;
    }
    EK_UNROLL
    for (int i = 0; i < mr; i++) {
        EK_UNROLL
        for (int j = 0; j < nv; j++) {
            const two_floats v = sum[i][j / 2];
            total[i][j] += j % 2 ? __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15)
                                 : __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
        }
    }
}
#elif defined INT4 && EK_I8 == EK_I8_MULL16
#define SHORT_SUMS 1
#define SHORT_STEPS 256 /* products; each lane adds one eighth of them */

/* The loop over halves is outside the one over rows, so that consecutive products are
 * independent. */
EK_INLINE void short_step(const int mr, const int nv, vi_short part[MR][NV * EK_VL],
                          const i8_row *const row[MR], long p, const i8_value *w) {
    vi x[MR];
    EK_UNROLL
    for (int i = 0; i < mr; i++)
        x[i] = i8_vector(row[i] + p);
    EK_UNROLL
    for (int j = 0; j < nv * EK_VL; j++) {
        const vi b = i8_vector(w + j * 16);
        EK_UNROLL
        for (int h = 0; h < 2; h++) {
            EK_UNROLL
            for (int i = 0; i < mr; i++)
                part[i][j] = vi_mlal8(part[i][j], x[i], b, h);
        }
    }
}

/* add_groups with 16-bit sums, widened at the end of each group. */
EK_INLINE void add_groups_short(const int mr, const int nv, const ek_i8_conv_args *a,
                                const i8_row **row, const i8_value *w, const group_scale *scale,
                                vf total[MR][NV]) {
    for (long g = 0; g < a->groups; g++, scale += SCALE_PITCH(a, nv)) {
        for (long from = 0; from < GROUPS; from += SHORT_STEPS) {
            vi_short part[MR][NV * EK_VL] = {0};
            const long until = ek_min(from + SHORT_STEPS, GROUPS);
            for (long p = from; p < until; p += I8_STEP, w += nv * EK_VL * I8_STEP)
                short_step(mr, nv, part, row, p, w);
            EK_UNROLL
            for (int i = 0; i < mr; i++) {
                EK_UNROLL
                for (int j = 0; j < nv; j++) {
                    const vi_short *s = part[i] + j * EK_VL;
                    const vi sum = vi_sum4(vi_of_short(s[0]), vi_of_short(s[1]), vi_of_short(s[2]),
                                           vi_of_short(s[3]));
                    total[i][j] += vcast(sum, vf) * scales_at(scale + j * EK_VL);
                }
            }
        }
        EK_UNROLL
        for (int i = 0; i < mr; i++)
            row[i] += a->group;
    }
}
#else
#define SHORT_SUMS 0
#endif

EK_INLINE void tile(const int mr, const int nv, const ek_i8_conv_args *a, const rows_t *rows,
                    const i8_value *w, long pixel, long channel) {
    vf total[MR][NV];
    const i8_row *row[MR];
    EK_UNROLL
    for (int i = 0; i < mr; i++) {
        row[i] = rows->ptr[i];
        EK_UNROLL
        for (int j = 0; j < nv; j++)
            total[i][j] = a->start ? vf_load(a->start + channel + j * EK_VL) : vf_splat(0);
    }
#if SHORT_SUMS
    if (EK_I8 == EK_I8_MULL16 || nv % 2 == 0)
        add_groups_short(mr, nv, a, row, w, SCALES_AT(a, w, channel), total);
    else
#endif
        add_groups(mr, nv, a, row, w, SCALES_AT(a, w, channel), total);
    if (channel + nv * EK_VL <= a->win.oc)
        finish_rows(mr, nv, 1, a, total, pixel, channel);
    else
        finish_rows(mr, nv, 0, a, total, pixel, channel);
}
#endif
