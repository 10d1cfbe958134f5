/* Tiles that cannot be stored where they belong: see direct.h. */
#include "direct.h"
#include "transpose.h"

/* What stands at `at` in C into `copy`, or back. */
static void copy_tile(char *c, const ek_gemm_job *job, const ek_gemm_place *at, long bytes,
                      char *copy, int back) {
    if (job->c_row == 1 && bytes == sizeof(float)) { /* column-major C */
        if (back)
            ek_transpose((float *)copy, at->width, at->rows, at->columns, (float *)c, job->c_col);
        else
            ek_transpose((float *)c, job->c_col, at->columns, at->rows, (float *)copy, at->width);
        return;
    }
    if (job->c_col == 1) { /* part of a vector, where no store can be masked */
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

void ek_gemm_tile_apart(const ek_gemm_job *job, ek_gemm_tile code, const void *a, const void *b,
                        char *c, const ek_gemm_place *at, long bytes) {
    char copy[EK_GEMM_MAX_TILE * sizeof(float)] __attribute__((aligned(64)));
    ek_gemm_job apart = *job;
    apart.c_row = at->width;
    if (job->load)
        copy_tile(c, job, at, bytes, copy, 0);
    code(&apart, a, b, copy, at->row, at->column);
    copy_tile(c, job, at, bytes, copy, 1);
}
