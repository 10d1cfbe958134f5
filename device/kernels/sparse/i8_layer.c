/* Pruned 8-bit layers. Compile-time parameters: NAME, EK_SIMD, ROWS (outputs per strip, 8), WINDOW
 * (inputs per group, 64), SLOTS (per group: 4 or 8), TX (int8_t or uint8_t, of x and y), COPIED (1:
 * windows of an image are copied, row by row), and optionally ROUND_ONCE (fully connected layers).
 *
 * Inputs are selected from registers by byte table lookups, so a weight costs one byte for its
 * column and no load of x. Tasks are points x pieces of the strips; a strip of weights stays in L1
 * for all points of a task. */
#include "i8_layer.h"

#define SIZE (SLOTS * ROWS)
#define BY_FOUR EK_I8_SIGNED_DOTS /* four slots of a row are adjacent */
#define LANES (EK_VL > ROWS ? EK_VL : ROWS)
#define FLIP ((TX) - 1 > 0 ? 0x80 : 0) /* u8 is processed as x - 128 */

typedef ek_sparse_i8_args layer;

#ifdef __ARM_NEON
typedef struct {
    int32x4_t of[2];
} row_sums;

#ifdef __aarch64__
typedef int8x16x4_t window_of_x;
EK_INLINE window_of_x window_at(const int8_t *x) {
    window_of_x w;
    EK_UNROLL for (int i = 0; i < 4; i++) {
        w.val[i] = vld1q_s8(x + 16 * i);
        if (FLIP)
            w.val[i] = veorq_s8(w.val[i], vdupq_n_s8((int8_t)FLIP));
    }
    return w;
}
EK_INLINE int8x16_t picked(const window_of_x *w, const int8_t *columns) {
    return vqtbl4q_s8(*w, vld1q_u8((const uint8_t *)columns));
}
#else
typedef struct {
    int8x8x4_t half[2];
} window_of_x;
EK_INLINE window_of_x window_at(const int8_t *x) {
    window_of_x w;
    EK_UNROLL for (int i = 0; i < 8; i++) {
        w.half[i / 4].val[i % 4] = vld1_s8(x + 8 * i);
        if (FLIP)
            w.half[i / 4].val[i % 4] = veor_s8(w.half[i / 4].val[i % 4], vdup_n_s8((int8_t)FLIP));
    }
    return w;
}
EK_INLINE int8x8_t picked_eight(const window_of_x *w, const int8_t *columns) {
    const int8x8_t column = vld1_s8(columns);
    return vtbx4_s8(vtbl4_s8(w->half[0], column), w->half[1], vsub_s8(column, vdup_n_s8(32)));
}
EK_INLINE int8x16_t picked(const window_of_x *w, const int8_t *columns) {
    return vcombine_s8(picked_eight(w, columns), picked_eight(w, columns + 8));
}
#endif

/* Sixteen products of two slots or, with BY_FOUR, of four. */
EK_INLINE void add_products(row_sums *sums, int8x16_t a, int8x16_t w, int half) {
#if BY_FOUR
    sums->of[half] = vdotq_s32(sums->of[half], w, a);
#else
    (void)half;
    /* 16 bits hold the sum of two products because no weight is -128. */
    int16x8_t pairs = vmull_s8(vget_low_s8(a), vget_low_s8(w));
    pairs = vmlal_s8(pairs, vget_high_s8(a), vget_high_s8(w));
    sums->of[0] = vaddw_s16(sums->of[0], vget_low_s16(pairs));
    sums->of[1] = vaddw_s16(sums->of[1], vget_high_s16(pairs));
#endif
}

EK_INLINE void add_group(row_sums *sums, const int8_t *x, const int8_t *group) {
    const window_of_x window = window_at(x);
    EK_UNROLL for (int i = 0; i < SIZE / 16; i++) {
        const int8x16_t a = picked(&window, group + 16 * i);
        add_products(sums, a, vld1q_s8(group + SIZE + 16 * i), i % 2);
    }
}

EK_INLINE row_sums begin_sums(const int32_t *bias) {
    return (row_sums){{vld1q_s32(bias), vld1q_s32(bias + 4)}};
}

EK_INLINE void store_sums(const row_sums *sums, int32_t *to) {
    vst1q_s32(to, sums->of[0]);
    vst1q_s32(to + 4, sums->of[1]);
}
#elif defined __riscv_vector
/* Gathers the inputs of four slots at a time by an indexed load. */
#include <riscv_vector.h>
#define GROUP_BYTES (4 * ROWS)
#if __riscv_v_min_vlen >= 256
typedef vint8m1_t group_bytes;
typedef vint16m2_t group_products;
typedef vint32m4_t row_sums; /* four per row */
#define LOAD_BYTES __riscv_vle8_v_i8m1
#define LOAD_COLUMNS __riscv_vle8_v_u8m1
#define SPLAT __riscv_vmv_v_x_i32m4
#define LOAD_OVER __riscv_vle32_v_i32m4_tu
#else
typedef vint8m2_t group_bytes;
typedef vint16m4_t group_products;
typedef vint32m8_t row_sums;
#define LOAD_BYTES __riscv_vle8_v_i8m2
#define LOAD_COLUMNS __riscv_vle8_v_u8m2
#define SPLAT __riscv_vmv_v_x_i32m8
#define LOAD_OVER __riscv_vle32_v_i32m8_tu
#endif

EK_INLINE group_bytes picked(const int8_t *x, const int8_t *columns) {
    const group_bytes a =
        __riscv_vluxei8(x, LOAD_COLUMNS((const uint8_t *)columns, GROUP_BYTES), GROUP_BYTES);
    return FLIP ? __riscv_vxor(a, (int8_t)FLIP, GROUP_BYTES) : a;
}

EK_INLINE void add_group(row_sums *sums, const int8_t *x, const int8_t *group) {
    group_products products =
        __riscv_vwmul(picked(x, group), LOAD_BYTES(group + SIZE, GROUP_BYTES), GROUP_BYTES);
    /* 16 bits hold the sum of two products because no weight is -128. */
    if (SLOTS == 8) {
        const group_bytes w = LOAD_BYTES(group + SIZE + GROUP_BYTES, GROUP_BYTES);
        products = __riscv_vwmacc(products, picked(x, group + GROUP_BYTES), w, GROUP_BYTES);
    }
    *sums = __riscv_vwadd_wv(*sums, products, GROUP_BYTES);
}

EK_INLINE row_sums begin_sums(const int32_t *bias) {
    return LOAD_OVER(SPLAT(0, GROUP_BYTES), bias, ROWS);
}

EK_INLINE void store_sums(const row_sums *sums, int32_t *to) {
    uint32_t four[GROUP_BYTES];
    __riscv_vse32((int32_t *)four, *sums, GROUP_BYTES);
    for (int r = 0; r < ROWS; r++)
        to[r] = (int32_t)(four[r] + four[r + ROWS] + four[r + 2 * ROWS] + four[r + 3 * ROWS]);
}
#else
typedef struct {
    uint32_t of[ROWS]; /* unsigned: wraps around */
} row_sums;

EK_INLINE void add_group(row_sums *sums, const int8_t *x, const int8_t *group) {
    for (int i = 0; i < SIZE; i++) {
        const int row = BY_FOUR ? i / 4 % ROWS : i % ROWS;
        const int8_t value = (int8_t)(x[(uint8_t)group[i]] ^ FLIP);
        sums->of[row] += (uint32_t)(value * group[SIZE + i]);
    }
}

EK_INLINE row_sums begin_sums(const int32_t *bias) {
    row_sums sums;
    memcpy(&sums, bias, sizeof sums);
    return sums;
}

EK_INLINE void store_sums(const row_sums *sums, int32_t *to) {
    memcpy(to, sums, sizeof *sums);
}
#endif

/* Outputs of one strip at one point; at least a full window of columns is readable at `x`. */
EK_INLINE void one_strip(const layer *l, long strip, const int8_t *x, TX *y) {
    row_sums sums = begin_sums(l->bias + strip * ROWS);
    for (long g = l->first[strip], end = l->first[strip + 1]; g < end; g++)
        add_group(&sums, x + l->base[g], l->groups + g * 2 * SIZE);
    int32_t values[LANES] = {0};
    store_sums(&sums, values);
    EK_UNROLL for (int r = 0; r < ROWS; r += EK_VL) {
        const long at = strip * ROWS + r;
#ifdef ROUND_ONCE
        const vi right = vi_load(l->right + at);
        const vi v = vi_requantize_once(vi_load(values + r), vi_load(l->multiplier + at), right);
#else
        const vi_factor factor = vi_factor_at(l->multiplier, l->left, l->right, at);
        const vi v = vi_requantize(vi_load(values + r), factor);
#endif
        vi_store(values + r, vi_min(vi_max(v + l->y_zero, vi_splat(l->low)), vi_splat(l->high)));
    }
    const uint32_t *order = l->order + strip * ROWS;
    const long count = ek_min(ROWS, l->rows - strip * ROWS);
    for (long r = 0; r < count; r++)
        y[order[r]] = (TX)values[r];
}

#if COPIED
typedef struct {
    _Alignas(64) int8_t windows[EK_SPARSE_I8_COPIES];
    long first; /* point of the first window; -1: none is copied */
} copies;

/* `taps` adjacent pixels of a line from column ix on; those outside of it are padding. */
EK_INLINE int8_t *copy_taps(const layer *l, const int8_t *line, long ix, long taps, int8_t *to) {
    const long size = l->win.c, width = line ? l->win.w : 0;
    const long begin = ek_min(ek_max(-ix, 0), taps), end = ek_min(ek_max(width - ix, begin), taps);
    memset(to, l->x_zero, (size_t)(begin * size));
    if (end > begin)
        memcpy(to + begin * size, line + (ix + begin) * size, (size_t)((end - begin) * size));
    memset(to + end * size, l->x_zero, (size_t)((taps - end) * size));
    return to + taps * size;
}

static void copy_windows(const layer *l, long point, long end, int8_t *to) {
    const ek_window *g = &l->win;
    const long taps = g->dw == 1 ? g->kw : 1, line = (long)g->w * g->c;
    for (; point < end; point++) {
        const long row = point / g->ow, ox = point - row * g->ow;
        const long image = row / g->oh, oy = row - image * g->oh;
        for (long ky = 0; ky < g->kh; ky++) {
            const long iy = oy * g->sh + ky * g->dh - g->top;
            const int8_t *x = (const int8_t *)l->x + (image * g->h + iy) * line;
            for (long kx = 0; kx < g->kw; kx += taps)
                to = copy_taps(l, iy >= 0 && iy < g->h ? x : NULL,
                               ox * g->sw + kx * g->dw - g->left, taps, to);
        }
    }
}

EK_INLINE const int8_t *rows_of(const layer *l, long point, long end, copies *made) {
    if (made->first != point)
        copy_windows(l, point, end, made->windows);
    made->first = point;
    return made->windows;
}
#else
typedef struct {
    long first;
} copies;

EK_INLINE const int8_t *rows_of(const layer *l, long point, long end, copies *made) {
    (void)end, (void)made;
    return (const int8_t *)l->x + point * l->cols;
}
#endif

void NAME(const void *args, long begin, long end) {
    const layer *l = args;
    copies made;
    made.first = -1;
    for (long t = begin; t < end; t++) {
        const long piece = t % l->pieces, from = t / l->pieces * l->block;
        const long to = ek_min(from + l->block, l->points);
        const int8_t *rows = rows_of(l, from, to, &made);
        for (long s = l->cut[piece]; s < (long)l->cut[piece + 1]; s++)
            for (long p = from; p < to; p++) {
                const int8_t *x = rows + (p - from) * l->cols;
                TX *y = (TX *)l->y + p * l->pitch;
                if (l->cols >= WINDOW) {
                    one_strip(l, s, x, y);
                } else {
                    int8_t wide[WINDOW] = {0};
                    memcpy(wide, x, (size_t)l->cols);
                    one_strip(l, s, wide, y);
                }
            }
    }
}
