/* The register tiles of f32 products that are NV vectors wide, for 1 .. MR rows.
 *
 * Compile-time parameters: NAME (of the table), MR, NV, EK_SIMD. */
#include "codes.h"
#include "f32_tile.h"

_Static_assert(MR <= EK_GEMM_MAX_MR && NV <= EK_GEMM_MAX_NV, "the tables hold no larger tile");

/* One vector of C at column j of the tile: all of it, or what is left of the last. */
EK_INLINE vf part_load(const int last, const float *p, long left) {
    return last && left < EK_VL ? vf_load_n(p, left) : vf_load(p);
}

EK_INLINE void finish(const int mr, const ek_gemm_epilogue *e, vf acc[MR][NV], long row,
                      long column, long left) {
    const float *bias = e->bias;
    if (bias) {
        EK_UNROLL
        for (int j = 0; j < NV; j++) {
            vf along_n =
                e->per_row ? vf_splat(0) : part_load(j == NV - 1, bias + column + j * EK_VL, left);
            EK_UNROLL
            for (int i = 0; i < mr; i++)
                acc[i][j] += e->per_row ? vf_splat(bias[row + i]) : along_n;
        }
    }
    vf low = vf_splat(e->low_f32), high = vf_splat(e->high_f32);
    EK_UNROLL
    for (int i = 0; i < mr; i++) {
        EK_UNROLL
        for (int j = 0; j < NV; j++)
            acc[i][j] = vf_min(vf_max(acc[i][j], low), high);
    }
}

EK_INLINE void tile(const int mr, const int form, const ek_gemm_job *job, const float *a,
                    const float *b, float *c, long row, long column) {
    const int masked = form & EK_GEMM_MASKED;
    const f32_columns columns = {b, job->b_row, job->left};
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
    } else {
        f32_panel(mr, NV, masked, acc, a, job->a_col, columns, job->k);
    }
    const long left = job->left;
    if (job->load) {
        EK_UNROLL
        for (int i = 0; i < mr * NV; i++)
            acc[i / NV][i % NV] +=
                part_load(i % NV == NV - 1, c + i / NV * job->c_row + i % NV * EK_VL, left);
    }
    if (job->finish)
        finish(mr, job->epilogue, acc, row, column, left);
    EK_UNROLL
    for (int i = 0; i < mr; i++, c += job->c_row) {
        EK_UNROLL
        for (int j = 0; j < NV; j++) {
            if (j < NV - 1 || left == EK_VL)
                vf_store(c + j * EK_VL, acc[i][j]);
            else
                vf_store_n(c + j * EK_VL, acc[i][j], left);
        }
    }
}

#define CODE(name, mr, form)                                                                       \
    static void name(const ek_gemm_job *job, const void *a, const void *b, void *c, long row,      \
                     long column) {                                                                \
        tile(mr, form, job, a, b, c, row, column);                                                 \
    }
#ifdef EK_OWN_PARTIAL
#define CODES(mr)                                                                                  \
    CODE(panel_##mr, mr, EK_GEMM_PANEL)                                                            \
    CODE(rows_##mr, mr, EK_GEMM_ROWS)                                                              \
    CODE(panel_masked_##mr, mr, EK_GEMM_PANEL | EK_GEMM_MASKED)                                    \
    CODE(rows_masked_##mr, mr, EK_GEMM_ROWS | EK_GEMM_MASKED)
#else
#define CODES(mr)                                                                                  \
    CODE(panel_##mr, mr, EK_GEMM_PANEL)                                                            \
    CODE(rows_##mr, mr, EK_GEMM_ROWS)
#endif
EK_GEMM_UP_TO(MR, CODES)

#define ENTRY_panel(mr) [mr] = panel_##mr,
#define ENTRY_rows(mr) [mr] = rows_##mr,
#define ENTRY_panel_masked(mr) [mr] = panel_masked_##mr,
#define ENTRY_rows_masked(mr) [mr] = rows_masked_##mr,
const ek_gemm_column NAME = {
    MR,
    NV,
    {
        [EK_GEMM_PANEL] = {EK_GEMM_UP_TO(MR, ENTRY_panel)},
        [EK_GEMM_ROWS] = {EK_GEMM_UP_TO(MR, ENTRY_rows)},
#ifdef EK_OWN_PARTIAL
        [EK_GEMM_PANEL | EK_GEMM_MASKED] = {EK_GEMM_UP_TO(MR, ENTRY_panel_masked)},
        [EK_GEMM_ROWS | EK_GEMM_MASKED] = {EK_GEMM_UP_TO(MR, ENTRY_rows_masked)},
#endif
    },
};
