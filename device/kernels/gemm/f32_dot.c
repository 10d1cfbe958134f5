/* Two one-row products. A row times columns contiguous along k: dot products, AT columns at a time,
 * so that they share each load of A and accumulate independently. A row times a B with contiguous
 * rows: B streams from memory, AT rows at a time, each read sequentially.
 *
 * Compile-time parameter: EK_SIMD. */
#include "microkernels.h"

#define AT 8

EK_INLINE void dots(const int count, const float *a, const float *b, long b_col, long k,
                    float sums[AT]) {
    const int sets = count == 1 ? 4 : 1;
    vf acc[AT][4] = {0};
    long p = 0;
    for (; p + sets * EK_VL <= k; p += sets * EK_VL) {
        EK_UNROLL
        for (int s = 0; s < sets; s++) {
            vf x = vf_load(a + p + s * EK_VL);
            EK_UNROLL
            for (int j = 0; j < count; j++)
                acc[j][s] = vf_fma(x, vf_load(b + j * b_col + p + s * EK_VL), acc[j][s]);
        }
    }
    for (long left; (left = ek_min(k - p, EK_VL)) > 0; p += left) {
        vf x = left == EK_VL ? vf_load(a + p) : vf_load_n(a + p, left);
        EK_UNROLL
        for (int j = 0; j < count; j++) {
            const float *at = b + j * b_col + p;
            acc[j][0] = vf_fma(x, left == EK_VL ? vf_load(at) : vf_load_n(at, left), acc[j][0]);
        }
    }
    EK_UNROLL
    for (int j = 0; j < count; j++)
        sums[j] = vf_sum((acc[j][0] + acc[j][1]) + (acc[j][2] + acc[j][3]));
}

static void finish(const ek_gemm_job *job, const float *sums, float *c, long count, long column) {
    const ek_gemm_epilogue *e = job->epilogue;
    const float *bias = e->bias;
    for (long j = 0; j < count; j++) {
        float v = sums[j];
        if (job->load)
            v += c[j * job->c_col];
        if (job->finish) {
            v += bias ? bias[e->per_row ? 0 : column + j] : 0;
            v = v < e->low_f32 ? e->low_f32 : v; /* keeps NaN */
            v = v > e->high_f32 ? e->high_f32 : v;
        }
        c[j * job->c_col] = v;
    }
}

void ek_gemm_f32_dot(const ek_gemm_job *job, const void *a, const void *b, long b_col, void *c,
                     long count, long column) {
    const float *from = b;
    float *to = c, sums[AT];
    for (; count >= AT; count -= AT, column += AT, from += AT * b_col, to += AT * job->c_col) {
        dots(AT, a, from, b_col, job->k, sums);
        finish(job, sums, to, AT, column);
    }
    for (; count > 0; count--, column++, from += b_col, to += job->c_col) {
        dots(1, a, from, b_col, job->k, sums);
        finish(job, sums, to, 1, column);
    }
}

/* c[0, count) (+)= the sum over `rows` rows of a[i] times row i of B. */
EK_INLINE void add_rows(const int rows, const int load, const float *a, const float *b, long b_row,
                        float *c, long count) {
    for (long j = 0; j < count; j += EK_VL) {
        const long left = ek_min(count - j, EK_VL);
        const int full = left == EK_VL;
        vf sum[2] = {vf_splat(0), vf_splat(0)};
        if (load)
            sum[0] = full ? vf_load(c + j) : vf_load_n(c + j, left);
        EK_UNROLL
        for (int i = 0; i < rows; i++) {
            const float *at = b + i * b_row + j;
            sum[i % 2] =
                vf_fma(vf_splat(a[i]), full ? vf_load(at) : vf_load_n(at, left), sum[i % 2]);
        }
        if (full)
            vf_store(c + j, sum[0] + sum[1]);
        else
            vf_store_n(c + j, sum[0] + sum[1], left);
    }
}

#define ROW_COLUMNS 2048 /* columns of C that stay in L1 */

void ek_gemm_f32_row(const ek_gemm_job *job, const void *a, const void *b, void *c, long count,
                     long column) {
    ek_gemm_job sums = *job;
    sums.load = 0;
    for (long from = 0; from < count; from += ROW_COLUMNS) {
        const long width = ek_min(count - from, ROW_COLUMNS);
        const float *x = a, *at = (const float *)b + from;
        float *to = (float *)c + from;
        long p = 0;
        if (!job->load && job->k >= AT) {
            add_rows(AT, 0, x, at, job->b_row, to, width);
            p = AT;
        } else if (!job->load) {
            memset(to, 0, (size_t)width * sizeof *to);
        }
        for (; p + AT <= job->k; p += AT)
            add_rows(AT, 1, x + p, at + p * job->b_row, job->b_row, to, width);
        for (; p < job->k; p++)
            add_rows(1, 1, x + p, at + p * job->b_row, job->b_row, to, width);
        finish(&sums, to, to, width, column + from);
    }
}
