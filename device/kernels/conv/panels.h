/* Loop nest shared by both convolutions: tiles of MR pixels x panels of NV vectors of channels.
 *
 * Before inclusion: MR, NV, SCRATCH (bytes), the types conv_args, elem (of rows) and weight (of
 * packed weights), DEPTH(a) (weights per channel), and two functions:
 *   tile(mr, nv, a, rows, w, pixel, channel)   with constants mr and nv
 *   find_rows(a, rows, scratch, pixel, count)
 * If panels are not stored as tiles read them: UNPACKED (maximum weights per panel) and
 *   unpack_panel(a, panel, to)
 * With UNPACKS_ALL, all panels fit and are unpacked before the first tile. With UNPACKS_BY_TILE, a
 * full tile that is the first of a full panel unpacks it:
 *   tile_unpacking(a, rows, to, pixel, panel)
 * With READ_AHEAD, BYTES_AHEAD(length): what a tile prefetches for later calls per segment.
 * If another function calls the walk: WALK (its declaration). If a tile's finished outputs are
 * postprocessed: FINISH_PANELS and
 *   finish_panels(a, pixel, count, channel, until)
 * If all panels of several full tiles may be computed together: STEPS and
 *   strip_of_tiles(a, rows, scratch, tile, tiles), which returns how many it did, perhaps 0 */
#ifndef EK_CONV_PANELS_H
#define EK_CONV_PANELS_H
#include "rows.h"

#ifndef WALK
#define WALK void NAME
#endif

_Static_assert(NV <= 8, "tile_nv knows panels of up to eight vectors");

#if NV > 1
/* The last panel of a tile, of fewer than NV vectors. */
EK_INLINE void tile_nv(const int mr, int nv, const conv_args *a, const rows_t *rows,
                       const weight *w, long pixel, long channel) {
    if (nv == 1)
        tile(mr, 1, a, rows, w, pixel, channel);
#if NV > 2
    else if (nv == 2)
        tile(mr, 2, a, rows, w, pixel, channel);
#endif
#if NV > 3
    else if (nv == 3)
        tile(mr, 3, a, rows, w, pixel, channel);
#endif
#if NV > 4
    else if (nv == 4)
        tile(mr, 4, a, rows, w, pixel, channel);
#endif
#if NV > 5
    else if (nv == 5)
        tile(mr, 5, a, rows, w, pixel, channel);
#endif
#if NV > 6
    else if (nv == 6)
        tile(mr, 6, a, rows, w, pixel, channel);
#endif
#if NV > 7
    else if (nv == 7)
        tile(mr, 7, a, rows, w, pixel, channel);
#endif
}
#endif

/* The tile of mr pixels starting at `pixel` x panels [panel, until), whose weights start at w. */
EK_INLINE void tile_panels(const int mr, const conv_args *a, const rows_t *rows, const weight *w,
                           long pixel, long panel, long until) {
    const long oc = a->win.oc, depth = DEPTH(a);
    long channel = panel * NV * EK_VL;
    for (; panel < until && channel + (NV - 1) * EK_VL < oc; panel++) {
        tile(mr, NV, a, rows, w, pixel, channel);
        channel += NV * EK_VL;
        w += NV * EK_VL * depth;
    }
#if NV > 1
    if (panel < until)
        tile_nv(mr, (int)((oc - channel + EK_VL - 1) / EK_VL), a, rows, w, pixel, channel);
#endif
}

/* A tile of fewer than MR pixels, split into powers of two. */
static void __attribute__((noinline)) edge(const conv_args *a, const rows_t *rows, const weight *w,
                                           int count, long pixel, long panel, long until) {
    rows_t part;
    part.count = rows->count;
    part.length = rows->length;
    for (int done = 0, mr; done < count; done += mr, pixel += mr) {
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
            tile_panels(8, a, &part, w, pixel, panel, until);
            break;
#endif
#if MR > 4
        case 4:
            tile_panels(4, a, &part, w, pixel, panel, until);
            break;
#endif
#if MR > 2
        case 2:
            tile_panels(2, a, &part, w, pixel, panel, until);
            break;
#endif
        default:
            tile_panels(1, a, &part, w, pixel, panel, until);
        }
    }
}

/* Task: tile x panel. Consecutive tasks on one tile share its pointers. */
WALK(const void *args, long begin, long end) {
    const conv_args *a = args;
    const ek_window *g = &a->win;
    const long pixels = (long)g->n * g->oh * g->ow, tiles = (pixels + MR - 1) / MR;
    const long all = a->band ? a->band : tiles; /* tiles per band */
    rows_t rows;
    rows.next = -1;
#ifdef KEPT_TILES
    for (int i = 0; i < KEPT_TILES && a->panel_outer; i++)
        rows.kept[i] = -1;
#endif
    elem scratch[SCRATCH / sizeof(elem)] __attribute__((aligned(64)));
#ifdef UNPACKED
    weight unpacked[UNPACKED] __attribute__((aligned(64)));
    long held = -1;
#endif
    for (long t = begin, now; t < end; t += now) {
        long at = t / a->panels, panel = t % a->panels;
        if (a->panel_outer) {
            const long first = at / all * all, band = ek_min(all, tiles - first);
            const long step = t - first * a->panels;
            at = first + step % band, panel = step / band;
        }
        now = a->panel_outer ? 1 : ek_min(a->panels - panel, end - t);
        const int count = (int)ek_min(MR, pixels - at * MR);
#ifdef STEPS
        if (panel == 0) {
            const long most = ek_min(pixels / MR - at, (end - t) / a->panels);
            const long done = strip_of_tiles(a, &rows, scratch, at, most);
            now = done ? done * a->panels : now;
            if (done)
                continue;
        }
#endif
#ifdef UNPACKS_ALL
        for (; held < 0; held = 0)
            for (long i = 0; i < a->panels; i++)
                unpack_panel(a, i, unpacked + i * NV * EK_VL * DEPTH(a));
        const weight *w = unpacked + panel * NV * EK_VL * DEPTH(a);
#elif defined UNPACKED
        now = 1;
#if UNPACKS_BY_TILE
        if (panel != held && count == MR && (panel * NV + NV - 1) * EK_VL < g->oc) {
            find_rows(a, &rows, scratch, at * MR, count);
            tile_unpacking(a, &rows, unpacked, at * MR, held = panel);
            continue;
        }
#endif
        if (panel != held)
            unpack_panel(a, held = panel, unpacked);
        const weight *w = unpacked;
#else
        const weight *w = (const weight *)a->weights + panel * NV * EK_VL * DEPTH(a);
#endif
        find_rows(a, &rows, scratch, at * MR, count);
#ifdef READ_AHEAD
        rows.ahead = (t - panel) * rows.count * BYTES_AHEAD(rows.length);
#endif
        if (count == MR)
            tile_panels(MR, a, &rows, w, at * MR, panel, panel + now);
        else
            edge(a, &rows, w, count, at * MR, panel, panel + now);
#ifdef FINISH_PANELS
        finish_panels(a, at * MR, count, panel * NV * EK_VL,
                      ek_min((panel + now) * NV * EK_VL, g->oc));
#endif
    }
}
#endif
