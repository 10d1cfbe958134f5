/* A pruned fully connected layer. Compile-time parameter: NAME. The number of pieces does not
 * depend on the threads, so that a model's results are bit-identical for any number of them. */
#include "spmv_layer.h"

int ek_spmv_f32(const ek_spmv_call *call, ek_pool *pool);

static void finish(const ek_spmv_layer_args *l, float *y) {
    if (l->bias)
        for (int64_t i = 0; i < l->rows; i++)
            y[i] += l->bias[i];
    if (l->low > -__builtin_inff() || l->high < __builtin_inff())
        for (int64_t i = 0; i < l->rows; i++) {
            float v = y[i] < l->low ? l->low : y[i];
            y[i] = v > l->high ? l->high : v;
        }
}

void NAME(const void *args, ek_pool *pool) {
    const ek_spmv_layer_args *l = args;
    const ek_sparse a = {
        .dtype = EK_SPARSE_F32,
        .width = l->width,
        .rows = l->rows,
        .cols = l->cols,
        .parts = 1,
        .part = (int64_t[]){0, l->strips},
        .strips = l->strips,
        .slots = l->slots,
        .strip = (ek_strip *)l->strip,
        .values = (float *)l->values,
        .index = (uint8_t *)l->index,
        .order = (uint32_t *)l->order,
    };
    for (long i = 0; i < l->images; i++) {
        float *y = l->y + i * l->rows;
        const ek_spmv_call call = {&a, l->x + i * l->cols, y, l->pieces, l->scratch, 0};
        ek_spmv_f32(&call, pool);
        finish(l, y);
    }
}
