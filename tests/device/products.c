/* A C or C++ program on a board: a product of each kind, and what bad input is answered with, as
 * tests/support/products_on_board.py has it. argv: the board's folder, the name of the release. */
#include "ek_gemm.h"
#include "ek_outlier.h"
#include "ek_spmv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { M = 5, K = 70, N = 40 };

static float a[M * K], b[K * N], c[M * N], x[K], y[M], scale[N];
static int8_t a8[M * K], b8[K * N];
static int32_t c8[M * N];
static int64_t starts[M + 1];
static int32_t indices[M * K];
static float values[M * K];

static void fill(void) {
    for (int i = 0; i < M * K; i++)
        a[i] = a8[i] = (int8_t)(i * 37 % 101 - 50);
    for (int i = 0; i < K * N; i++)
        b[i] = b8[i] = (int8_t)(i * 29 % 101 - 50);
    for (int i = 0; i < K; i++)
        x[i] = (float)(i % 7 - 3);
    for (int i = 0; i < N; i++)
        scale[i] = 1 / 64.0f;
    for (int row = 0; row < M; row++) {
        int64_t at = starts[row];
        for (int i = row; i < K; i += 3, at++)
            indices[at] = i, values[at] = (float)(i % 5 + 1);
        starts[row + 1] = at;
    }
}

static ek_matrix matrix(const void *data, int64_t rows, int64_t columns, int type) {
    ek_matrix m = {data, rows, columns, columns, 1, type};
    return m;
}

static ek_result result(void *data, int64_t rows, int64_t columns, int type) {
    ek_result m = {data, rows, columns, columns, 1, type};
    return m;
}

static void print_floats(const char *name, const float *from, int rows, int columns) {
    printf("\"%s\": [", name);
    for (int i = 0; i < rows; i++) {
        printf("%s%s", i ? ", " : "", rows > 1 ? "[" : "");
        for (int j = 0; j < columns; j++)
            printf("%s%.9g", j ? ", " : "", (double)from[i * columns + j]);
        printf("%s", rows > 1 ? "]" : "");
    }
    printf("],\n");
}

static const char *separator = "";
static void refused(const ek_kernels *k, const char *what, int status) {
    printf("%s\"%s\": \"error %d: %s\"", separator, what, status,
           status ? ek_kernels_error(k) : "");
    separator = ",\n";
}

static void refuse_gemm(ek_kernels *k) {
    const ek_matrix left = matrix(a, M, K, EK_F32), right = matrix(b, K, N, EK_F32);
    const ek_result to = result(c, M, N, EK_F32);
    ek_matrix odd = left;
    ek_result other = to;
    refused(k, "no operand", ek_gemm(k, NULL, &right, NULL, &to, 1));
    refused(k, "no result", ek_gemm(k, &left, &right, NULL, NULL, 1));
    refused(k, "no choice", ek_gemm_explain(k, &left, &right, NULL, 1, NULL));
    refused(k, "other shapes", ek_gemm(k, &left, &left, NULL, &to, 1));
    refused(k, "no threads", ek_gemm(k, &left, &right, NULL, &to, 0));
    refused(k, "a bias that is c", ek_gemm(k, &left, &right, c, &to, 1));
    odd.data = NULL;
    refused(k, "no memory", ek_gemm(k, &odd, &right, NULL, &to, 1));
    odd.data = (const char *)a + 1;
    refused(k, "odd memory", ek_gemm(k, &odd, &right, NULL, &to, 1));
    odd = left, odd.row_stride = 0;
    refused(k, "a stride of 0", ek_gemm(k, &odd, &right, NULL, &to, 1));
    odd = left, odd.row_stride = INT64_MAX / 2;
    refused(k, "a stride beyond memory", ek_gemm(k, &odd, &right, NULL, &to, 1));
    odd = matrix(a, (int64_t)1 << 31, K, EK_F32);
    refused(k, "2^31 rows", ek_gemm(k, &odd, &right, NULL, &to, 1));
    odd = matrix(a, -1, K, EK_F32);
    refused(k, "negative rows", ek_gemm(k, &odd, &right, NULL, &to, 1));
    odd = matrix(a, M, K, EK_F64);
    refused(k, "other types", ek_gemm(k, &odd, &right, NULL, &to, 1));
    const ek_matrix left16 = matrix(a, M, K, EK_F16), right16 = matrix(b, K, N, EK_F16);
    refused(k, "half precision", ek_gemm(k, &left16, &right16, NULL, &to, 1));
    odd = matrix(a, M, K, 77);
    refused(k, "an unknown type", ek_gemm(k, &odd, &right, NULL, &to, 1));
    other.rows = M + 1;
    refused(k, "a result of another shape", ek_gemm(k, &left, &right, NULL, &other, 1));
    other = to, other.row_stride = 0;
    refused(k, "a result of stride 0", ek_gemm(k, &left, &right, NULL, &other, 1));
    other = to, other.row_stride = N - 1;
    refused(k, "rows that overlap", ek_gemm(k, &left, &right, NULL, &other, 1));
    other = result(b, M, N, EK_F32);
    refused(k, "a result that is an operand", ek_gemm(k, &left, &right, NULL, &other, 1));
    ek_gemm_choice how;
    other = to, other.rows = M + 1;
    refused(k, "an explanation of another shape",
            ek_gemm_explain(k, &left, &right, &other, 1, &how));
}

static void refuse_spmv(ek_kernels *k, ek_spmv_matrix *good) {
    const ek_csr csr = {M, K, starts[M], starts, indices, values, EK_F32};
    static int64_t descending[M + 1] = {0, 5, 3};
    static const int32_t unsorted[2] = {1, 0}, beyond[2] = {0, K};
    static const int64_t two[2] = {0, 2};
    static const float infinite[2] = {INFINITY, 1};
    ek_csr bad = csr;
    ek_spmv_matrix *none;
    refused(k, "no matrix", ek_spmv_open(k, NULL, &none));
    bad.starts = NULL;
    refused(k, "no starts", ek_spmv_open(k, &bad, &none));
    bad = csr, bad.starts = descending, descending[M] = csr.nonzeros;
    refused(k, "starts that descend", ek_spmv_open(k, &bad, &none));
    bad = csr, bad.rows = (int64_t)1 << 31;
    refused(k, "2^31 rows of a sparse matrix", ek_spmv_open(k, &bad, &none));
    bad = csr, bad.nonzeros++;
    refused(k, "another number of entries", ek_spmv_open(k, &bad, &none));
    bad = csr, bad.type = EK_U8;
    refused(k, "values of another type", ek_spmv_open(k, &bad, &none));
    bad = csr, bad.rows = 1, bad.nonzeros = 2, bad.starts = two, bad.indices = unsorted;
    refused(k, "columns that descend", ek_spmv_open(k, &bad, &none));
    bad.indices = beyond;
    refused(k, "a column beyond the matrix", ek_spmv_open(k, &bad, &none));
    bad.indices = indices, bad.values = infinite;
    refused(k, "values that are not finite", ek_spmv_open(k, &bad, &none));
    refused(k, "an x of another length", ek_spmv_multiply(good, x, K - 1, y, M, 1));
    refused(k, "no x", ek_spmv_multiply(good, NULL, K, y, M, 1));
    refused(k, "a y that is x", ek_spmv_multiply(good, x, K, x, M, 1));
    refused(k, "no choice of storage", ek_spmv_explain(good, NULL));
    x[3] = NAN;
    refused(k, "an x that is not finite", ek_spmv_multiply(good, x, K, y, M, 1));
}

static void refuse_outlier(ek_kernels *k, ek_outlier_matrix *good) {
    const ek_matrix w = matrix(b8, K, N, EK_S8), left = matrix(a, M, K, EK_F32);
    const ek_matrix wide = matrix(a, 2, K + 1, EK_F32), floats = matrix(b, K, N, EK_F32);
    const ek_result to = result(c, M, N, EK_F32), self = result(a, M, N, EK_F32);
    static float zeros[N];
    ek_outlier_matrix *none;
    refused(k, "scales of 0", ek_outlier_open(k, &w, zeros, N, &none));
    refused(k, "too few scales", ek_outlier_open(k, &w, scale, N - 1, &none));
    refused(k, "no scales", ek_outlier_open(k, &w, NULL, N, &none));
    refused(k, "odd scales", ek_outlier_open(k, &w, (const float *)((char *)scale + 1), N, &none));
    refused(k, "weights of floats", ek_outlier_open(k, &floats, scale, N, &none));
    refused(k, "no weights", ek_outlier_open(k, NULL, scale, N, &none));
    refused(k, "no activations", ek_outlier_multiply(good, NULL, 6, &to, 1, NULL));
    refused(k, "other channels", ek_outlier_multiply(good, &wide, 6, &to, 1, NULL));
    refused(k, "a y that is x of outliers", ek_outlier_multiply(good, &left, 6, &self, 1, NULL));
    refused(k, "no threshold", ek_outlier_multiply(good, &left, NAN, &to, 1, NULL));
    a[3] = NAN;
    refused(k, "activations that are not finite",
            ek_outlier_multiply(good, &left, 6, &to, 1, NULL));
}

static int multiply(ek_kernels *k, ek_spmv_matrix *sparse, ek_outlier_matrix *weights) {
    const ek_matrix left = matrix(a, M, K, EK_F32), left8 = matrix(a8, M, K, EK_S8);
    const ek_matrix right = matrix(b, K, N, EK_F32), right8 = matrix(b8, K, N, EK_S8);
    const ek_result to = result(c, M, N, EK_F32), to8 = result(c8, M, N, EK_S32);
    ek_gemm_choice how;
    ek_spmv_choice form;
    ek_outlier_choice path;
    if (ek_gemm(k, &left, &right, NULL, &to, 2) || ek_gemm(k, &left8, &right8, NULL, &to8, 1))
        return 1;
    print_floats("gemm_f32", c, M, N);
    static float apart[2 * N];
    const ek_matrix first = matrix(a, 1, K, EK_F32);
    const ek_result every_second = {apart, 1, N, 0, 2, EK_F32};
    if (ek_gemm(k, &first, &right, NULL, &every_second, 1))
        return 1;
    for (int i = 0; i < N; i++)
        if (apart[2 * i] != c[i])
            return 1;
    static float columns[N * M];
    const ek_result by_columns = {columns, M, N, 1, M, EK_F32};
    if (ek_gemm(k, &left, &right, scale, &by_columns, 1))
        return 1;
    for (int i = 0; i < M * N; i++)
        if (columns[i % N * M + i / N] != c[i] + scale[i % N])
            return 1;
    for (int i = 0; i < M * N; i++)
        c[i] = (float)c8[i];
    print_floats("gemm_s8", c, M, N);
    if (ek_gemm_explain(k, &left, &right, NULL, 1, &how) || ek_spmv_explain(sparse, &form))
        return 1;
    printf("\"how\": [\"%s\", \"%s\", %d, %d],\n", how.rule, how.reason, how.mr, how.nr);
    if (ek_gemm_explain(k, &left, &right, &by_columns, 1, &how))
        return 1;
    printf("\"by_columns\": [\"%s\", \"%s\", %d, %d],\n", how.rule, how.reason, how.mr, how.nr);
    printf("\"form\": [\"%s\", \"%s\", %d],\n", form.rule, form.reason, form.width);
    if (ek_spmv_multiply(sparse, x, K, y, M, 2))
        return 1;
    print_floats("spmv", y, 1, M);
    if (ek_outlier_multiply(weights, &left, 40, &to, 1, &path))
        return 1;
    print_floats("outlier", c, M, N);
    printf("\"outliers\": %d,\n", (int)path.outliers);
    y[0] = NAN;
    const ek_matrix nan = matrix(y, 1, 1, EK_F32), one = matrix(b, 1, 1, EK_F32);
    const ek_result sum = result(c, 1, 1, EK_F32);
    if (ek_gemm(k, &nan, &one, NULL, &sum, 1))
        return 1;
    printf("\"gemm_nan\": \"%s\",\n", isnan(c[0]) ? "nan" : "a number");
    return 0;
}

/* Prints the bits of a product of f16; null if the core does not compute in half precision. */
static int multiply_half(ek_kernels *k) {
    static const uint16_t bits[] = {0xbc00, 0, 0x3c00}; /* -1, 0, 1 */
    static uint16_t left[M * K], right[K * N], product[M * N];
    for (int i = 0; i < M * K; i++)
        left[i] = bits[i % 7 % 3];
    for (int i = 0; i < K * N; i++)
        right[i] = bits[i % 11 % 3];
    const ek_matrix half = matrix(left, M, K, EK_F16), other = matrix(right, K, N, EK_F16);
    const ek_result to = result(product, M, N, EK_F16);
    ek_gemm_choice how;
    if (ek_gemm(k, &half, &other, NULL, &to, 2)) {
        printf("\"gemm_f16\": null,\n");
        return 0;
    }
    ek_matrix columns = half;
    columns.column_stride = 2;
    if (!ek_gemm(k, &columns, &other, NULL, &to, 1) ||
        ek_gemm_explain(k, &half, &other, &to, 1, &how))
        return 1;
    printf("\"half_rule\": \"%s\",\n\"gemm_f16\": [", how.rule);
    for (int i = 0; i < M * N; i++)
        printf("%s%d", i ? ", " : "", product[i]);
    printf("],\n");
    return 0;
}

int main(int count, char **argument) {
    char error[512] = "";
    ek_kernels *k = NULL;
    ek_spmv_matrix *sparse = NULL;
    ek_outlier_matrix *weights = NULL;
    const int status =
        ek_kernels_open(argument[1], count > 2 ? argument[2] : NULL, &k, error, sizeof error);
    if (status) {
        printf("%s\n", error);
        return status;
    }
    fill();
    const ek_csr csr = {M, K, starts[M], starts, indices, values, EK_F32};
    const ek_matrix w = matrix(b8, K, N, EK_S8);
    printf("{");
    if (ek_spmv_open(k, &csr, &sparse) || ek_outlier_open(k, &w, scale, N, &weights) ||
        multiply(k, sparse, weights) || multiply_half(k))
        return printf("%s\n", ek_kernels_error(k)), 9;
    printf("\"refused\": {");
    refuse_gemm(k);
    refuse_spmv(k, sparse);
    refuse_outlier(k, weights);
    printf("}}\n");
    ek_spmv_close(sparse);
    ek_outlier_close(weights);
    ek_kernels_close(k);
    return 0;
}
