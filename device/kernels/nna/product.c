/* Converts both operands to groups of 32, runs the NNA, and requantizes sums to bytes. Zero points
 * are subtracted using row and column sums: (a - p)(b - q) = ab - qa - pb + pq. Parameters: NAME,
 * EK_SIMD. */
#include "product.h"

#define CHANNELS EK_NNA_CHANNELS

static long groups_of(long count) {
    return (count + CHANNELS - 1) / CHANNELS;
}

static void multiply_columns(const ek_nna_product_args *g, const int8_t *a, const int8_t *b) {
    const long ins = groups_of(g->k), outs = groups_of(g->n);
    memset(g->features, 0, (size_t)(ins * g->m * CHANNELS));
    memset(g->weights, 0, (size_t)(outs * ins * CHANNELS * CHANNELS));
    for (long p = 0; p < g->k; p += CHANNELS)
        for (long i = 0; i < g->m; i++)
            memcpy(g->features + p * g->m + i * CHANNELS, a + i * g->k + p,
                   (size_t)ek_min(CHANNELS, g->k - p));
    for (long p = 0; p < g->k; p++)
        for (long j = 0; j < g->n; j++) {
            const long group = j / CHANNELS * ins + p / CHANNELS;
            g->weights[(group * CHANNELS + j % CHANNELS) * CHANNELS + p % CHANNELS] =
                b[p * g->n + j];
        }
    const ek_nna_pointwise_args points = {.points = g->m,
                                          .in_groups = ins,
                                          .out_groups = outs,
                                          .x = g->features,
                                          .w = g->weights,
                                          .sums = g->sums};
    ek_nna_report report = {0};
    ek_nna_pointwise(&g->chip, &points, &report);
}

static void multiply_values(const ek_nna_product_args *g, const int8_t *a, const int8_t *b) {
    const long full = g->n / CHANNELS, rest = g->n % CHANNELS;
    int8_t *tail = g->features + full * g->k * CHANNELS;
    for (long p = 0; p < g->k; p++) {
        const int8_t *row = b + p * g->n;
        for (long group = 0; group < full; group++)
            memcpy(g->features + (group * g->k + p) * CHANNELS, row + group * CHANNELS, CHANNELS);
        memcpy(tail + p * rest, row + full * CHANNELS, (size_t)rest);
    }
    const ek_nna_matmul_args product = {
        .m = g->m, .k = g->k, .n = g->n, .a = a, .f = g->features, .tail = tail, .sums = g->sums};
    ek_nna_report report = {0};
    ek_nna_matmul(&g->chip, &product, &report);
}

static void sum_columns(const ek_nna_product_args *g, const int8_t *b) {
    memset(g->columns, 0, (size_t)(groups_of(g->n) * CHANNELS) * sizeof *g->columns);
    for (long p = 0; p < g->k; p++)
        for (long j = 0; j < g->n; j++)
            g->columns[j] += b[p * g->n + j];
}

/* Requantizes the sums of a row of y, `count` columns of one group. */
static void write_group(const ek_nna_product_args *g, const int32_t *sums, const int32_t *columns,
                        int32_t constant, long count, int8_t *y) {
    const vi_factor f = {vi_splat(g->multiplier), vi_splat(g->left), vi_splat(g->right)};
    int32_t given[CHANNELS] = {0};
    int8_t bytes[CHANNELS];
    memcpy(given, sums, (size_t)count * sizeof *given);
    for (long c = 0; c < CHANNELS; c += EK_VL) {
        const vi off = vi_splat(constant) - vi_load(columns + c) * g->a_zero;
        const vi v = vi_requantize(vi_wrap_add(vi_load(given + c), off), f) + vi_splat(g->y_zero);
        vi_to_bytes(bytes + c, vi_max(vi_min(v, vi_splat(127)), vi_splat(-128)));
    }
    memcpy(y, bytes, (size_t)count);
}

static void write_rows(const ek_nna_product_args *g, const int8_t *a, int8_t *y) {
    for (long i = 0; i < g->m; i++) {
        int32_t row = 0;
        for (long p = 0; p < g->k; p++)
            row += a[i * g->k + p];
        const int32_t constant = (int32_t)g->k * g->a_zero * g->b_zero - g->b_zero * row;
        for (long j = 0; j < g->n; j += CHANNELS) {
            const int32_t *sums = g->form == EK_NNA_COLUMNS_OF_B ? g->sums + j * g->m + i * CHANNELS
                                                                 : g->sums + i * g->n + j;
            write_group(g, sums, g->columns + j, constant, ek_min(CHANNELS, g->n - j),
                        y + i * g->n + j);
        }
    }
}

/* The chip has a single array, so threads share nothing. */
void NAME(const void *args, ek_pool *pool) {
    const ek_nna_product_args *g = args;
    (void)pool;
    for (long matrix = 0; matrix < g->matrices; matrix++) {
        long at = matrix;
        const int8_t *a = g->a, *b = g->b;
        for (int d = EK_MATMUL_DIMS - 1; d >= 0; d--) {
            a += at % g->dim[d] * g->a_stride[d];
            b += at % g->dim[d] * g->b_stride[d];
            at /= g->dim[d];
        }
        if (g->form == EK_NNA_COLUMNS_OF_B)
            multiply_columns(g, a, b);
        else
            multiply_values(g, a, b);
        sum_columns(g, b);
        write_rows(g, a, g->y + matrix * g->m * g->n);
    }
}
