/* A pruned 1x1 convolution. Compile-time parameters: NAME, PRODUCT (of the type that weights are
 * stored in). */
#include "layer.h"

void PRODUCT(const ek_spmm_args *args, ek_pool *pool);

void NAME(const void *args, ek_pool *pool) {
    const ek_sparse_layer_args *l = args;
    ek_spmm_weights a = l->a;
    a.plan = l->plan.pairs ? &l->plan : NULL;
    const long in = (long)a.cols * l->pixels, out = (long)a.rows * l->pixels;
    for (long i = 0; i < l->images; i++) {
        ek_spmm_args product = {
            .a = &a,
            .x = l->x + i * in,
            .y = l->y + i * out,
            .pixels = l->pixels,
            .x_row = l->pixels,
            .y_row = l->pixels,
            .bias = l->bias,
            .low = l->low,
            .high = l->high,
            .copy = -1,
            .residual = l->residual ? l->residual + i * out : NULL,
        };
        PRODUCT(&product, pool);
    }
}
