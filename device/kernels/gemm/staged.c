/* Tiles that cannot be stored in place go through a staging buffer: see direct.h.
 *
 * Compile-time parameter: EK_SIMD. */
#include "direct.h"
#include "transpose.h"
#ifdef EK_TRANSPOSES
#include "transpose16.h"
#define TRANSPOSE4_ROWS 8 /* maximum rows for which 4 x 4 blocks are as fast */
#endif

/* Copies the region of C at `at` to `copy`, or back. */
static void copy_tile(char *c, const ek_gemm_job *job, const ek_gemm_place *at, long bytes,
                      char *copy, int back) {
    if (job->c_row == 1 && bytes == sizeof(float)) { /* column-major C */
#ifdef EK_TRANSPOSES
        if (back && (at->rows > TRANSPOSE4_ROWS || (at->rows == job->c_col && at->rows % 4 == 0))) {
            transpose16((float *)copy, at->width, at->rows, at->columns, (float *)c, job->c_col);
            return;
        }
#endif
        if (back)
            ek_transpose((float *)copy, at->width, at->rows, at->columns, (float *)c, job->c_col);
        else
            ek_transpose((float *)c, job->c_col, at->columns, at->rows, (float *)copy, at->width);
        return;
    }
    if (job->c_col == 1) { /* partial vector, where stores cannot be masked */
        for (long i = 0; i < at->rows; i++) {
            char *there = c + i * job->c_row * bytes, *here = copy + i * at->width * bytes;
            memcpy(back ? there : here, back ? here : there, (size_t)(at->columns * bytes));
        }
        return;
    }
    for (long i = 0; i < at->rows; i++)
        for (long j = 0; j < at->columns; j++) {
            char *there = c + (i * job->c_row + j * job->c_col) * bytes;
            char *here = copy + (i * at->width + j) * bytes;
            if (bytes == sizeof(float))
                memcpy(back ? there : here, back ? here : there, sizeof(float));
            else
                *(back ? there : here) = *(back ? here : there);
        }
}

void ek_gemm_staged_tile(ek_gemm_job *job, ek_gemm_tile kernel, const void *a, const void *b,
                         char *c, const ek_gemm_place *at, long bytes) {
    char copy[EK_GEMM_MAX_TILE * sizeof(float)] __attribute__((aligned(64)));
    const long c_row = job->c_row;
    if (job->load)
        copy_tile(c, job, at, bytes, copy, 0);
    job->c_row = at->width;
    kernel(job, a, b, copy, at->row, at->column);
    job->c_row = c_row;
    copy_tile(c, job, at, bytes, copy, 1);
}
