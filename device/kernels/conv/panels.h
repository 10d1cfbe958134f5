/* How both convolutions walk their tiles of MR pixels and panels of NV vectors of channels.
 *
 * Before inclusion: MR, NV, SCRATCH (bytes), the types conv_args, elem (of rows) and weight (of
 * packed weights), DEPTH(a) (weights per channel), and two functions:
 *   tile(mr, nv, a, rows, w, pixel, channel)   with constants mr and nv
 *   find_rows(a, rows, scratch, pixel, count)  */
#ifndef EK_CONV_PANELS_H
#define EK_CONV_PANELS_H
#include "rows.h"

_Static_assert(NV <= 4, "tile_nv knows panels of up to four vectors");

EK_INLINE void tile_nv(const int mr, int nv, const conv_args *a, const rows_t *rows,
                       const weight *w, long pixel, long channel) {
    if (nv == NV)
        tile(mr, NV, a, rows, w, pixel, channel);
#if NV > 1
    else if (nv == 1)
        tile(mr, 1, a, rows, w, pixel, channel);
#endif
#if NV > 2
    else if (nv == 2)
        tile(mr, 2, a, rows, w, pixel, channel);
#endif
#if NV > 3
    else if (nv == 3)
        tile(mr, 3, a, rows, w, pixel, channel);
#endif
}

/* A tile of fewer than MR pixels, in powers of two. */
static void __attribute__((noinline)) edge(const conv_args *a, const rows_t *rows, int count,
                                           int nv, const weight *w, long pixel, long channel) {
    rows_t part = *rows;
    for (int done = 0, mr; done < count; done += mr) {
        int left = count - done;
        mr = MR > 8 && left >= 8 ? 8 : MR > 4 && left >= 4 ? 4 : MR > 2 && left >= 2 ? 2 : 1;
        for (int i = 0; i < mr; i++) {
            part.sum[i] = rows->sum[done + i];
            for (long s = 0; s < rows->count; s++)
                part.ptr[s * MR + i] = rows->ptr[s * MR + done + i];
        }
        switch (mr) {
#if MR > 8
        case 8:
            tile_nv(8, nv, a, &part, w, pixel + done, channel);
            break;
#endif
#if MR > 4
        case 4:
            tile_nv(4, nv, a, &part, w, pixel + done, channel);
            break;
#endif
#if MR > 2
        case 2:
            tile_nv(2, nv, a, &part, w, pixel + done, channel);
            break;
#endif
        default:
            tile_nv(1, nv, a, &part, w, pixel + done, channel);
        }
    }
}

/* Tasks: tiles x panels; the pointers of a tile are found once for the panels that follow. */
void NAME(const void *args, long begin, long end) {
    const conv_args *a = args;
    const ek_window *g = &a->win;
    long pixels = (long)g->n * g->oh * g->ow, tiles = (pixels + MR - 1) / MR, ready = -1;
    rows_t rows;
    elem scratch[SCRATCH / sizeof(elem)] __attribute__((aligned(64)));
    for (long t = begin; t < end; t++) {
        long at = a->panel_outer ? t % tiles : t / a->panels;
        long panel = a->panel_outer ? t / tiles : t % a->panels;
        long pixel = at * MR, channel = panel * NV * EK_VL;
        int count = (int)ek_min(MR, pixels - pixel);
        int nv = (int)ek_min(NV, (g->oc - channel + EK_VL - 1) / EK_VL);
        if (at != ready)
            find_rows(a, &rows, scratch, pixel, count);
        ready = at;
        const weight *w = (const weight *)a->weights + channel * DEPTH(a);
        if (count == MR)
            tile_nv(MR, nv, a, &rows, w, pixel, channel);
        else
            edge(a, &rows, count, nv, w, pixel, channel);
    }
}
#endif
