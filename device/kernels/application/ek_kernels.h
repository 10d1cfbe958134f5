/* Matrix products of a deployed release of kernels, for C and C++ programs on the board:
 * docs/applications.md. ek_gemm.h, ek_spmv.h and ek_outlier.h have the products.
 *
 * Link with libedgekit-app.so. Functions return an ek_status; ek_kernels_error has its text, in one
 * line. Several threads may use an ek_kernels, one call at a time; open it several times to
 * multiply at once. Do not use it across fork. */
#ifndef EK_KERNELS_H
#define EK_KERNELS_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ek_kernels ek_kernels;

typedef enum {
    EK_DONE = 0,
    EK_INPUT = 1,        /* the arguments do not fit together */
    EK_INCOMPATIBLE = 2, /* a library or table of another core */
    EK_DAMAGED = 3,      /* no release, or one with a damaged file */
    EK_MEMORY = 4,       /* too little memory or too few threads */
} ek_status;

typedef enum {
    EK_F32 = 0,
    EK_F64 = 1,
    EK_F16 = 2,
    EK_S8 = 3,
    EK_U8 = 4,
    EK_S32 = 5,
} ek_type;

/* A matrix to read; strides are in elements, of any sign, and not 0. */
typedef struct {
    const void *data;
    int64_t rows, columns, row_stride, column_stride;
    int32_t type; /* ek_type */
} ek_matrix;

/* A matrix to write: its rows or its columns have adjacent elements. */
typedef struct {
    void *data;
    int64_t rows, columns, row_stride, column_stride;
    int32_t type;
} ek_result;

/* Opens the kernels deployed as `name` in folder `root` (NULL: EDGEKIT_ROOT, which installed
 * applications are given, else ~/.edgekit). Installed applications give NULL as `name`, too, for
 * the release that they are part of. On failure writes NULL to `kernels`, and the text to
 * `error`. */
int ek_kernels_open(const char *root, const char *name, ek_kernels **kernels, char *error,
                    size_t bytes);

/* Returns the text of the last error; empty if there was none. */
const char *ek_kernels_error(const ek_kernels *kernels);

/* Close sparse matrices and weights first. */
void ek_kernels_close(ek_kernels *kernels);

#ifdef __cplusplus
}
#endif

#endif
