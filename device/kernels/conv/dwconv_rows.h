/* The task of depthwise convolutions with a compile-time window: one group of ROWS output rows.
 *
 * Include last. Requires `rows_at`, which computes output rows, and HAS_BLOCK(window): whether the
 * channels fill a block, so that `rows_at` needs no partial ones. */
void NAME(const void *args, long begin, long end) {
    const ek_dwconv_args *a = args;
    const ek_window *g = &a->win;
    const long groups = (g->oh + ROWS - 1) / ROWS;
    for (long t = begin; t < end; t++) {
        const TX *image = (const TX *)a->x + t / groups * g->h * g->w * X_PITCH(a);
        long oy = t % groups * ROWS;
        const long until = ek_min(oy + ROWS, g->oh);
        const int full = HAS_BLOCK(g);
        TX *y = (TX *)a->y + (t / groups * g->oh + oy) * g->ow * PITCH(a);
        if (full && until - oy == ROWS) {
            rows_at(ROWS, 1, a, image, oy, y);
            continue;
        }
        for (; oy < until; oy++, y += g->ow * PITCH(a)) {
            if (full)
                rows_at(1, 1, a, image, oy, y);
            else
                rows_at(1, 0, a, image, oy, y);
        }
    }
}
