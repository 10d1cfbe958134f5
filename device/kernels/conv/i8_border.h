/* Byte images copied to scratch with their padding, so that no window crosses a border. If rows are
 * short, copying the image costs less than finding and copying the windows that would cross. Copies
 * are 16 bytes at a time; the next write overwrites the excess. Part of i8_conv.c. */
#ifndef EK_I8_BORDER_H
#define EK_I8_BORDER_H

EK_INLINE char *append_border(char *to, int zero, long bytes) {
    for (long i = 0; i < bytes; i += 16) {
        memset(to + i, zero, 16);
        EK_IN_ORDER_HERE; /* keeps the compiler from emitting a call */
    }
    return to + bytes;
}

/* For at least 16 bytes. The last 16 overlap the previous ones because x may end there. */
EK_INLINE char *append_line(char *to, const char *x, long bytes) {
    long i = 0;
    for (; i + 64 <= bytes; i += 64) {
        memcpy(to + i, x + i, 64);
        EK_IN_ORDER_HERE;
    }
    for (; i + 16 < bytes; i += 16) {
        memcpy(to + i, x + i, 16);
        EK_IN_ORDER_HERE;
    }
    memcpy(to + bytes - 16, x + bytes - 16, 16);
    return to + bytes;
}

/* Copies x with padding and sets `padded` to the padded window: as many rows and columns as windows
 * reach. */
static void __attribute__((noinline)) copy_with_border(const ek_i8_conv_args *a, ek_window *padded,
                                                       char *to) {
    const ek_window *g = &a->win;
    *padded = *g;
    padded->top = padded->left = 0;
    padded->h = (int)ek_max(g->top + g->h, (g->oh - 1) * g->sh + (g->kh - 1) * g->dh + 1);
    padded->w = (int)ek_max(g->left + g->w, (g->ow - 1) * g->sw + g->kw);
    const long row = (long)g->w * g->c, pitch = (long)padded->w * g->c;
    const long left = (long)g->left * g->c, gap = pitch - row;
    const char *x = a->x;
    for (int n = 0; n < g->n; n++) {
        to = append_border(to, a->x_zero, g->top * pitch + left);
        for (int y = 1; y < g->h; y++, x += row)
            to = append_border(append_line(to, x, row), a->x_zero, gap);
        to = append_line(to, x, row);
        to = append_border(to, a->x_zero, (padded->h - g->h - g->top) * pitch + gap - left);
        x += row;
    }
}
#endif
