/* Windows that are not read where they lie: copied (bytes) or widened, one after the other, and
 * their sums. Part of i8_conv.c. */
#ifndef EK_I8_WINDOWS_H
#define EK_I8_WINDOWS_H

/* Appends `count` elements of x to a packed row, or padding where x is NULL. Bytes go sixteen at a
 * time unless x ends (`end`) before: what they are too many is written over later, or meets weights
 * that are zero. */
EK_INLINE elem *append(elem *to, const TX *x, long count, int zero, const TX *end) {
#if I8_IN_PLACE
    if (!x) {
        for (long i = 0; i < count; i += 16)
            memset(to + i, zero, 16);
    } else if (count + 15 <= end - x) {
        for (long i = 0; i < count; i += 16)
            memcpy(to + i, x + i, 16);
    } else {
        for (long i = 0; i < count; i++)
            to[i] = (elem)x[i];
    }
#else
    (void)end;
    if (!x)
        memset(to, 0, count * sizeof *to);
    else
        for (long i = 0; i < count; i++)
            to[i] = (elem)(x[i] - zero);
#endif
    return to + count;
}

/* One row of a window: pixels ix, ix + dw ... of `line` (NULL: all padding). */
static elem *append_row(const ek_window *g, elem *to, const TX *line, long ix, int zero,
                        const TX *end) {
    if (!line)
        return append(to, NULL, (long)g->kw * g->c, zero, end);
    if (g->dw == 1) {
        const long from = ek_min(ek_max(-ix, 0), g->kw);
        const long until = ek_max(ek_min(g->w - ix, g->kw), from);
        to = append(to, NULL, from * g->c, zero, end);
        to = append(to, line + (ix + from) * g->c, (until - from) * g->c, zero, end);
        return append(to, NULL, (g->kw - until) * g->c, zero, end);
    }
    for (int kx = 0; kx < g->kw; kx++, ix += g->dw)
        to = append(to, ix >= 0 && ix < g->w ? line + ix * g->c : NULL, g->c, zero, end);
    return to;
}

#if ROW_SUMS
/* The sum of a row of k values as the products see them. */
static int32_t sum_of(const elem *row, long k) {
    int32_t sum = 0;
    long p = 0;
#if I8_BYTES
    const vi ones = vi_splat(0x01010101), flips = vi_splat(FLIP);
    vi sums = {0};
    for (; p + 4 * EK_VL <= k; p += 4 * EK_VL) {
        const vi v = i8_vector(row + p) ^ flips;
#if EK_I8 == EK_I8_MULL16
        sums = vi_mull16(sums, v, ones, 1);
#else
        sums = vi_dot4(sums, v, ones);
#endif
    }
    sum = __builtin_reduce_add(sums);
#endif
    for (; p < k; p++)
        sum += (I8_IN_PLACE ? (TX)row[p] : row[p]) + (FLIP ? (X_IS_UNSIGNED ? -128 : 128) : 0);
    return sum;
}
#endif

/* `count` windows of bytes that lie inside x, with fifteen to spare: nothing to ask for by row. */
static void __attribute__((noinline)) copy_windows(elem *to, long to_step, const TX *x, long count,
                                                   const ek_window *g) {
    const long kh = g->kh, row = (long)g->kw * g->c, pitch = (long)g->w * g->c * g->dh;
    const long x_step = (long)g->sw * g->c;
    for (; count > 0; count--, to += to_step, x += x_step) {
        const TX *from = x;
        elem *at = to;
        if (row <= 16)
            for (long ky = 0; ky < kh; ky++, at += row, from += pitch)
                memcpy(at, from, 16);
        else
            for (long ky = 0; ky < kh; ky++, at += row, from += pitch)
                for (long j = 0; j < row; j += 16)
                    memcpy(at + j, from + j, 16);
    }
}

/* The window that begins at (iy, ix) of an image. */
static void __attribute__((noinline)) append_window(const ek_i8_conv_args *a, elem *to,
                                                    const TX *image, long iy, long ix) {
    const ek_window *g = &a->win;
    const long pitch = (long)g->w * g->c;
    const TX *end = (const TX *)a->x + g->n * g->h * pitch;
    elem *stop = to + a->k_padded;
    for (int ky = 0; ky < g->kh; ky++, iy += g->dh)
        to =
            append_row(g, to, iy >= 0 && iy < g->h ? image + iy * pitch : NULL, ix, a->x_zero, end);
    if (!I8_IN_PLACE)
        memset(to, 0, (size_t)(stop - to) * sizeof *to);
}

/* How many of the next `left` windows of a row of y, from (iy, ix) on, copy_windows may take. */
static long inside(const ek_i8_conv_args *a, const TX *image, long iy, long ix, long left) {
    const ek_window *g = &a->win;
    const long bottom = iy + (g->kh - 1) * g->dh, fit = g->w - g->kw - ix;
    if (!I8_IN_PLACE || g->dw != 1 || ix < 0 || fit < 0 || iy < 0 || bottom >= g->h)
        return 0;
    const long count = ek_min(left, fit / g->sw + 1);
    const long last = (bottom * g->w + ix + (count - 1) * g->sw) * g->c;
    const TX *end = (const TX *)a->x + (long)g->n * g->h * g->w * g->c;
    return count - (image + last + (long)g->kw * g->c + 15 > end);
}

/* The windows of pixels [pixel, pixel + count), a->k_padded elements apart in scratch. */
static void pack_windows(const ek_i8_conv_args *a, rows_t *rows, elem *scratch, long pixel,
                         int count) {
    const ek_window *g = &a->win;
    const long pitch = (long)g->w * g->c;
    find_place(g, rows, pixel);
    rows->count = 1;
    rows->length = a->k_padded;
    for (long done = 0, now; done < count; done += now) {
        const long ix = (long)rows->ox * g->sw - g->left, iy = (long)rows->oy * g->sh - g->top;
        const TX *image = (const TX *)a->x + (long)rows->n * g->h * pitch;
        elem *to = scratch + done * a->k_padded;
        now = inside(a, image, iy, ix, ek_min(count - done, g->ow - rows->ox));
        if (now) {
            copy_windows(to, a->k_padded, image + iy * pitch + ix * g->c, now, g);
        } else {
            append_window(a, to, image, iy, ix);
            now = 1;
        }
        move_on(g, rows, (int)now);
    }
    EK_UNROLL
    for (int i = 0; i < MR; i++)
        rows->ptr[i] = scratch + i * a->k_padded;
#if ROW_SUMS
    for (int i = 0; i < count; i++)
        rows->sum[i] = sum_of(rows->ptr[i], (long)g->kh * g->kw * g->c);
#endif
}
#endif
