/* Products of two computed matrices; b is read in place.
 *
 * Compile-time parameters: NAME, EK_SIMD, MR (rows per task), and for f32 NV (vectors of columns);
 * OP_INTEGER: integers of TU's width, sums modulo 2^width; OP_S8, OP_S16: quantized values. */
#include "matmul.h"

#ifdef OP_INTEGER
typedef TU elem;

static void rows(const ek_matmul_args *g, const elem *a, const elem *b, elem *y, long m) {
    for (long i = 0; i < m; i++) {
        elem *restrict to = y + i * g->n;
        for (long j = 0; j < g->n; j++)
            to[j] = 0;
        for (long p = 0; p < g->k; p++) {
            const elem x = a[i * g->k + p], *restrict row = b + p * g->n;
            for (long j = 0; j < g->n; j++)
                to[j] += 1U * x * row[j]; /* unsigned, because 16 bits x 16 bits may overflow int */
        }
    }
}
#elif defined OP_S8 || defined OP_S16
#define COLUMNS 64 /* columns accumulated at once: a multiple of EK_VL */

#ifdef OP_S16
typedef int16_t elem;

static void some(const ek_matmul_args *g, const elem *a, const elem *b, elem *y, long n) {
    int64_t acc[COLUMNS] = {0};
    for (long p = 0; p < g->k; p++) {
        const int64_t x = a[p] - g->a_zero;
        const elem *restrict row = b + p * g->n;
        for (long j = 0; j < n; j++)
            acc[j] += x * (row[j] - g->b_zero);
    }
    const uint64_t half = 1ULL << (g->right - 1);
    for (long j = 0; j < n; j++) {
        const uint64_t scaled = (uint64_t)acc[j] * (uint64_t)g->multiplier + half;
        const int64_t v = ((int64_t)scaled >> g->right) + g->y_zero;
        y[j] = (elem)(v < INT16_MIN ? INT16_MIN : v > INT16_MAX ? INT16_MAX : v);
    }
}
#else
typedef int8_t elem;

static void some(const ek_matmul_args *g, const elem *a, const elem *b, elem *y, long n) {
    int32_t acc[COLUMNS] = {0};
    for (long p = 0; p < g->k; p++) {
        const int32_t x = a[p] - g->a_zero;
        const elem *restrict row = b + p * g->n;
        for (long j = 0; j < n; j++)
            acc[j] += x * (row[j] - g->b_zero);
    }
    const vi_factor f = {vi_splat(g->multiplier), vi_splat(g->left), vi_splat(g->right)};
    for (long j = 0; j < n; j += EK_VL) {
        vi v = vi_requantize(vi_load(acc + j), f) + vi_splat(g->y_zero);
        vi_store(acc + j, vi_max(vi_min(v, vi_splat(127)), vi_splat(-128)));
    }
    for (long j = 0; j < n; j++)
        y[j] = (elem)acc[j];
}
#endif

static void rows(const ek_matmul_args *g, const elem *a, const elem *b, elem *y, long m) {
    for (long i = 0; i < m; i++) {
        long j = 0;
        for (; j + COLUMNS <= g->n; j += COLUMNS)
            some(g, a + i * g->k, b + j, y + i * g->n + j, COLUMNS);
        if (j < g->n)
            some(g, a + i * g->k, b + j, y + i * g->n + j, g->n - j);
    }
}
#else
#include "../gemm/f32_tile.h"
typedef float elem;

/* mr rows x nv vectors of columns; the last vector has `left` columns. */
EK_INLINE void tile(const int mr, const int nv, const int masked, const ek_matmul_args *g,
                    const float *a, const float *b, float *y, long left) {
    vf acc[MR][NV] = {0};
    const float *x[MR];
    EK_UNROLL
    for (int i = 0; i < mr; i++)
        x[i] = a + i * g->k;
    f32_rows(mr, nv, masked, acc, x, (f32_columns){b, g->n, left}, g->k);
    EK_UNROLL
    for (int i = 0; i < mr; i++) {
        EK_UNROLL
        for (int j = 0; j < nv; j++) {
            float *to = y + i * g->n + j * EK_VL;
            if (masked && j == nv - 1)
                vf_store_n(to, acc[i][j], left);
            else
                vf_store(to, acc[i][j]);
        }
    }
}

EK_INLINE void columns(const int mr, const ek_matmul_args *g, const float *a, const float *b,
                       float *y) {
    long j = 0;
    for (; j + NV * EK_VL <= g->n; j += NV * EK_VL)
        tile(mr, NV, 0, g, a, b + j, y + j, EK_VL);
    for (; j + EK_VL <= g->n; j += EK_VL)
        tile(mr, 1, 0, g, a, b + j, y + j, EK_VL);
    if (j < g->n)
        tile(mr, 1, 1, g, a, b + j, y + j, g->n - j);
}

static void rows(const ek_matmul_args *g, const elem *a, const elem *b, elem *y, long m) {
    if (m == MR) {
        columns(MR, g, a, b, y);
        return;
    }
    for (long i = 0; i < m; i++)
        columns(1, g, a + i * g->k, b, y + i * g->n);
}
#endif

/* Task: a matrix x a block of MR rows. */
void NAME(const void *args, long begin, long end) {
    const ek_matmul_args *g = args;
    for (long t = begin; t < end; t++) {
        long stack = t / g->blocks, from = t % g->blocks * MR, at = stack, a_at = 0, b_at = 0;
        for (int d = EK_MATMUL_DIMS - 1; d >= 0; d--) {
            a_at += at % g->dim[d] * g->a_stride[d];
            b_at += at % g->dim[d] * g->b_stride[d];
            at /= g->dim[d];
        }
        rows(g, (const elem *)g->a + a_at + from * g->k, (const elem *)g->b + b_at,
             (elem *)g->y + (stack * g->m + from) * g->n, ek_min(MR, g->m - from));
    }
}
