/* What a release's kernels.so offers to libedgekit-app.so, which C programs link with. */
#ifndef EK_INTERFACE_H
#define EK_INTERFACE_H
#include "../application/ek_gemm.h"
#include "../application/ek_outlier.h"
#include "../application/ek_spmv.h"
#include "../ek.h"

/* The contents of the release's tables; `sparse` ends with a NUL. */
typedef struct {
    const void *products;
    size_t products_bytes;
    const char *sparse;
} ek_kernels_tables;

typedef struct {
    int (*open)(const ek_kernels_tables *tables, ek_kernels **kernels, char *error, size_t bytes);
    const char *(*error)(const ek_kernels *kernels);
    void (*close)(ek_kernels *kernels);
    int (*gemm)(ek_kernels *kernels, const ek_matrix *a, const ek_matrix *b, const void *bias,
                const ek_result *c, int threads);
    int (*gemm_explain)(ek_kernels *kernels, const ek_matrix *a, const ek_matrix *b,
                        const ek_result *c, int threads, ek_gemm_choice *choice);
    int (*spmv_open)(ek_kernels *kernels, const ek_csr *a, ek_spmv_matrix **matrix);
    int (*spmv_multiply)(ek_spmv_matrix *matrix, const void *x, int64_t columns, void *y,
                         int64_t rows, int threads);
    int (*spmv_explain)(ek_spmv_matrix *matrix, ek_spmv_choice *choice);
    void (*spmv_close)(ek_spmv_matrix *matrix);
    int (*outlier_open)(ek_kernels *kernels, const ek_matrix *w, const float *scales,
                        int64_t columns, ek_outlier_matrix **weights);
    int (*outlier_multiply)(ek_outlier_matrix *weights, const ek_matrix *x, float threshold,
                            const ek_result *y, int threads, ek_outlier_choice *choice);
    void (*outlier_close)(ek_outlier_matrix *weights);
} ek_kernels_interface;

/* The number in its name is that of this file's version, and of the headers'. */
const ek_kernels_interface *ek_kernels_interface_2(void);
#define EK_KERNELS_INTERFACE "ek_kernels_interface_2"

/* The program's threads. `take` finds so many, including the caller's, and their pool; NULL if the
 * system refuses. `leave` ends what `take` returned. */
typedef struct {
    void *(*take)(void *library, int threads, ek_pool **pool);
    void (*leave)(void *taken);
} ek_lender;

/* From now on calls use threads of `lender`, which is kept. Kernels of edgekit 0.1 lack this. */
void ek_kernels_borrow(ek_kernels *kernels, const ek_lender *lender);
#define EK_KERNELS_BORROW "ek_kernels_borrow"

/* The first member of ek_kernels, ek_spmv_matrix and ek_outlier_matrix; `library`, of ek_kernels:
 * what dlopen returned. */
typedef struct {
    const ek_kernels_interface *call;
    void *library;
} ek_kernels_head;

#endif
