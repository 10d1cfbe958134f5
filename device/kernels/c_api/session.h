/* The state of an open ek_kernels: tables, memory and threads that its calls share. */
#ifndef EK_SESSION_H
#define EK_SESSION_H
#include <pthread.h>
#include "../gemm/table.h"
#include "interface.h"
#include "sparse_table.h"

enum { EK_MOST_THREADS = 256, EK_ERROR_BYTES = 512 };

struct ek_kernels {
    ek_kernels_head head;
    pthread_mutex_t lock;
    ek_gemm_table *products;
    ek_sparse_table *sparse;
    void *scratch;
    size_t scratch_bytes;
    ek_pool *pool[EK_MOST_THREADS + 1]; /* by number of threads */
    const ek_lender *lender;            /* NULL: pools are our own */
    void *taken[EK_MOST_THREADS + 1];
    char error[EK_ERROR_BYTES];
};

/* Writes the text of an error; returns `status`. */
__attribute__((format(printf, 3, 4))) int ek_session_fail(ek_kernels *k, int status,
                                                          const char *format, ...);

/* Makes `scratch` at least this large, 64-byte aligned. */
int ek_session_reserve(ek_kernels *k, size_t bytes);

/* Finds the pool of a number of threads: NULL for one. `what` begins the text of an error. */
int ek_session_pool(ek_kernels *k, const char *what, int threads, ek_pool **pool);

/* Memory of 64-byte alignment, or NULL. */
void *ek_session_allocate(size_t bytes);

/* Bytes of an element; 0 for an unknown type. */
size_t ek_type_bytes(int32_t type);
const char *ek_type_name(int32_t type);

/* Checks that a matrix is in memory: sizes, strides, alignment. `name` is that of its argument. */
int ek_session_check(ek_kernels *k, const char *what, const char *name, const ek_matrix *m);

/* Checks that a result has memory for each element, and none of the other matrices'. */
int ek_session_check_result(ek_kernels *k, const char *what, const char *name, const ek_result *m,
                            const ek_matrix *const *others, int count);
/* The functions of the headers, by family. */
int ek_api_gemm(ek_kernels *k, const ek_matrix *a, const ek_matrix *b, const void *bias,
                const ek_result *c, int threads);
int ek_api_gemm_explain(ek_kernels *k, const ek_matrix *a, const ek_matrix *b, const ek_result *c,
                        int threads, ek_gemm_choice *choice);
int ek_api_spmv_open(ek_kernels *k, const ek_csr *a, ek_spmv_matrix **matrix);
int ek_api_spmv(ek_spmv_matrix *matrix, const void *x, int64_t columns, void *y, int64_t rows,
                int threads);
int ek_api_spmv_explain(ek_spmv_matrix *matrix, ek_spmv_choice *choice);
void ek_api_spmv_close(ek_spmv_matrix *matrix);
int ek_api_outlier_open(ek_kernels *k, const ek_matrix *w, const float *scales, int64_t columns,
                        ek_outlier_matrix **weights);
int ek_api_outlier(ek_outlier_matrix *weights, const ek_matrix *x, float threshold,
                   const ek_result *y, int threads, ek_outlier_choice *choice);
void ek_api_outlier_close(ek_outlier_matrix *weights);
#endif
