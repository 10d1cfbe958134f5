/* Register tiles of f32 products, NV vectors wide, for 1 .. MR rows.
 *
 * Compile-time parameters: NAME (of the table), MR, NV, EK_SIMD. */
#include "microkernels.h"
#include "f32_tile.h"

_Static_assert(MR <= EK_GEMM_MAX_MR && NV <= EK_GEMM_MAX_NV, "the tables hold no larger tile");
_Static_assert(MR *NV *EK_VL <= EK_GEMM_MAX_TILE, "the framework copies no larger tile");

/* On AVX-512 masked stores of C are free, and on AMD cores so are masked loads of B: there the
 * masked kernels serve all cases, which halves the library. On Intel cores with AMX, a masked load
 * takes two operations, one of which occupies a multiply-add port. */
#ifdef __AVX512F__
#define MASKED_C 1
#else
#define MASKED_C 0
#endif
#if MASKED_C && !defined __AMX_TILE__
#define MASKED_B 1
#else
#define MASKED_B 0
#endif

/* The last vector of C or of the bias, of which `left` columns exist. Without masked accesses the
 * framework provides a full vector of C, and only the bias needs care. */
#ifdef EK_OWN_PARTIAL
EK_INLINE vf load_last(const float *p, long left) {
    return MASKED_C || left < EK_VL ? vf_load_n(p, left) : vf_load(p);
}
EK_INLINE void store_last(float *p, vf v, long left) {
    if (MASKED_C || left < EK_VL)
        vf_store_n(p, v, left);
    else
        vf_store(p, v);
}
EK_INLINE vf load_bias(const float *p, long left) {
    return load_last(p, left);
}
#else
EK_INLINE vf load_last(const float *p, long left) {
    (void)left;
    return vf_load(p);
}
EK_INLINE void store_last(float *p, vf v, long left) {
    (void)left;
    vf_store(p, v);
}
EK_INLINE vf load_bias(const float *p, long left) {
    float padded[EK_VL];
    for (long l = 0; l < EK_VL; l++)
        padded[l] = p[ek_min(l, left - 1)];
    return vf_load(padded);
}
#endif

EK_INLINE void finish(const int mr, const ek_gemm_epilogue *e, vf acc[MR][NV], long row,
                      long column, long left) {
    const float *bias = e->bias;
    if (bias && e->per_row) {
        EK_UNROLL
        for (int i = 0; i < mr; i++) {
            const vf of_row = vf_splat(bias[row + i]);
            EK_UNROLL
            for (int j = 0; j < NV; j++)
                acc[i][j] += of_row;
        }
    } else if (bias) {
        EK_UNROLL
        for (int j = 0; j < NV; j++) {
            const float *at = bias + column + j * EK_VL;
            const vf along_n = j < NV - 1 ? vf_load(at) : load_bias(at, left);
            EK_UNROLL
            for (int i = 0; i < mr; i++)
                acc[i][j] += along_n;
        }
    }
    if (e->low_f32 == -INFINITY && e->high_f32 == INFINITY)
        return; /* no clamp: it could turn NaN into a number */
    vf low = vf_splat(e->low_f32), high = vf_splat(e->high_f32);
    EK_UNROLL
    for (int i = 0; i < mr; i++) {
        EK_UNROLL
        for (int j = 0; j < NV; j++)
            acc[i][j] = vf_clamp(acc[i][j], low, high);
    }
}

/* Depth at which the products hide the latency of fetching C. Not on cores that prefetch B, where
 * it was slower: that many lines at once delay loads, and nothing waits for stores. */
#define PREFETCH_K 128

/* The last vector of C holds a single column. */
EK_INLINE void narrow_panel(const int mr, const ek_gemm_job *job, vf acc[MR][NV], const float *a,
                            f32_columns columns) {
    float last[EK_VL];
    vf sums[MR][NV];
    EK_UNROLL
    for (int i = 0; i < mr * NV; i++)
        sums[i / NV][i % NV] = (vf){0};
    vf_store(last, f32_panel_narrow(mr, NV - 1, sums, a, job->a_col, columns, job->k));
    EK_UNROLL
    for (int i = 0; i < mr; i++) {
        EK_UNROLL
        for (int j = 0; j < NV - 1; j++)
            acc[i][j] = sums[i][j];
        acc[i][NV - 1] = vf_splat(last[i]);
    }
}

EK_INLINE void tile(const int mr, const int form, const ek_gemm_job *job, const float *a,
                    const float *b, float *c, long row, long column) {
    const int masked = form & EK_GEMM_MASKED;
    if (!F32_PREFETCHES && (job->k >= PREFETCH_K || job->c_row >= EK_GEMM_FAR_ROWS))
        ek_gemm_prefetch_c(mr, NV * EK_VL, c, job->c_row);
    f32_columns columns = {b, job->b_row, job->left, NULL, 0, 0};
#if F32_PREFETCHES
    columns.prefetch = (const float *)job->prefetch, columns.prefetch_all = job->prefetch_all;
    columns.prefetch_row = job->prefetch_row;
#endif
    vf acc[MR][NV];
    EK_UNROLL
    for (int i = 0; i < mr * NV; i++)
        acc[i / NV][i % NV] = (vf){0};
    if (form & EK_GEMM_ROWS) {
        const float *rows[MR];
        EK_UNROLL
        for (int i = 0; i < mr; i++)
            rows[i] = a + i * job->a_row;
        f32_rows(mr, NV, masked, acc, rows, columns, job->k);
    } else if (NV > 1 && F32_NARROW(mr, NV - 1) && job->left == 1) {
        narrow_panel(mr, job, acc, a, columns);
    } else {
        f32_panel(mr, NV, masked, acc, a, job->a_col, columns, job->k);
    }
    const long left = job->left;
    if (job->load) {
        EK_UNROLL
        for (int i = 0; i < mr * NV; i++) {
            const float *at = c + i / NV * job->c_row + i % NV * EK_VL;
            acc[i / NV][i % NV] += i % NV < NV - 1 ? vf_load(at) : load_last(at, left);
        }
    }
    if (job->finish)
        finish(mr, job->epilogue, acc, row, column, left);
    EK_UNROLL
    for (int i = 0; i < mr; i++, c += job->c_row) {
        EK_UNROLL
        for (int j = 0; j < NV - 1; j++)
            vf_store(c + j * EK_VL, acc[i][j]);
        store_last(c + (NV - 1) * EK_VL, acc[i][NV - 1], left);
    }
}

#include "x86/f32_small_k.h"

#define CODE(name, mr, form)                                                                       \
    static void name(const ek_gemm_job *job, const void *a, const void *b, void *c, long row,      \
                     long column) {                                                                \
        tile(mr, form, job, a, b, c, row, column);                                                 \
    }
#define PANEL_CODE(mr) CODE(panel_##mr, mr, EK_GEMM_PANEL)
#define ROWS_CODE(mr) CODE(rows_##mr, mr, EK_GEMM_ROWS)
#define MASKED_PANEL_CODE(mr) CODE(masked_panel_##mr, mr, EK_GEMM_PANEL | EK_GEMM_MASKED)
#define MASKED_ROWS_CODE(mr) CODE(masked_rows_##mr, mr, EK_GEMM_ROWS | EK_GEMM_MASKED)
#define PANEL(mr) [mr] = panel_##mr,
#define ROWS(mr) [mr] = F32_ROWS_FIT(mr, NV) ? rows_##mr : NULL,
#define MASKED_PANEL(mr) [mr] = masked_panel_##mr,
#define MASKED_ROWS(mr) [mr] = masked_rows_##mr,

#if !MASKED_B
EK_GEMM_UP_TO(MR, PANEL_CODE)
EK_GEMM_UP_TO(MR, ROWS_CODE)
#endif
#ifdef EK_OWN_PARTIAL
EK_GEMM_UP_TO(MR, MASKED_PANEL_CODE)
EK_GEMM_UP_TO(MR, MASKED_ROWS_CODE)
#endif

const ek_gemm_column NAME = {
    MR,
    NV,
    {
#if MASKED_B
        [EK_GEMM_PANEL] = {EK_GEMM_UP_TO(MR, MASKED_PANEL)},
        [EK_GEMM_ROWS] = {EK_GEMM_UP_TO(MR, MASKED_ROWS)},
#else
        [EK_GEMM_PANEL] = {EK_GEMM_UP_TO(MR, PANEL)},
        [EK_GEMM_ROWS] = {EK_GEMM_UP_TO(MR, ROWS)},
#endif
#ifdef EK_OWN_PARTIAL
        [EK_GEMM_PANEL | EK_GEMM_MASKED] = {EK_GEMM_UP_TO(MR, MASKED_PANEL)},
        [EK_GEMM_ROWS | EK_GEMM_MASKED] = {EK_GEMM_UP_TO(MR, MASKED_ROWS)},
#endif
    },
#if SMALL_K_MAX
    {EK_GEMM_UP_TO(SMALL_K_MAX, SMALL_K)},
#endif
};
