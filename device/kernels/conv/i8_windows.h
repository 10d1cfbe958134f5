/* Windows copied (bytes) or widened into scratch, and windows of 1x1 convolutions, which are read
 * in place. Part of i8_conv.c. */
#ifndef EK_I8_WINDOWS_H
#define EK_I8_WINDOWS_H

/* Appends `count` elements of x to a packed row, or padding if x is NULL. Bytes are copied 16 at a
 * time unless x ends (`end`) first; the excess is overwritten later or meets zero weights. */
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

/* One window row: pixels ix, ix + dw ... of `line` (NULL: all padding). */
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

/* Copies `count` windows of bytes that lie inside x with 15 bytes to spare, so rows need no
 * tests. */
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

/* Appends the window at (iy, ix) of an image. */
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

/* Number of windows, out of the next `left` of a row of y starting at (iy, ix), that copy_windows
 * may copy. */
static long inside(const ek_i8_conv_args *a, const TX *image, long iy, long ix, long left) {
    const ek_window *g = &a->win;
    const long bottom = iy + (g->kh - 1) * g->dh, fit = g->w - g->kw - ix;
    if (!I8_IN_PLACE || g->dw != 1 || ix < 0 || fit < 0 || iy < 0 || bottom >= g->h)
        return 0;
    long count = ek_min(left, fit / g->sw + 1);
    const long last = (bottom * g->w + ix + (count - 1) * g->sw) * g->c;
    const TX *end = (const TX *)a->x + (long)g->n * g->h * g->w * g->c;
    /* Several windows of few bytes may end near the end of x. */
    for (const TX *at = image + last + (long)g->kw * g->c + 15; count && at > end; count--)
        at -= (long)g->sw * g->c;
    return count;
}

#if FLIPPED
/* Flips once for all panels; otherwise every panel would. */
EK_INLINE void flip_bytes(elem *to, const elem *from, long count) {
    const vi flips = vi_splat(I8_FLIP(1));
    for (long i = 0; i < count; i += 16) {
        const vi v = i8_vector(from + i) ^ flips;
        memcpy(to + i, &v, sizeof v);
    }
}

/* Flips `count` adjacent rows of c bytes into rows `apart` bytes apart. */
EK_INLINE void flip_pixels(elem *to, long apart, const elem *x, int count, long c,
                           const elem *end) {
    if (x + (count - 1) * c + apart <= end) {
        for (int i = 0; i < count; i++, to += apart, x += c)
            flip_bytes(to, x, apart);
        return;
    }
    for (int i = 0; i < count; i++, to += apart, x += c)
        for (long p = 0; p < c; p++)
            to[p] = (elem)(x[p] ^ 0x80);
}
#endif

/* Copies the windows of pixels [pixel, pixel + count), a->k_padded elements apart, into scratch. */
static void copy_all(const ek_i8_conv_args *a, rows_t *rows, elem *scratch, long pixel, int count) {
    const ek_window *g = &a->win;
    const long pitch = (long)g->w * g->c;
    find_place(g, rows, pixel);
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
        advance(g, rows, (int)now);
    }
#if FLIPPED
    flip_bytes(scratch, scratch, count * a->k_padded);
#endif
}

/* The same for the windows of a tile, and where they are. */
static void pack_windows(const ek_i8_conv_args *a, rows_t *rows, elem *scratch, long pixel,
                         int count) {
    copy_all(a, rows, scratch, pixel, count);
    rows->count = 1;
    rows->length = a->k_padded;
    EK_UNROLL
    for (int i = 0; i < MR; i++)
        rows->ptr[i] = scratch + i * a->k_padded;
#if ROW_SUMS
    sum_rows(a, rows, count, (long)a->win.kh * a->win.kw * a->win.c);
#endif
}

#if I8_IN_PLACE
/* Reads the rows of a 1x1 convolution in place; returns 0 if x ends too early, because more than a
 * row is read. */
static int find_pixels(const ek_i8_conv_args *a, rows_t *rows, elem *scratch, long pixel,
                       int count) {
    const ek_window *g = &a->win;
    const elem *x = (const elem *)a->x, *at = x + pixel * g->c;
    const elem *end = x + (long)g->n * g->h * g->w * g->c;
    long apart = g->c;
#ifdef KEPT_TILES
    /* If each panel walks all pixels before the next one, keep the row sums: at 49 pixels and 1280
     * channels, computing them took half as long as the products (A53). */
    const long tile = pixel / MR, place = tile % KEPT_TILES;
    const int keeps = a->panel_outer, known = keeps && rows->kept[place] == tile;
    if (keeps)
        rows->kept[place] = tile;
#endif
#if FLIPPED
    elem *const to = scratch + (keeps ? pixel * a->k_padded : 0);
    apart = a->k_padded;
    if (!known)
        flip_pixels(to, apart, at, count, g->c, end);
    at = to;
#else
    (void)scratch;
    if (at + (count - 1) * apart + a->k_padded > end)
        return 0;
#endif
    rows->count = 1;
    rows->length = a->k_padded;
    EK_UNROLL
    for (int i = 0; i < MR; i++, at += apart)
        rows->ptr[i] = at;
#if ROW_SUMS
    if (!known)
        sum_rows(a, rows, count, g->c);
    if (keeps)
        memcpy(known ? rows->sum : rows->kept_sum[place], known ? rows->kept_sum[place] : rows->sum,
               sizeof rows->sum);
#endif
    return 1;
}
#endif
#endif
