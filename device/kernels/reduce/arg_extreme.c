/* Indices of extremes: of the first one if several are equal, or with LAST the last.
 *
 * Compile-time parameters: NAME, EK_SIMD, TX, and OP_ARGMAX or OP_ARGMIN (y: int64_t). */
#include "total.h"

#define BLOCK EK_REDUCE_BLOCK
#define RUN 127           /* rows per run: every TX represents the numbers 1..RUN exactly */
#define PART (16 * BLOCK) /* values searched again for the position of the best */
#define FEW 4             /* number of rows worth transposing */

#ifdef OP_ARGMAX
#define BETTER(v, s) ((v) > (s))
#else
#define BETTER(v, s) ((v) < (s))
#endif
#ifdef LAST
#define TAKES(v, s) (!BETTER(s, v))
#else
#define TAKES(v, s) BETTER(v, s)
#endif

/* A single column. */
static long in_order(const TX *x, long rows, long pitch) {
    TX best = x[0];
    long at = 0;
    for (long r = 1; r < rows; r++) {
        const TX v = x[r * pitch];
        at = TAKES(v, best) ? r : at;
        best = TAKES(v, best) ? v : best;
    }
    return at;
}

/* `n` adjacent columns. Rows are numbered in TX, so that values and row numbers are vectors with
 * the same lanes. */
EK_INLINE void across(const TX *x, long rows, long pitch, int64_t *y, const long n) {
    TX best[BLOCK], number[BLOCK];
    for (long i = 0; i < n; i++)
        best[i] = x[i], y[i] = 0;
    for (long from = 1; from < rows; from += RUN) {
        for (long i = 0; i < n; i++)
            number[i] = 0;
        for (long r = 0; r < ek_min(RUN, rows - from); r++) {
            const TX *row = x + (from + r) * pitch;
            EK_VECTOR_LOOP
            for (long i = 0; i < n; i++) {
                const TX v = row[i], s = best[i];
                best[i] = TAKES(v, s) ? v : s;
                number[i] = TAKES(v, s) ? (TX)(r + 1) : number[i];
            }
        }
        for (long i = 0; i < n; i++)
            if (number[i] != 0)
                y[i] = from - 1 + (int64_t)number[i];
    }
}

/* `n` columns, at most BLOCK, in chunks of constant size. */
static void columns(const TX *x, long rows, long pitch, int64_t *y, long n) {
    if (n == BLOCK) {
        across(x, rows, pitch, y, BLOCK);
        return;
    }
    long i = 0;
    for (; i + 16 <= n; i += 16)
        across(x + i, rows, pitch, y + i, 16);
    for (; i + 4 <= n; i += 4)
        across(x + i, rows, pitch, y + i, 4);
    for (; i < n; i++)
        y[i] = in_order(x + i, rows, pitch);
}

/* At most BLOCK short rows of at most BLOCK values, which are transposed. */
static void __attribute__((noinline)) short_rows(const TX *x, long rows, long n, int64_t *y) {
    TX transposed[BLOCK * BLOCK];
    for (long i = 0; i < rows; i++, x += n) {
#pragma clang loop vectorize(disable) unroll_count(4)
        for (long r = 0; r < n; r++)
            transposed[r * BLOCK + i] = x[r];
    }
    columns(transposed, n, BLOCK, y, rows);
}

#ifndef LAST
/* The best of `start` and n values, with BLOCK independent candidates. Comparisons with NaN are
 * always false. */
static TX best_of(const TX *x, long n, TX start) {
    TX best[BLOCK];
    for (long j = 0; j < BLOCK; j++)
        best[j] = start;
    for (; n >= BLOCK; n -= BLOCK, x += BLOCK) {
        EK_VECTOR_LOOP
        for (long j = 0; j < BLOCK; j++)
            best[j] = BETTER(x[j], best[j]) ? x[j] : best[j];
    }
    for (long j = 0; j < n; j++)
        best[j] = BETTER(x[j], best[j]) ? x[j] : best[j];
    for (long width = BLOCK / 2; width; width /= 2)
        for (long j = 0; j < width; j++)
            best[j] = BETTER(best[width + j], best[j]) ? best[width + j] : best[j];
    return best[0];
}

/* Contiguous values: finds the part with the best value, then searches it for the position. */
static long along(const TX *x, long n) {
    TX best = x[0];
    long part = 0;
    for (long from = 0; from < n; from += PART) {
        const TX found = best_of(x + from, ek_min(PART, n - from), best);
        if (BETTER(found, best))
            best = found, part = from;
    }
    for (long i = part; i < ek_min(part + PART, n); i++)
        if (x[i] == best)
            return i;
    return 0; /* the first is NaN */
}
#endif

/* Task: outer index x block of inner. */
void NAME(const void *args, long begin, long end) {
    const ek_total_args *a = args;
    const long blocks = (a->inner + BLOCK - 1) / BLOCK;
    for (long t = begin, now; t < end; t += now) {
        const long from = t % blocks * BLOCK, n = ek_min(BLOCK, a->inner - from);
        const TX *x = (const TX *)a->x + t / blocks * a->reduced * a->inner + from;
        int64_t *y = (int64_t *)a->y + t / blocks * a->inner + from;
        now = 1;
        if (a->inner == 1 && a->reduced <= BLOCK && end - t >= FEW) {
            now = ek_min(BLOCK, end - t);
            short_rows(x, now, a->reduced, y);
            continue;
        }
#ifndef LAST
        if (a->inner == 1) {
            *y = along(x, a->reduced);
            continue;
        }
#endif
        columns(x, a->reduced, a->inner, y, n);
    }
}
