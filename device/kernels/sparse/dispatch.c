/* Type-independent parts of products: distribution over threads, and selection by type. */
#include "../kernel.h"
#include "../runtime/clock.h"
#include "pieces.h"

/* More pieces than threads, so that a preempted thread delays a piece, not a share. */
#define PIECES_PER_THREAD 4

#define KERNEL(type) int ek_spmv_##type(const ek_spmv_call *call, ek_pool *pool);
KERNEL(f32)
KERNEL(f64)
KERNEL(f16)
KERNEL(s8)

static int (*const kernels[])(const ek_spmv_call *, ek_pool *) = {
    ek_spmv_f32,
    ek_spmv_f64,
    ek_spmv_f16,
    ek_spmv_s8,
};

int ek_sparse_height(int dtype) {
    const int lanes = EK_VL > 1 ? EK_VL : EK_SCALAR_LANES;
    return dtype == EK_SPARSE_F64 && EK_VL > 1 ? lanes / 2 : lanes;
}

int ek_spmm_panel(void) {
    return EK_VL == 16 ? EK_SPMM_COLUMNS_OF_16 : EK_SPMM_COLUMNS;
}

int ek_sparse_window(int dtype) {
#if defined __AVX512F__
    return dtype == EK_SPARSE_F32 ? EK_STRIP_WINDOW : 0;
#else
    (void)dtype;
    return 0;
#endif
}

static long pieces_for(int threads) {
    return threads > 1 ? (long)threads * PIECES_PER_THREAD : 1;
}

size_t ek_spmv_scratch_bytes(const ek_sparse *a, int threads) {
    return (size_t)pieces_for(threads) * EK_STRIP_PARTIAL_BYTES;
}

int ek_spmv(const ek_sparse *a, const void *x, void *y, int threads, void *scratch, ek_pool *pool) {
    ek_spmv_call call = {a, x, y, pieces_for(threads), scratch, 0};
    return kernels[a->dtype](&call, pool);
}

#define PRODUCT(type) void ek_spmm_##type(const ek_spmm_args *args, ek_pool *pool);
PRODUCT(f32)
PRODUCT(f64)
PRODUCT(f16)
PRODUCT(s8)
PRODUCT(s8f)

static void (*const products[])(const ek_spmm_args *, ek_pool *) = {
    ek_spmm_f32, ek_spmm_f64, ek_spmm_f16, ek_spmm_s8, ek_spmm_s8f,
};

void ek_spmm(const ek_spmm_args *args, ek_pool *pool) {
    if (args->pixels > 0 && args->a->rows > 0)
        products[args->a->dtype](args, pool);
}

uint64_t ek_spmv_time(const ek_sparse *a, const void *x, void *y, int threads, void *scratch,
                      ek_pool *pool, long count) {
    uint64_t start = ek_nanoseconds();
    for (long i = 0; i < count; i++)
        ek_spmv(a, x, y, threads, scratch, pool);
    return ek_nanoseconds() - start;
}

uint64_t ek_spmm_time(const ek_spmm_args *args, ek_pool *pool, long count) {
    uint64_t start = ek_nanoseconds();
    for (long i = 0; i < count; i++)
        ek_spmm(args, pool);
    return ek_nanoseconds() - start;
}
