/* Computes matrix products with several methods, each once or twice to warm up and once timed:
 *
 *   runner product LIBRARY DTYPE M N K SIDE THREADS [@M,N,K] METHOD... [=M,N,K [@M,N,K] METHOD...]
 *
 * LIBRARY: a board's kernels; DTYPE: ek_gemm_dtype; SIDE: the operand that is packed ahead, 0 for
 * A, 1 for B, -1 for none; METHOD: mc,kc,nc,mr,nr,pack_a,pack_b,split. Rows of A, B and C are
 * contiguous. Each method is a region between marks. Methods after @M,N,K compute a part of the
 * product, of the first rows and columns of the same matrices, those after =M,N,K another product;
 * those after *N run N times to warm up. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ek.h"
#include "gemm/gemm.h"
#include "runner.h"

enum { FIRST_METHOD = 8, FIELDS = 8 };

/* Multiply-adds from which what was in the caches before no longer matters. Below, a matrix that
 * barely fits a cache with random replacement takes two passes to be there: on an A53, 1 x 32 x
 * 4096 took twice as long after one. */
#define LARGE 2097152.0

typedef struct {
    size_t (*packed_bytes)(int, int, long, long, const ek_gemm_method *);
    void (*pack)(int, int, long, long, const ek_gemm_method *, const void *, long, long, void *);
    size_t (*scratch_bytes)(const ek_gemm_args *, const ek_gemm_method *, int);
    void (*run)(const ek_gemm_args *, const ek_gemm_method *, void *, ek_pool *);
    void (*run_half)(const ek_gemm_args *, const ek_gemm_method *, ek_pool *); /* NULL: no f16 */
} functions;

static functions functions_of(const library *lib) {
    functions f;
    *(void **)&f.packed_bytes = required_symbol(lib, "ek_gemm_packed_bytes");
    *(void **)&f.pack = required_symbol(lib, "ek_gemm_pack");
    *(void **)&f.scratch_bytes = required_symbol(lib, "ek_gemm_scratch_bytes");
    *(void **)&f.run = required_symbol(lib, "ek_gemm_run");
    *(void **)&f.run_half = library_symbol(lib, "ek_gemm_f16_run");
    return f;
}

ek_gemm_method method_of(const char *text) {
    long field[FIELDS] = {0};
    const char *end = text;
    for (int i = 0; i < FIELDS; i++, end += *end == ',')
        field[i] = number_at(end, &end);
    if (*end)
        fail("expected mc,kc,nc,mr,nr,pack_a,pack_b,split, found", text);
    ek_gemm_method how = {.mc = (int32_t)field[0], .kc = (int32_t)field[1]};
    how.nc = (int32_t)field[2], how.mr = (int32_t)field[3], how.nr = (int32_t)field[4];
    how.pack_a = (uint8_t)field[5], how.pack_b = (uint8_t)field[6], how.split = (uint8_t)field[7];
    return how;
}

static uint16_t half_of(int value) {
    const int exponent = 31 - __builtin_clz((unsigned)value);
    return (uint16_t)((exponent + 15) << 10 | (value << (10 - exponent) & 0x3ff));
}

/* Small integers: no denormals, no overflow. */
static void *filled(int dtype, long count) {
    const size_t size = dtype == EK_GEMM_F32 ? sizeof(float) : dtype == EK_GEMM_F16 ? 2 : 1;
    char *made = block((size_t)count * size);
    for (long i = 0; i < count; i++) {
        int value = (int)(i % 13) + 1;
        if (dtype == EK_GEMM_F32)
            ((float *)made)[i] = (float)value;
        else if (dtype == EK_GEMM_F16)
            ((uint16_t *)made)[i] = half_of(value);
        else
            made[i] = (char)value;
    }
    return made;
}

static long warm_ups_of(const ek_gemm_args *args) {
    return (double)args->m * (double)args->n * (double)args->k < LARGE ? 2 : 1;
}

static void time_half(const functions *f, const ek_gemm_args *args, const ek_gemm_method *how,
                      ek_pool *pool, long warm_ups) {
    mark(MARK_WARM_BEGIN);
    for (long i = 0; i < warm_ups; i++)
        f->run_half(args, how, pool);
    mark(MARK_WARM_END);
    mark(MARK_BEGIN);
    f->run_half(args, how, pool);
    mark(MARK_END);
}

static void time_method(const functions *f, ek_gemm_args args, const ek_gemm_method *how, int side,
                        int threads, ek_pool *pool, long warm_ups) {
    void *packed = NULL;
    if (side >= 0) {
        long extent = side ? args.n : args.m, row = side ? args.b_row : args.a_row;
        packed = block(f->packed_bytes(args.dtype, side, extent, args.k, how));
        f->pack(args.dtype, side, extent, args.k, how, side ? args.b : args.a, row, 1, packed);
        *(side ? &args.b : &args.a) = packed;
        *(side ? &args.b_packed : &args.a_packed) = 1;
    }
    void *scratch = block(f->scratch_bytes(&args, how, threads));
    mark(MARK_WARM_BEGIN);
    for (long i = 0; i < warm_ups; i++)
        f->run(&args, how, scratch, pool);
    mark(MARK_WARM_END);
    mark(MARK_BEGIN);
    f->run(&args, how, scratch, pool);
    mark(MARK_END);
    free(scratch);
    free(packed);
}

/* From M,N,K after any character. Strides stay those of the matrices. */
static void set_sizes(ek_gemm_args *args, const char *text) {
    const char *end;
    args->m = number_at(text + 1, &end);
    args->n = number_at(end + (*end == ','), &end);
    args->k = number_at(end + (*end == ','), &end);
    if (*end)
        fail("expected M,N,K after the first character, found", text);
}

static void make_matrices(ek_gemm_args *args) {
    args->a = filled(args->dtype, args->m * args->k), args->a_row = args->k, args->a_col = 1;
    args->b = filled(args->dtype, args->k * args->n), args->b_row = args->n, args->b_col = 1;
    args->c = block((size_t)(args->m * args->n) * sizeof(float));
    args->c_row = args->n, args->c_col = 1;
}

static void free_matrices(const ek_gemm_args *args) {
    free((void *)args->a);
    free((void *)args->b);
    free(args->c);
}

int time_products(int argc, char **argv) {
    if (argc <= FIRST_METHOD)
        fail("expected a method, found", "none");
    const library *lib = usable_library(argv[1]);
    const functions f = functions_of(lib);
    ek_gemm_args args = {.dtype = (int)number_at(argv[2], NULL)};
    args.m = number_at(argv[3], NULL), args.n = number_at(argv[4], NULL);
    args.k = number_at(argv[5], NULL);
    int side = (int)number_at(argv[6], NULL), threads = (int)number_at(argv[7], NULL);
    make_matrices(&args);
    if (args.dtype == EK_GEMM_F16 && (side >= 0 || !f.run_half))
        fail("expected a library with f16, and no operand packed ahead, found", argv[1]);
    args.epilogue.low_f32 = -INFINITY, args.epilogue.high_f32 = INFINITY;
    ek_pool *pool = pool_of(lib, threads);
    long warm_ups = -1; /* by the size of the product */
    for (int i = FIRST_METHOD; i < argc; i++) {
        if (argv[i][0] == '=')
            free_matrices(&args), set_sizes(&args, argv[i]), make_matrices(&args);
        else if (argv[i][0] == '@')
            set_sizes(&args, argv[i]);
        else if (argv[i][0] == '*')
            warm_ups = number_at(argv[i] + 1, NULL);
        else {
            ek_gemm_method how = method_of(argv[i]);
            long runs = warm_ups < 0 ? warm_ups_of(&args) : warm_ups;
            if (args.dtype == EK_GEMM_F16)
                time_half(&f, &args, &how, pool, runs);
            else
                time_method(&f, args, &how, side, threads, pool, runs);
        }
    }
    return 0;
}
