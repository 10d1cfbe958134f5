/* Runs f16 products of programs, as half_cases.py describes them. */
#include "cases_model.h"
#include "product/half.h"

enum { A, B, C, BIAS, PARTS };

typedef struct {
    int64_t m, n, k, a_row, b_row, b_col, c_row, nr, pack_b;
    int64_t bytes[PARTS]; /* -1 for NULL */
} description;

static char *run_case(const char **from, char *to, ek_pool *pool) {
    description d;
    void *parts[PARTS];
    take(from, &d, sizeof d);
    take_parts(from, PARTS, d.bytes, parts);
    const ek_gemm_args args = {
        .m = d.m,
        .n = d.n,
        .k = d.k,
        .a = parts[A],
        .b = parts[B],
        .c = parts[C],
        .a_row = d.a_row,
        .b_row = d.b_row,
        .b_col = d.b_col,
        .c_row = d.c_row,
        .epilogue = {.bias = parts[BIAS]},
    };
    const ek_gemm_method how = {.nr = (int32_t)d.nr, .pack_b = (uint8_t)d.pack_b};
    ek_gemm_f16_run(&args, &how, pool);
    memcpy(to, parts[C], (size_t)d.bytes[C]);
    free_parts(PARTS, parts);
    return to + d.bytes[C];
}
