/* Runs GEMM products described by a file. As a model it has one input, the cases of
 * gemm_cases.py, and one output, the C matrices concatenated. Every operand gets a separate heap
 * block of its exact size, so that sanitizers catch the first out-of-bounds byte. */
#include "cases_model.h"
#include "gemm/gemm.h"

enum { A, B, C, BIAS, SCALE, MULTIPLIER, LEFT, RIGHT, PARTS };

typedef struct {
    int64_t dtype, packed; /* prepacked operand, or -1 */
    int64_t accumulate, m, n, k;
    int64_t mc, kc, nc, mr, nr, pack_a, pack_b, split;
    int64_t output, per_row, zero, low, high;
    int64_t a_row, a_col, b_row, b_col, c_row, c_col;
    int64_t bytes[PARTS], start[PARTS]; /* bytes: -1 for NULL; start: index of the first element */
    double low_f32, high_f32;
} description;

static ek_gemm_args args_of(const description *d, void *const parts[PARTS]) {
    return (ek_gemm_args){
        .dtype = (int32_t)d->dtype,
        .accumulate = (int32_t)d->accumulate,
        .m = d->m,
        .n = d->n,
        .k = d->k,
        .a = parts[A],
        .b = parts[B],
        .c = parts[C],
        .a_row = d->a_row,
        .a_col = d->a_col,
        .b_row = d->b_row,
        .b_col = d->b_col,
        .c_row = d->c_row,
        .c_col = d->c_col,
        .epilogue = {.output = (int32_t)d->output,
                     .per_row = (int32_t)d->per_row,
                     .bias = parts[BIAS],
                     .scale = parts[SCALE],
                     .multiplier = parts[MULTIPLIER],
                     .left = parts[LEFT],
                     .right = parts[RIGHT],
                     .zero = (int32_t)d->zero,
                     .low = (int32_t)d->low,
                     .high = (int32_t)d->high,
                     .low_f32 = (float)d->low_f32,
                     .high_f32 = (float)d->high_f32},
    };
}

static void multiply(const description *d, void *const parts[PARTS], int threads, ek_pool *pool) {
    const ek_gemm_method how = {
        .mc = (int32_t)d->mc,
        .kc = (int32_t)d->kc,
        .nc = (int32_t)d->nc,
        .mr = (int32_t)d->mr,
        .nr = (int32_t)d->nr,
        .pack_a = (uint8_t)d->pack_a,
        .pack_b = (uint8_t)d->pack_b,
        .split = (uint8_t)d->split,
    };
    ek_gemm_args args = args_of(d, parts);
    void *packed = NULL;
    if (d->packed >= 0) {
        const int side = (int)d->packed, dtype = args.dtype;
        const long extent = side ? args.n : args.m;
        packed = block(ek_gemm_packed_bytes(dtype, side, extent, args.k, &how));
        ek_gemm_pack(dtype, side, extent, args.k, &how, side ? args.b : args.a,
                     side ? args.b_row : args.a_row, side ? args.b_col : args.a_col, packed);
        *(side ? &args.b_packed : &args.a_packed) = 1;
        *(side ? &args.b : &args.a) = packed;
    }
    void *scratch = block(ek_gemm_scratch_bytes(&args, &how, threads));
    ek_gemm_run(&args, &how, scratch, pool);
    free(scratch);
    free(packed);
}

static char *run_case(const char **from, char *to, ek_pool *pool) {
    description d;
    void *blocks[PARTS], *parts[PARTS];
    take(from, &d, sizeof d);
    take_parts(from, PARTS, d.bytes, blocks);
    for (int p = 0; p < PARTS; p++)
        parts[p] = blocks[p] ? (char *)blocks[p] + d.start[p] : NULL;
    multiply(&d, parts, pool ? 3 : 1, pool);
    memcpy(to, blocks[C], (size_t)d.bytes[C]);
    free_parts(PARTS, blocks);
    return to + d.bytes[C];
}
