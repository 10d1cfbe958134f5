/* Float products with small k, where a panel of B stays in registers: rows of C are computed one
 * after another, without a prologue and epilogue for every few rows. Included by f32_tiles.c;
 * panels have its NV vectors. */
#ifndef EK_GEMM_F32_SMALL_K_H
#define EK_GEMM_F32_SMALL_K_H

/* The largest k: B, a row of sums and a factor must fit the registers. Only x86 has enough and
 * stores partial vectors. */
#if !MASKED_C
#define SMALL_K_MAX 0
#elif 5 * NV + 1 <= F32_REGISTERS
#define SMALL_K_MAX 4
#elif 4 * NV + 1 <= F32_REGISTERS
#define SMALL_K_MAX 3
#else
#define SMALL_K_MAX 2
#endif

#if SMALL_K_MAX
EK_INLINE void small_k_bias(const ek_gemm_epilogue *e, vf sum[NV], long row, long column,
                            long left) {
    const float *bias = e->bias;
    EK_UNROLL
    for (int j = 0; j < NV; j++) {
        const float *at = bias + column + j * EK_VL;
        sum[j] += e->per_row ? vf_splat(bias[row]) : j < NV - 1 ? vf_load(at) : load_bias(at, left);
    }
}

EK_INLINE void small_k(const int k, const int has_bias, const ek_gemm_job *job, const float *a,
                       const float *b, float *c, ek_gemm_rows rows, long column) {
    const ek_gemm_epilogue *e = job->epilogue;
    const long left = job->left;
    const vf low = vf_splat(e->low_f32), high = vf_splat(e->high_f32);
    const int clamps = e->low_f32 != -INFINITY || e->high_f32 != INFINITY;
    vf panel[EK_GEMM_SMALL_K][NV];
    EK_UNROLL
    for (int i = 0; i < k * NV; i++) {
        const float *at = b + i / NV * job->b_row + i % NV * EK_VL;
        panel[i / NV][i % NV] = i % NV < NV - 1 ? vf_load(at) : load_last(at, left);
    }
    for (long i = 0; i < rows.count; i++, a += job->a_row, c += job->c_row) {
        vf sum[NV];
        EK_UNROLL
        for (int p = 0; p < k; p++) {
            const vf x = vf_splat(a[p * job->a_col]);
            EK_UNROLL
            for (int j = 0; j < NV; j++)
                sum[j] = p ? vf_fma(x, panel[p][j], sum[j]) : x * panel[p][j];
        }
        if (has_bias)
            small_k_bias(e, sum, rows.first + i, column, left);
        EK_UNROLL
        for (int j = 0; clamps && j < NV; j++)
            sum[j] = vf_clamp(sum[j], low, high);
        EK_UNROLL
        for (int j = 0; j < NV - 1; j++)
            vf_store(c + j * EK_VL, sum[j]);
        store_last(c + (NV - 1) * EK_VL, sum[NV - 1], left);
    }
}

#define SMALL_K_CODE(k)                                                                            \
    static void small_k_##k(const ek_gemm_job *job, const void *a, const void *b, void *c,         \
                            ek_gemm_rows rows, long column) {                                      \
        if (job->epilogue->bias)                                                                   \
            small_k(k, 1, job, a, b, c, rows, column);                                             \
        else                                                                                       \
            small_k(k, 0, job, a, b, c, rows, column);                                             \
    }
#define SMALL_K(k) [k] = small_k_##k,
EK_GEMM_UP_TO(SMALL_K_MAX, SMALL_K_CODE)
#endif
#endif
