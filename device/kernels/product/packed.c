/* Products of two computed f32 matrices (f16 with EK_HALF): a is read in place; a panel of columns
 * of b is packed for all rows of a task, one block of k at a time.
 *
 * Compile-time parameters: NAME, EK_SIMD, MR (rows per tile), NV (vectors of columns). */
#include "packed.h"
#include "../gemm/f32_tile.h"

_Static_assert(NV <= 4, "panel_rows and pack_panel know panels of up to four vectors");

#define ROWS EK_PACKED_ROWS
#define WIDTH (NV * EK_VL)
/* Block size along k: a panel stays in L1; f16 sums are added up in f32 before they lose more
 * digits. */
#ifdef EK_HALF
#define DEPTH EK_HALF_SUMS
#else
#define DEPTH EK_PACKED_DEPTH
#endif

typedef ek_real elem;
#if EK_VL > 1
typedef float sums_t __attribute__((vector_size(4 * EK_VL))); /* for a vector of elements */
#else
typedef float sums_t;
#endif

/* A block of k for some rows and one panel. */
typedef struct {
    const ek_packed_args *g;
    const elem *a;
    f32_columns b;
    elem *y;
    float *sums; /* sums of previous blocks of k; NULL if there is a single block */
    long k, left;
    int is_first, is_last;
} block_t;

/* Whether vectors that are not full are loaded and stored at once; f32 is as it was on x86. */
#if defined EK_OWN_PARTIAL && defined EK_HALF
#define PARTIAL_AT_ONCE 1
#else
#define PARTIAL_AT_ONCE 0
#endif

/* Stores the first `left` lanes. */
EK_INLINE void store_some(elem *y, vf v, long left) {
#if PARTIAL_AT_ONCE
    vf_store_n(y, v, left);
    return;
#endif
    EK_UNROLL
    for (int l = 0; l < EK_VL - 1; l++)
        if (l < left)
            y[l] = vlane(v, l);
}

EK_INLINE vf with_sums(const block_t *p, vf v, float *sums) {
    sums_t total = vcast(v, sums_t), before;
    if (!p->is_first) {
        memcpy(&before, sums, sizeof before);
        total += before;
    }
    if (!p->is_last)
        memcpy(sums, &total, sizeof total);
    return vcast(total, vf);
}

EK_INLINE void tile(const int mr, const int nv, const block_t *p, long row) {
    const ek_packed_args *g = p->g;
    vf acc[MR][NV] = {0};
    const elem *x[MR];
    EK_UNROLL
    for (int i = 0; i < mr; i++)
        x[i] = p->a + (row + i) * g->a_row;
    f32_rows(mr, nv, 0, acc, x, p->b, p->k);
    if (p->sums) {
        float *sums = p->sums + row * WIDTH;
        EK_UNROLL
        for (int i = 0; i < mr; i++, sums += WIDTH) {
            EK_UNROLL
            for (int j = 0; j < nv; j++)
                acc[i][j] = with_sums(p, acc[i][j], sums + j * EK_VL);
        }
        if (!p->is_last)
            return;
    }
    const vf scale = vf_splat((elem)g->scale);
    elem *y = p->y + row * g->y_row;
    EK_UNROLL
    for (int i = 0; i < mr; i++, y += g->y_row) {
        EK_UNROLL
        for (int j = 0; j < nv; j++) {
            const vf v = acc[i][j] * scale;
            if (j < nv - 1 || p->left == EK_VL)
                vf_store(y + j * EK_VL, v);
            else
                store_some(y + j * EK_VL, v, p->left);
        }
    }
}

/* All rows of a task; the last few in powers of two. */
EK_INLINE void rows(const int nv, const block_t *p, long m) {
    long row = 0;
    for (; row + MR <= m; row += MR)
        tile(MR, nv, p, row);
#if MR > 4
    if (row + 4 <= m) {
        tile(4, nv, p, row);
        row += 4;
    }
#endif
#if MR > 2
    for (; row + 2 <= m; row += 2)
        tile(2, nv, p, row);
#endif
    for (; row < m; row++)
        tile(1, nv, p, row);
}

static void panel_rows(const int nv, const block_t *p, long m) {
    if (nv == NV)
        rows(NV, p, m);
#if NV > 3
    else if (nv == 3)
        rows(3, p, m);
#endif
#if NV > 2
    else if (nv == 2)
        rows(2, p, m);
#endif
#if NV > 1
    else
        rows(1, p, m);
#endif
}

/* Packs adjacent values, zero-padded to full vectors. */
EK_INLINE void pack_row(const int nv, const elem *from, long width, elem *to) {
    if (width == nv * EK_VL) {
        EK_UNROLL
        for (int j = 0; j < nv; j++)
            vf_store(to + j * EK_VL, vf_load(from + j * EK_VL));
        return;
    }
    vf v[NV] = {0};
    long whole = 0;
#ifdef EK_HALF
    EK_UNROLL
    for (; whole < nv - 1; whole++)
        v[whole] = vf_load(from + whole * EK_VL);
#endif
#if PARTIAL_AT_ONCE
    v[nv - 1] = vf_load_n(from + whole * EK_VL, width - whole * EK_VL);
#else
    for (long j = whole * EK_VL; j < width; j++)
        ((elem *)v)[j] = from[j];
#endif
    memcpy(to, v, sizeof(vf) * nv);
}

#define FEW 4
typedef elem few_t __attribute__((vector_size(FEW * sizeof(elem))));

/* Interleaves four columns of b, each contiguous, into four adjacent values per k. */
EK_INLINE void pack_columns4(const elem *const from[FEW], long k, elem *to, const long width) {
    long p = 0;
    for (; p + FEW <= k; p += FEW, to += FEW * width) {
        few_t v[FEW];
        EK_UNROLL
        for (int i = 0; i < FEW; i++)
            memcpy(&v[i], from[i] + p, sizeof v[i]);
        const few_t low = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5);
        const few_t high = __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7);
        const few_t low_2 = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5);
        const few_t high_2 = __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);
        const few_t rows[FEW] = {__builtin_shufflevector(low, low_2, 0, 1, 4, 5),
                                 __builtin_shufflevector(low, low_2, 2, 3, 6, 7),
                                 __builtin_shufflevector(high, high_2, 0, 1, 4, 5),
                                 __builtin_shufflevector(high, high_2, 2, 3, 6, 7)};
        EK_UNROLL
        for (int i = 0; i < FEW; i++)
            memcpy(to + i * width, &rows[i], sizeof rows[i]);
    }
    for (; p < k; p++, to += width)
        for (int i = 0; i < FEW; i++)
            to[i] = from[i][p];
}

/* Packs k rows of nv vectors with `width` valid values. If columns of b are contiguous, the others
 * are not zero, but their sums are never stored. */
EK_INLINE void pack(const int nv, const ek_packed_args *g, const elem *b, long width, long k,
                    elem *to) {
    const long padded = nv * EK_VL;
    if (g->b_column == 1) {
        for (long p = 0; p < k; p++, b += g->b_row, to += padded)
            pack_row(nv, b, width, to);
    } else if (g->b_row == 1 && padded % FEW == 0) {
        for (long j = 0; j < padded; j += FEW) {
            const elem *from[FEW];
            EK_UNROLL
            for (int i = 0; i < FEW; i++)
                from[i] = b + ek_min(j + i, width - 1) * g->b_column;
            pack_columns4(from, k, to + j, padded);
        }
    } else {
        for (long p = 0; p < k; p++, b += g->b_row, to += padded)
            for (long j = 0; j < padded; j++)
                to[j] = j < width ? b[j * g->b_column] : 0;
    }
}

static void pack_panel(const int nv, const ek_packed_args *g, const elem *b, long width, long k,
                       elem *to) {
    if (nv == NV)
        pack(NV, g, b, width, k, to);
#if NV > 3
    else if (nv == 3)
        pack(3, g, b, width, k, to);
#endif
#if NV > 2
    else if (nv == 2)
        pack(2, g, b, width, k, to);
#endif
#if NV > 1
    else
        pack(1, g, b, width, k, to);
#endif
}

/* One panel of one matrix for m rows. */
static void product(const ek_packed_args *g, const elem *a, const elem *b, elem *y, long m,
                    long width) {
    elem packed[DEPTH * WIDTH] __attribute__((aligned(64)));
    float sums[ROWS * WIDTH] __attribute__((aligned(64)));
    const int nv = (int)((width + EK_VL - 1) / EK_VL), here = g->in_place && width == WIDTH;
    block_t p = {g, a, {packed, nv * EK_VL, EK_VL}, y, g->k > DEPTH ? sums : NULL, 0, 0, 1, 0};
    p.left = width - (nv - 1) * EK_VL;
    for (long from = 0; from < g->k; from += DEPTH) {
        const elem *rows_of_b = b + from * g->b_row;
        p.k = ek_min(DEPTH, g->k - from);
        p.is_first = from == 0;
        p.is_last = from + p.k == g->k;
        p.a = a + from;
        if (here)
            p.b.at = rows_of_b, p.b.row = g->b_row;
        else
            pack_panel(nv, g, rows_of_b, width, p.k, packed);
        panel_rows(nv, &p, m);
    }
}

/* Task: a matrix x a band of rows x a panel. */
void NAME(const void *args, long begin, long end) {
    const ek_packed_args *g = args;
    for (long t = begin; t < end; t++) {
        const long band = t / g->panels % g->bands * ROWS, column = t % g->panels * WIDTH;
        long at = t / g->panels / g->bands, a_at = 0, b_at = 0, y_at = 0;
        for (int d = EK_MATMUL_DIMS - 1; d >= 0; d--) {
            const long index = at % g->dim[d];
            a_at += index * g->a_stride[d];
            b_at += index * g->b_stride[d];
            y_at += index * g->y_stride[d];
            at /= g->dim[d];
        }
        product(g, (const elem *)g->a + a_at + band * g->a_row,
                (const elem *)g->b + b_at + column * g->b_column,
                (elem *)g->y + y_at + band * g->y_row + column, ek_min(ROWS, g->m - band),
                ek_min(WIDTH, g->n - column));
    }
}
