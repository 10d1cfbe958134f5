/* Sums, products and extremes.
 *
 * Compile-time parameters: NAME, EK_SIMD, TX, and OP_SUM, OP_PRODUCT, OP_MAX or OP_MIN. SATURATED:
 * products of int32_t in doubles, exact where they fit; others become the closest int32_t. */
#include "total.h"

#ifdef SATURATED
#define SUM double
#define RESULT(v) ((v) < INT32_MIN ? INT32_MIN : (v) <= INT32_MAX ? (TX)(v) : INT32_MAX)
#else
#define SUM TX
#define RESULT(v) (v)
#endif

#define BLOCK EK_REDUCE_BLOCK
#define RUN 256 /* rows summed separately, because adding to a large sum loses low bits */

#if defined OP_SUM
#define TAKE(s, v) ((s) + (v))
#elif defined OP_PRODUCT
#define TAKE(s, v) ((s) * (v))
#elif defined OP_MAX
#define TAKE(s, v) ((s) > (v) || (s) != (s) ? (s) : (v))
#else
#define TAKE(s, v) ((s) < (v) || (s) != (s) ? (s) : (v))
#endif

/* Contiguous values, with BLOCK independent accumulators. */
static SUM along(const TX *x, long n) {
    SUM sum[BLOCK];
    long width = ek_min(n, BLOCK), i = width;
    for (long j = 0; j < width; j++)
        sum[j] = x[j];
    for (; i + BLOCK <= n; i += BLOCK) {
        EK_VECTOR_LOOP
        for (long j = 0; j < BLOCK; j++)
            sum[j] = TAKE(sum[j], x[i + j]);
    }
    for (long j = 0; i < n; i++, j++)
        sum[j] = TAKE(sum[j], x[i]);
    for (; width > 1; width = (width + 1) / 2)
        for (long j = 0; j < width / 2; j++)
            sum[j] = TAKE(sum[j], sum[width - 1 - j]);
    return sum[0];
}

static SUM all(const TX *x, long n) {
    const long most = RUN * BLOCK;
    SUM sum = along(x, ek_min(n, most));
    for (long i = most; i < n; i += most)
        sum = TAKE(sum, along(x + i, ek_min(n - i, most)));
    return sum;
}

/* Task: outer index x block of inner. */
void NAME(const void *args, long begin, long end) {
    const ek_total_args *a = args;
    long blocks = (a->inner + BLOCK - 1) / BLOCK;
    for (long t = begin; t < end; t++) {
        long from = t % blocks * BLOCK, n = ek_min(BLOCK, a->inner - from);
        const TX *x = (const TX *)a->x + t / blocks * a->reduced * a->inner + from;
        long y_at = t / blocks * a->inner + from;
        TX *y = (TX *)a->y + y_at;
        SUM sum[BLOCK], part[BLOCK];
        if (a->inner == 1) {
            const SUM whole = all(x, a->reduced);
            *y = RESULT(whole);
            continue;
        }
        for (long r = 0; r < a->reduced; r += RUN) {
            const TX *rows = x + r * a->inner;
            for (long i = 0; i < n; i++)
                part[i] = rows[i];
            for (long k = 1; k < ek_min(RUN, a->reduced - r); k++) {
                EK_VECTOR_LOOP
                for (long i = 0; i < n; i++)
                    part[i] = TAKE(part[i], rows[k * a->inner + i]);
            }
            EK_VECTOR_LOOP
            for (long i = 0; i < n; i++)
                sum[i] = r ? TAKE(sum[i], part[i]) : part[i];
        }
        for (long i = 0; i < n; i++)
            y[i] = RESULT(sum[i]);
    }
}
