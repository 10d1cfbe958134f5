/* Element-wise functions of one to three operands, of any plain type.
 *
 * Compile-time parameters: NAME, EK_SIMD, ARITY (1, 2, 3), TA (operands), TY, and one OP_* of
 * functions.h. ARITY 3 is WHERE: a is the condition (bytes), b and c are of type TY. OP_PAIRS: a
 * and b are 8-bit quantized values, c is the table of results for all pairs; OP_QUOTIENT: a and b
 * are 16-bit quantized values, c is an ek_quotient_factors. */
#include "map.h"

#ifdef OP_QUOTIENT
#include "quotient.h"
#elif ARITY < 3 && !defined OP_PAIRS
#include "functions.h"
#if ARITY == 1
#include "piecewise.h"
#include "silu_vectors.h"
#endif
#endif

#if defined OP_PAIRS
#define AT(i, j, k) ((const TY *)g.c)[(uint8_t)a[i] << 8 | (uint8_t)b[j]]
#elif defined OP_QUOTIENT
#define AT(i, j, k) (TY) ek_quotient(a[i], b[j], (const ek_quotient_factors *)g.c)
#elif ARITY == 1
#define AT(i, j, k) f(a[i], g.p, g.q)
#elif ARITY == 2
#define AT(i, j, k) f(a[i], b[j], g.p, g.q)
#else
#define AT(i, j, k) (a[i] ? b[j] : c[k])
#endif

#if ARITY == 3
typedef uint8_t first;
typedef TY second;
#else
typedef TA first;
typedef TA second;
#endif

/* Two vectors in flight where compilers take one: functions are chains of dependent operations. */
#ifdef __riscv_vector
#define FUNCTION_LOOP _Pragma("clang loop interleave_count(2)")
#else
#define FUNCTION_LOOP EK_VECTOR_LOOP
#endif

/* One contiguous run of y; step 0 broadcasts the operand. Common cases have separate loops. */
static void run(const ek_map_args *args, const first *restrict a, long as, const second *restrict b,
                long bs, const second *restrict c, long cs, TY *restrict y, long n) {
    const ek_map_args g = *args; /* a copy, because stores to y might alias it */
    (void)b, (void)c, (void)g;
#ifdef EK_BY_VECTORS
    if (as == 1 && EK_VECTORS_FIT(g.p)) {
        ek_vectors_run(a, y, n);
        return;
    }
#endif
#if defined OP_PAIRS || defined OP_QUOTIENT
    cs = 1; /* c is a table without a step; 1 selects the fast loops */
#endif
    if (as && bs && cs) {
        FUNCTION_LOOP
        for (long i = 0; i < n; i++)
            y[i] = AT(i, i, i);
    } else if (as && cs) {
        FUNCTION_LOOP
        for (long i = 0; i < n; i++)
            y[i] = AT(i, 0, i);
    } else if (bs && cs) {
        FUNCTION_LOOP
        for (long i = 0; i < n; i++)
            y[i] = AT(0, i, i);
    } else {
        FUNCTION_LOOP
        for (long i = 0; i < n; i++)
            y[i] = AT(as ? i : 0, bs ? i : 0, cs ? i : 0);
    }
}

/* Task: one chunk of a row. */
void NAME(const void *args, long begin, long end) {
    const ek_map_args *g = args;
    const int last = EK_MAP_DIMS - 1;
    for (long t = begin; t < end; t++) {
        long row = t / g->chunks, from = t % g->chunks * EK_MAP_CHUNK;
        long a_at = from * g->a_stride[last], b_at = from * g->b_stride[last];
        long c_at = from * g->c_stride[last], y_at = row * g->dim[last] + from;
        for (int d = last - 1; d >= 0; d--) {
            long i = row % g->dim[d];
            row /= g->dim[d];
            a_at += i * g->a_stride[d];
            b_at += i * g->b_stride[d];
            c_at += i * g->c_stride[d];
        }
        run(g, (const first *)g->a + a_at, g->a_stride[last], (const second *)g->b + b_at,
            g->b_stride[last], (const second *)g->c + c_at, g->c_stride[last], (TY *)g->y + y_at,
            ek_min(EK_MAP_CHUNK, g->dim[last] - from));
    }
}
