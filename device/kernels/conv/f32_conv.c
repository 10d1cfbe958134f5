/* f32 convolution (f16 with EK_HALF), NHWC: an MR x (NV * EK_VL) register tile over pixels x output
 * channels.
 *
 * Compile-time parameters: NAME, MR (pixels), NV (vectors of output channels), EK_SIMD, ONE_PIXEL
 * (images have one, so tiles of several are not compiled), LONG_SUMS (f16 sums in parts), GROUPED
 * (each so many panels read the next win.c channels of x), K_BLOCK
 * (pointwise f32: block size along k), NARROW (f32: bits of a stored weight, see narrow.h), and
 * those of epilogue.h. Narrow weights are widened in registers with NARROW_IN_REGISTERS, for few
 * tiles of pixels; else a panel at once or, with UNPACKS_ALL, all panels. The A operand is never
 * copied: a tile reads each pixel's window through pointers, one per window row (or per tap); rows
 * that cross the image border come from zero-filled scratch. */
#ifdef ONE_PIXEL
#undef MR
#define MR 1
#endif
#include "f32_conv.h"
#include "../gemm/f32_tile.h"
#include "f32_finish.h"

#ifndef SEGMENTS
#define SEGMENTS EK_F32_SEGMENTS
#endif
#define SCRATCH (EK_F32_SCRATCH_BYTES + 64)

typedef ek_real elem;
#ifdef NARROW
typedef narrow stored;
#else
typedef elem stored;
#endif
#ifdef NARROW_IN_REGISTERS
typedef stored weight;
#else
typedef elem weight;
#endif
typedef ek_f32_conv_args conv_args;
#ifdef K_BLOCK
#define DEPTH(a) ((a)->depth)
#define CHANNELS(a) ((a)->depth)
#define WALK static void walk
#else
#define DEPTH(a) ((long)(a)->win.kh * (a)->win.kw * (a)->win.c)
#define CHANNELS(a) ((a)->win.c)
#endif
#define BYTES_AHEAD(length) F32_BYTES_AHEAD(length)
#include "rows.h"

#ifdef GROUPED
/* The first channel of the group that an output channel belongs to. */
#define OWN(a, channel) ((channel) / (GROUPED * NV * EK_VL) * CHANNELS(a))
#else
#define OWN(a, channel) 0
#endif

#ifdef LONG_SUMS
/* Sums of a tile: of runs of EK_HALF_RUN products, which are added up in f16, too. Each sum grows
 * for a few steps only, so that little is rounded off. */
EK_INLINE void long_sums(const int mr, const int nv, const rows_t *rows, long own, const elem *w,
                         const char *ahead, vf acc[MR][NV]) {
    (void)ahead;
    for (long s = 0; s < rows->count; s++)
        for (long from = 0; from < rows->length; from += EK_HALF_RUN) {
            const elem *x[MR];
            vf some[MR][NV] = {0};
            EK_UNROLL
            for (int i = 0; i < mr; i++)
                x[i] = rows->ptr[s * MR + i] + own + from;
            f32_columns columns = {.at = w, .row = nv * EK_VL, .left = EK_VL};
#ifdef READ_AHEAD
            columns.ahead = ahead;
            if (ahead)
                ahead += F32_BYTES_AHEAD(ek_min(EK_HALF_RUN, rows->length - from));
#endif
            w = f32_rows(mr, nv, 0, some, x, columns, ek_min(EK_HALF_RUN, rows->length - from));
            EK_UNROLL
            for (int i = 0; i < mr; i++) {
                EK_UNROLL
                for (int j = 0; j < nv; j++)
                    acc[i][j] += some[i][j];
            }
        }
}
#endif

#ifdef K_BLOCK
/* Partial sums of mr pixels, which blocks of k pass on in y: written or read. */
EK_INLINE void partial_sums(const int mr, const int nv, const int full, const int writes,
                            const ek_f32_conv_args *a, vf acc[MR][NV], long pixel, long channel,
                            long left) {
    elem *y = (elem *)a->y + pixel * a->pitch + channel;
    EK_UNROLL
    for (int i = 0; i < mr; i++, y += a->pitch) {
        EK_UNROLL
        for (int j = 0; j < nv; j++) {
            elem *at = y + j * EK_VL;
            const int fits = full || j < nv - 1;
            if (!writes)
                acc[i][j] = fits ? vf_load(at) : vf_load_n(at, left);
            else if (fits)
                vf_store(at, acc[i][j]);
            else
                vf_store_n(at, acc[i][j], left);
        }
    }
}
#endif

/* Rows row0 .. row0 + mr of the tile, nv vectors of channels starting at `channel`. With NARROW,
 * `source` is one of gemm/f32_tile.h's, and `from` the stored weights if it is not F32_WIDE. */
EK_INLINE void tile_of(const int mr, const int nv, const int source, const ek_f32_conv_args *a,
                       const rows_t *rows, const elem *w, const stored *from, long pixel,
                       long channel) {
    vf acc[MR][NV];
    if (ADDS_LAST)
        fetch_rows((const elem *)a->residual + pixel * a->residual_pitch + channel,
                   a->residual_pitch, mr);
    EK_UNROLL
    for (int j = 0; j < nv; j++) {
        vf b = BIAS_LAST ? vf_splat(0) : vf_load((const elem *)a->bias + channel + j * EK_VL);
        EK_UNROLL
        for (int i = 0; i < mr; i++)
            acc[i][j] = b;
    }
#ifdef K_BLOCK
    const long left = a->win.oc - channel - (nv - 1) * EK_VL;
    const int full = EK_VL == 1 || left >= EK_VL;
    if (a->from && full)
        partial_sums(mr, nv, 1, 0, a, acc, pixel, channel, left);
    else if (a->from)
        partial_sums(mr, nv, 0, 0, a, acc, pixel, channel, left);
#endif
#ifdef READ_AHEAD
    const long step = F32_BYTES_AHEAD(rows->length);
    const long later = rows->ahead + channel / (NV * EK_VL) * rows->count * step;
    const int reads = mr == MR && nv == NV && later < a->ahead_bytes;
#endif
#ifdef LONG_SUMS
#ifdef READ_AHEAD
    long_sums(mr, nv, rows, OWN(a, channel), w, reads ? (const char *)a->ahead + later : NULL, acc);
#else
    long_sums(mr, nv, rows, OWN(a, channel), w, NULL, acc);
#endif
#else
    for (long s = 0; s < rows->count; s++) {
        const elem *x[MR];
        EK_UNROLL
        for (int i = 0; i < mr; i++)
            x[i] = rows->ptr[s * MR + i] + OWN(a, channel);
        f32_columns columns = {.at = w, .row = nv * EK_VL, .left = EK_VL};
#ifdef READ_AHEAD
        columns.ahead = reads ? (const char *)a->ahead + later + s * step : NULL;
#endif
#ifdef NARROW
        columns.source = source;
        columns.stored = from;
        columns.scales = narrow_scales(a->scales, channel);
        if (source != F32_WIDE)
            from += nv * EK_VL * rows->length;
#endif
        w = f32_rows(mr, nv, 0, acc, x, columns, rows->length);
    }
#endif
    (void)source, (void)from;
#ifdef K_BLOCK
    if (a->from + a->depth < a->win.c) {
        if (full)
            partial_sums(mr, nv, 1, 1, a, acc, pixel, channel, left);
        else
            partial_sums(mr, nv, 0, 1, a, acc, pixel, channel, left);
        return;
    }
#endif
    const elem *residual = a->residual;
    finish(mr, nv, a, acc, (elem *)a->y + pixel * a->pitch + channel, a->pitch,
           residual ? residual + pixel * a->residual_pitch + channel : NULL, channel);
}

#ifdef NARROW_IN_REGISTERS
EK_INLINE void tile(const int mr, const int nv, const ek_f32_conv_args *a, const rows_t *rows,
                    const weight *w, long pixel, long channel) {
    tile_of(mr, nv, F32_STORED, a, rows, (const elem *)a->bias, w, pixel, channel);
}
#else
EK_INLINE void tile(const int mr, const int nv, const ek_f32_conv_args *a, const rows_t *rows,
                    const weight *w, long pixel, long channel) {
    tile_of(mr, nv, 0, a, rows, w, NULL, pixel, channel);
}
#endif

/* Windows too large for scratch, dilated, or of pixels apart: one pointer per tap; padding reads
 * `zeros`. */
static void find_taps(const ek_f32_conv_args *a, rows_t *rows, long pixel, int count) {
    const ek_window *g = &a->win;
    rows->count = (long)g->kh * g->kw;
    rows->length = g->c;
    const long line = g->w * a->x_pitch;
    for (int i = 0; i < count; i++) {
        int p = (int)pixel + i, ix = p % g->ow * g->sw - g->left;
        int iy = p / g->ow % g->oh * g->sh - g->top;
        const elem *image = (const elem *)a->x + (long)(p / g->ow / g->oh) * g->h * line;
        for (int ky = 0; ky < g->kh; ky++)
            for (int kx = 0; kx < g->kw; kx++) {
                int yy = iy + ky * g->dh, xx = ix + kx * g->dw;
                int inside = yy >= 0 && yy < g->h && xx >= 0 && xx < g->w;
                rows->ptr[(ky * g->kw + kx) * MR + i] =
                    inside ? image + yy * line + xx * a->x_pitch : a->zeros;
            }
    }
}

/* Pointers to the windows of pixels [pixel, pixel + count); scratch holds border rows. */
static void find_rows(const ek_f32_conv_args *a, rows_t *rows, elem *scratch, long pixel,
                      int count) {
    if (a->pointwise) {
        rows->count = 1;
        rows->length = CHANNELS(a);
        const elem *at = (const elem *)a->x + pixel * a->x_pitch;
        EK_UNROLL
        for (int i = 0; i < MR; i++, at += a->x_pitch)
            rows->ptr[i] = at;
    } else if (a->row_segments) {
        find_segments(&a->win, a->x, rows, scratch, pixel, count, (long)a->win.kw * a->win.c, 0);
    } else {
        find_taps(a, rows, pixel, count);
    }
}

#if defined NARROW && !defined NARROW_IN_REGISTERS
#define UNPACKED (EK_F32_UNPACKED_BYTES / sizeof(weight))
static const stored *panel_at(const ek_f32_conv_args *a, long panel) {
    return (const stored *)a->weights + panel * NV * EK_VL * DEPTH(a);
}

static void unpack_panel(const ek_f32_conv_args *a, long panel, weight *to) {
    const long channel = panel * NV * EK_VL, left = (a->win.oc - channel + EK_VL - 1) / EK_VL;
    const float *scales = narrow_scales(a->scales, channel);
    if (left >= NV)
        narrow_widen(NV, panel_at(a, panel), DEPTH(a), scales, to);
    else
        narrow_widen((int)left, panel_at(a, panel), DEPTH(a), scales, to);
}

EK_INLINE void tile_unpacking(const ek_f32_conv_args *a, const rows_t *rows, weight *to, long pixel,
                              long panel) {
    tile_of(MR, NV, F32_KEPT, a, rows, to, panel_at(a, panel), pixel, panel * NV * EK_VL);
}
/* Out-of-order cores overlap widening with the last tile anyway. */
#define UNPACKS_BY_TILE (EK_IN_ORDER && NARROW == 16)
#endif
#include "panels.h"

#ifdef K_BLOCK
/* Runs the tasks of one panel, or of all panels with the pixel or block loop outermost, one block
 * of k after another. A block's weights stay in L1 from tile to tile; with the block loop
 * outermost, its part of x also stays in a cache from panel to panel. */
void NAME(const void *args, long begin, long end) {
    const ek_f32_conv_args *a = args;
    const long tiles = ((long)a->win.n * a->win.oh * a->win.ow + MR - 1) / MR;
    const long k = a->win.c, width = (a->win.oc + EK_VL - 1) / EK_VL * EK_VL;
    for (long t = begin, until; t < end; t = until) {
        until = a->panel_outer && !a->block_outer ? ek_min(end, (t / tiles + 1) * tiles) : end;
        ek_f32_conv_args block = *a;
        for (block.from = 0; block.from < k; block.from += K_BLOCK) {
            block.depth = ek_min(K_BLOCK, k - block.from);
            block.x = (const elem *)a->x + block.from;
            block.weights = (const stored *)a->weights + block.from * width;
            walk(&block, t, until);
        }
    }
}
#endif
