/* Y[m, n] = X[m, k] . W[k, n] with float activations and 8-bit weights; channels of X with a value
 * beyond a threshold are multiplied in float. */
#ifndef EK_KERNELS_OUTLIER_H
#define EK_KERNELS_OUTLIER_H
#include "ek_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ek_outlier_matrix ek_outlier_matrix;

/* Packs W, of s8, with a positive scale for each of its columns: W = value * scale. On failure
 * writes NULL to `weights`. */
int ek_outlier_open(ek_kernels *kernels, const ek_matrix *w, const float *scales, int64_t columns,
                    ek_outlier_matrix **weights);

/* The path of a product: "split", "int8" (no outliers) or "float" (W is dequantized); the number of
 * outlier channels; and the costs that were compared, in float multiply-adds. */
typedef struct {
    char path[16];
    int64_t outliers;
    double split_cost, float_cost;
} ek_outlier_choice;

/* X of f32 or f16, Y of f32; both have rows of adjacent elements, and share no memory. X is finite.
 * `choice` may be NULL. */
int ek_outlier_multiply(ek_outlier_matrix *weights, const ek_matrix *x, float threshold,
                        const ek_result *y, int threads, ek_outlier_choice *choice);

void ek_outlier_close(ek_outlier_matrix *weights);

#ifdef __cplusplus
}
#endif

#endif
