/* y[rows] = A[rows, columns] . x[columns] with a sparse A. */
#ifndef EK_KERNELS_SPMV_H
#define EK_KERNELS_SPMV_H
#include "ek_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Row r has the columns and values starts[r] .. starts[r + 1]; columns ascend in each row. Values
 * are finite. */
typedef struct {
    int64_t rows, columns, nonzeros;
    const int64_t *starts;  /* [rows + 1], from 0 to nonzeros */
    const int32_t *indices; /* [nonzeros] */
    const void *values;     /* [nonzeros] */
    int32_t type;           /* of values: EK_F32, EK_F64, EK_F16 or EK_S8 */
} ek_csr;

typedef struct ek_spmv_matrix ek_spmv_matrix;

/* Copies A into the storage that the table chooses. On failure writes NULL to `matrix`. */
int ek_spmv_open(ek_kernels *kernels, const ek_csr *a, ek_spmv_matrix **matrix);

/* x has `columns` and y `rows` elements, of the type of the values; for f16 both are f32, for s8 y
 * is s32, exact modulo 2^32. Small products use one thread. Bit-identical for the same number of
 * threads. */
int ek_spmv_multiply(ek_spmv_matrix *matrix, const void *x, int64_t columns, void *y, int64_t rows,
                     int threads);

/* The storage of a matrix, and the rule that chose it: "exact", "nearest" or "patent"; and why.
 * Fields as in device/runtime/arrays/sparse_blocks.py; height: rows of a strip; bytes: of all
 * arrays. */
typedef struct {
    char rule[16], reason[240];
    int64_t bytes;
    int32_t height, width, window, wide_from, diagonal, windows, index_bytes, columns;
} ek_spmv_choice;

int ek_spmv_explain(ek_spmv_matrix *matrix, ek_spmv_choice *choice);

void ek_spmv_close(ek_spmv_matrix *matrix);

#ifdef __cplusplus
}
#endif

#endif
