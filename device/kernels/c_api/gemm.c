/* ek_gemm.h: dense products. */
#include "../product/half.h"
#include "session.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const rules[] = {"exact",     "relaxed:scale", "relaxed:m",
                                    "relaxed:n", "relaxed:k",     "analytic"};
static const struct {
    int32_t a, b, c, dtype;
} pairs[] = {
    {EK_F32, EK_F32, EK_F32, EK_GEMM_F32},
    {EK_S8, EK_S8, EK_S32, EK_GEMM_S8},
    {EK_U8, EK_S8, EK_S32, EK_GEMM_U8},
#ifdef EK_COMPUTES_HALF
    {EK_F16, EK_F16, EK_F16, EK_GEMM_F16},
#endif
};
#ifdef EK_COMPUTES_HALF
#define OR_HALF ", f16 and f16"
#else
#define OR_HALF ""
#endif
enum { PAIRS = sizeof pairs / sizeof *pairs };

/* Checks both operands; finds the number of their pair of types. */
static int check(ek_kernels *k, const ek_matrix *a, const ek_matrix *b, int threads, ek_pool **pool,
                 int *pair) {
    if (!a || !b)
        return ek_session_fail(k, EK_INPUT, "ek_gemm: expected a and b, found NULL");
    int status = ek_session_check(k, "ek_gemm", "a", a);
    status = status ? status : ek_session_check(k, "ek_gemm", "b", b);
    status = status ? status : ek_session_pool(k, "ek_gemm", threads, pool);
    if (status)
        return status;
    for (*pair = 0; *pair < PAIRS; ++*pair)
        if (pairs[*pair].a == a->type && pairs[*pair].b == b->type)
            break;
    if (*pair == PAIRS)
        return ek_session_fail(k, EK_INPUT,
                               "ek_gemm: expected a and b of f32 and f32" OR_HALF
                               ", s8 and s8, or u8 and s8, found %s and %s; convert them first",
                               ek_type_name(a->type), ek_type_name(b->type));
    if (a->columns != b->rows)
        return ek_session_fail(k, EK_INPUT,
                               "ek_gemm: expected as many columns of a as rows of b, found [%lld, "
                               "%lld] and [%lld, %lld]",
                               (long long)a->rows, (long long)a->columns, (long long)b->rows,
                               (long long)b->columns);
    return EK_DONE;
}

static int check_result(ek_kernels *k, const ek_matrix *a, const ek_matrix *b, const void *bias,
                        const ek_result *c, int32_t type) {
    if (!c)
        return ek_session_fail(k, EK_INPUT, "ek_gemm: expected c, found NULL");
    if (c->rows != a->rows || c->columns != b->columns || c->type != type)
        return ek_session_fail(k, EK_INPUT,
                               "ek_gemm: expected c of %s [%lld, %lld], found %s [%lld, %lld]",
                               ek_type_name(type), (long long)a->rows, (long long)b->columns,
                               ek_type_name(c->type), (long long)c->rows, (long long)c->columns);
    const ek_matrix added = {bias, bias ? 1 : 0, b->columns, b->columns, 1, type};
    const int status = ek_session_check(k, "ek_gemm", "bias", &added);
    const ek_matrix *const others[] = {a, b, &added};
    return status ? status : ek_session_check_result(k, "ek_gemm", "c", c, others, 3);
}

#ifdef EK_COMPUTES_HALF
/* Whether elements of each row are adjacent, as the f16 product reads and writes them. */
static int has_rows(int64_t columns, int64_t column_stride) {
    return columns < 2 || column_stride == 1;
}

static int check_half(ek_kernels *k, const ek_matrix *a, const ek_result *c) {
    const char *missing = ek_gemm_f16_missing();
    if (missing)
        return ek_session_fail(k, EK_INPUT,
                               "ek_gemm: expected a CPU with %s for f16, found one without; "
                               "convert the operands",
                               missing);
    if (!has_rows(a->columns, a->column_stride) || !has_rows(c->columns, c->column_stride))
        return ek_session_fail(k, EK_INPUT,
                               "ek_gemm: expected a and c of f16 with adjacent elements in each "
                               "row, found column strides of %lld and %lld; copy them first",
                               (long long)a->column_stride, (long long)c->column_stride);
    return EK_DONE;
}

#endif

/* Whether the transposed product is computed, whose C then has rows, so that the table answers for
 * it as well; not of types that differ. */
static int is_turned(const ek_result *c, int dtype) {
    const int is_same = dtype == EK_GEMM_F32 || dtype == EK_GEMM_S8;
    return c->row_stride == 1 && c->column_stride != 1 && c->rows > 1 && c->columns > 1 && is_same;
}

static void turn(ek_gemm_args *args) {
    const ek_gemm_args g = *args;
    args->m = g.n, args->n = g.m;
    args->a = g.b, args->a_row = g.b_col, args->a_col = g.b_row;
    args->b = g.a, args->b_row = g.a_col, args->b_col = g.a_row;
    args->c_row = g.c_col, args->c_col = 1;
    args->epilogue.per_row = !g.epilogue.per_row;
}

static int multiply(ek_kernels *k, const ek_matrix *a, const ek_matrix *b, const void *bias,
                    const ek_result *c, int threads) {
    ek_pool *pool;
    int pair, status = check(k, a, b, threads, &pool, &pair);
    status = status ? status : check_result(k, a, b, bias, c, pairs[pair].c);
    if (status || !c->rows || !c->columns)
        return status;
    ek_gemm_args args = {
        .dtype = pairs[pair].dtype,
        .m = (long)c->rows,
        .n = (long)c->columns,
        .k = (long)a->columns,
        .a = a->data,
        .b = b->data,
        .c = c->data,
        .a_row = (long)a->row_stride,
        .a_col = (long)a->column_stride,
        .b_row = (long)b->row_stride,
        .b_col = (long)b->column_stride,
        .c_row = (long)c->row_stride,
        .c_col = (long)c->column_stride,
        .epilogue = {.bias = bias, .low_f32 = -INFINITY, .high_f32 = INFINITY},
    };
    if (is_turned(c, args.dtype))
        turn(&args);
    const ek_gemm_method how =
        ek_gemm_lookup(k->products, args.dtype, threads, args.m, args.n, args.k, NULL);
#ifdef EK_COMPUTES_HALF
    if (args.dtype == EK_GEMM_F16) {
        status = check_half(k, a, c);
        if (!status)
            ek_gemm_f16_run(&args, &how, pool);
        return status;
    }
#endif
    status = ek_session_reserve(k, ek_gemm_scratch_bytes(&args, &how, threads));
    if (!status)
        ek_gemm_run(&args, &how, k->scratch, pool);
    return status;
}

int ek_api_gemm(ek_kernels *k, const ek_matrix *a, const ek_matrix *b, const void *bias,
                const ek_result *c, int threads) {
    pthread_mutex_lock(&k->lock);
    const int status = multiply(k, a, b, bias, c, threads);
    pthread_mutex_unlock(&k->lock);
    return status;
}

static int same_method(const ek_gemm_method *a, const ek_gemm_method *b) {
    return a->mc == b->mc && a->kc == b->kc && a->nc == b->nc && a->mr == b->mr && a->nr == b->nr &&
           a->pack_a == b->pack_a && a->pack_b == b->pack_b && a->split == b->split;
}

/* Writes the rule and the reason in words, as device/runtime/arrays/gemm.py does. */
static void put_reason(ek_gemm_choice *to, int rule, int is_default) {
    const char *name = rules[rule];
    char row[80];
    snprintf(row, sizeof row, "the row of %lld x %lld . %lld x %lld", (long long)to->m,
             (long long)to->k, (long long)to->k, (long long)to->n);
    if (!to->has_row)
        snprintf(to->reason, sizeof to->reason, "no row shares the scale, m, n or k");
    else if (!is_default)
        snprintf(to->reason, sizeof to->reason, "%s: %s", name, row);
    else if (rule == EK_GEMM_EXACT)
        snprintf(to->reason, sizeof to->reason, "exact: %s, with the analytic method", row);
    else
        snprintf(to->reason, sizeof to->reason,
                 "%s is the nearest, and has no method that applies here", row);
    const int applies = to->has_row && (!is_default || rule == EK_GEMM_EXACT);
    snprintf(to->rule, sizeof to->rule, "%s", applies ? name : rules[EK_GEMM_ANALYTIC]);
}

static void put_method(ek_gemm_choice *to, const ek_gemm_method *how) {
    to->mc = how->mc, to->kc = how->kc, to->nc = how->nc;
    to->mr = how->mr, to->nr = how->nr;
    to->pack_a = how->pack_a, to->pack_b = how->pack_b, to->by_columns = how->split;
}

static void put_turned(ek_gemm_choice *to) {
    const size_t used = strlen(to->reason);
    snprintf(to->reason + used, sizeof to->reason - used,
             "; of the transposed product, as the result has columns");
}

static int explain(ek_kernels *k, const ek_matrix *a, const ek_matrix *b, const ek_result *c,
                   int threads, ek_gemm_choice *choice) {
    ek_pool *pool;
    int pair, rule, status = check(k, a, b, threads, &pool, &pair);
    if (!status && c)
        status = check_result(k, a, b, NULL, c, pairs[pair].c);
    if (status)
        return status;
    if (!choice)
        return ek_session_fail(k, EK_INPUT, "ek_gemm_explain: expected choice, found NULL");
    const int dtype = pairs[pair].dtype, turned = c && is_turned(c, dtype);
    const long rows = (long)a->rows, columns = (long)b->columns, depth = (long)a->columns;
    const long m = turned ? columns : rows, n = turned ? rows : columns;
    memset(choice, 0, sizeof *choice);
    const ek_gemm_method how = ek_gemm_lookup(k->products, dtype, threads, m, n, depth, &rule);
    const ek_gemm_method analytic = ek_gemm_default(dtype, threads, m, n, depth);
    int64_t shape[3] = {0};
    choice->has_row = ek_gemm_row_shape(k->products, dtype, threads, m, n, depth, shape);
    choice->m = shape[0], choice->k = shape[1], choice->n = shape[2];
    put_method(choice, &how);
    put_reason(choice, rule, same_method(&how, &analytic));
    if (turned)
        put_turned(choice);
    return EK_DONE;
}

int ek_api_gemm_explain(ek_kernels *k, const ek_matrix *a, const ek_matrix *b, const ek_result *c,
                        int threads, ek_gemm_choice *choice) {
    pthread_mutex_lock(&k->lock);
    const int status = explain(k, a, b, c, threads, choice);
    pthread_mutex_unlock(&k->lock);
    return status;
}
