/* Recurrent layers: at each time step the product of the state with the weights, then the gates.
 *
 * Compile-time parameters: NAME, EK_SIMD, MR (sequences of the batch that share a pass over the
 * weights), NV (vectors per panel), one of OP_LSTM, OP_GRU, OP_RNN; GATE, SQUASH, LAST: functions;
 * PEEPHOLES (LSTM), LINEAR_BEFORE_RESET (GRU), CLIPPED (clip or cell_clip is finite);
 * NARROW: bits of the stored weights of f32 products (gemm/narrow.h).
 *
 * With EK_HALF, x, y, the weights and the operand of each product are f16. States are f32: in f16,
 * the small changes of many steps would be lost. */
#include "layer.h"
#include "../elementwise/exp_vector.h"
#include "../gemm/f32_tile.h"
#include "functions.h"

#define SHARED 65536 /* multiply-adds worth distributing at each step */

#ifdef NARROW
typedef narrow weight;
#else
typedef ek_real weight;
#endif

#if defined NARROW || (defined EK_HALF && EK_IN_ORDER && F32_LANES)
#define PREFETCH_DISTANCE 256 /* weights */

/* Vector j of a row of weights. */
EK_INLINE vf load_weights(const weight *row, const float *scales, int j) {
#if defined NARROW && NARROW == 8
    return narrow_load(row + j * EK_VL) * vf_load(scales + j * EK_VL);
#elif defined NARROW
    (void)scales;
    return narrow_load(row + j * EK_VL);
#else
    (void)scales;
    return vf_load(row + j * EK_VL);
#endif
}

/* acc += x . b, as f32_rows; in-order cores wait less with prefetches. */
EK_INLINE void multiply(const int mr, const int nv, vf acc[MR][NV], const ek_real *const x[MR],
                        const weight *b, long b_row, const float *scales, long k) {
#ifdef EK_HALF
    if (F32_ROWS_AHEAD(mr, nv)) { /* more rows hide the loads */
        f32_rows(mr, nv, 0, acc, x, (f32_columns){.at = b, .row = b_row}, k);
        return;
    }
#endif
    const int sets = F32_SETS(mr, nv);
    vf sum[4][MR][NV] = {0};
    long p = 0;
    for (; p + EK_VL <= k; p += EK_VL) {
        EK_UNROLL
        for (int l = 0; l < EK_VL; l++, b += b_row) {
            if (EK_IN_ORDER)
                __builtin_prefetch(b + PREFETCH_DISTANCE);
            EK_UNROLL
            for (int j = 0; j < nv; j++) {
                const vf column = load_weights(b, scales, j);
                EK_UNROLL
                for (int i = 0; i < mr; i++) {
                    vf *to = sets > 1 ? &sum[l % sets][i][j] : &acc[i][j];
                    *to = vf_fma(vf_splat(vlane(vf_load(x[i] + p), l)), column, *to);
                }
            }
        }
    }
    if (sets > 1)
        f32_add_sets(mr, nv, acc, sum);
    for (; p < k; p++, b += b_row) {
        EK_UNROLL
        for (int i = 0; i < mr; i++) {
            EK_UNROLL
            for (int j = 0; j < nv; j++)
                acc[i][j] = vf_fma(vf_splat(x[i][p]), load_weights(b, scales, j), acc[i][j]);
        }
    }
}
#else
EK_INLINE void multiply(const int mr, const int nv, vf acc[MR][NV], const ek_real *const x[MR],
                        const weight *b, long b_row, const float *scales, long k) {
    (void)scales;
    f32_rows(mr, nv, 0, acc, x, (f32_columns){.at = b, .row = b_row}, k);
}
#endif

/* to[mr][nv vectors] = a[mr][k] . b; a_row, to_row and b_row are row strides. f16 products are
 * summed in runs of EK_HALF_SUMS, and these in f32. */
EK_INLINE void tile(const int mr, const int nv, const ek_real *a, long a_row, const weight *b,
                    long b_row, const float *scales, long k, ek_real *to, long to_row) {
    vf acc[MR][NV] = {0};
    const ek_real *x[MR];
    EK_UNROLL
    for (int i = 0; i < mr; i++)
        x[i] = a + i * a_row;
#ifdef EK_HALF
    ek_wide total[MR][NV] = {0};
    for (long length; k > 0; k -= length, b += length * b_row) {
        length = ek_min(k, EK_HALF_SUMS);
        memset(acc, 0, sizeof acc);
        multiply(mr, nv, acc, x, b, b_row, scales, length);
        EK_UNROLL
        for (int i = 0; i < mr; i++) {
            EK_UNROLL
            for (int j = 0; j < nv; j++)
                total[i][j] += vcast(acc[i][j], ek_wide);
            x[i] += length;
        }
    }
    EK_UNROLL
    for (int i = 0; i < mr * nv; i++)
        acc[i / nv][i % nv] = vcast(total[i / nv][i % nv], vf);
#else
    multiply(mr, nv, acc, x, b, b_row, scales, k);
#endif
    EK_UNROLL
    for (int i = 0; i < mr; i++) {
        EK_UNROLL
        for (int j = 0; j < nv; j++)
            vf_store(to + i * to_row + j * EK_VL, acc[i][j]);
    }
}

/* Columns of `weights` times rows of the state: to[count][columns], padded to full vectors, with
 * row stride `row` of the args. Weights are in panels of NV vectors of columns (the last may have
 * fewer), each with hidden rows. */
typedef struct {
    const ek_recurrent_args *args;
    const ek_real *state;
    long state_row, count;
    const void *weights;
    const float *scales; /* of the columns (s8 only) */
    long vectors;        /* of columns */
    ek_real *to;
} product_args;

/* Each panel is used for all blocks of MR rows before the next one, so that it stays in the nearest
 * cache. */
static void products(const void *task, long begin, long end) {
    const product_args *g = task;
    const long k = g->args->hidden, row = g->args->row, blocks = (g->count + MR - 1) / MR;
    for (long t = begin; t < end; t++) {
        const long first = t / blocks * NV, from = t % blocks * MR;
        const long wide = ek_min(NV, g->vectors - first), rows = ek_min(MR, g->count - from);
        const weight *panel = (const weight *)g->weights + first * EK_VL * k;
        const float *scales = g->scales ? g->scales + first * EK_VL : NULL;
        const ek_real *state = g->state + from * g->state_row;
        ek_real *to = g->to + from * row + first * EK_VL;
        if (rows == MR && wide == NV) {
            tile(MR, NV, state, g->state_row, panel, NV * EK_VL, scales, k, to, row);
            continue;
        }
        for (long i = 0; i < rows; i++, state += g->state_row, to += row) {
            if (wide == NV)
                tile(1, NV, state, 0, panel, NV * EK_VL, scales, k, to, row);
            for (long j = 0; wide < NV && j < wide; j++)
                tile(1, 1, state, 0, panel + j * EK_VL, wide * EK_VL,
                     scales ? scales + j * EK_VL : NULL, k, to + j * EK_VL, row);
        }
    }
}

static void product(ek_pool *pool, const product_args *g) {
    const long blocks = (g->count + MR - 1) / MR, panels = (g->vectors + NV - 1) / NV;
    ek_parallel(pool, products, g, blocks * panels, 1);
}

#ifdef CLIPPED
#define BOUNDED(v, limit) apply_clamp(v, -(limit), limit)
#else
#define BOUNDED(v, limit) (v)
#endif
/* A gate's input: contributions of the input and of the state. */
#define SUM(gate) ((float)x[(gate) * n + j] + (float)sums[(gate) * n + j])

/* The gates of one sequence at one step; `sums` comes from sums_of. */
#if defined OP_LSTM
#define GATES 4
EK_INLINE void gates(const ek_recurrent_args *args, const ek_real *restrict x,
                     const ek_real *restrict sums, float *restrict state, float *restrict cell) {
    const ek_recurrent_args g = *args; /* a copy, because stores might alias it */
    const long n = g.hidden;
    for (long j = 0; j < n; j++) {
        float i = SUM(0), o = SUM(1), f = SUM(2);
        const float c = SUM(3);
#ifdef PEEPHOLES
        i += g.terms[j] * cell[j];
        f += g.terms[2 * n + j] * cell[j];
#endif
        i = GATE(BOUNDED(i, g.clip), g.gate[0], g.gate[1]);
        f = GATE(BOUNDED(f, g.clip), g.gate[0], g.gate[1]);
        const float now = f * cell[j] + i * SQUASH(BOUNDED(c, g.clip), g.squash[0], g.squash[1]);
        const float kept = BOUNDED(now, g.cell_clip);
#ifdef PEEPHOLES
        o += g.terms[n + j] * kept;
#endif
        o = GATE(BOUNDED(o, g.clip), g.gate[0], g.gate[1]);
        cell[j] = kept;
        state[j] = o * LAST(kept, g.last[0], g.last[1]);
    }
}
#elif defined OP_GRU
#define GATES 3
/* If the hidden gate is reset first: the input of its product, r . h. */
EK_INLINE void reset(const ek_recurrent_args *args, const ek_real *restrict x,
                     const ek_real *restrict sums, const float *restrict state,
                     ek_real *restrict y) {
    const ek_recurrent_args g = *args;
    const long n = g.hidden;
    for (long j = 0; j < n; j++)
        y[j] = (ek_real)(GATE(BOUNDED(SUM(1), g.clip), g.gate[0], g.gate[1]) * state[j]);
}

/* `inner`: the hidden gate's product. */
EK_INLINE void gates(const ek_recurrent_args *args, const ek_real *restrict x,
                     const ek_real *restrict sums, const ek_real *restrict inner,
                     float *restrict state) {
    const ek_recurrent_args g = *args;
    const long n = g.hidden;
    for (long j = 0; j < n; j++) {
        const float z = GATE(BOUNDED(SUM(0), g.clip), g.gate[0], g.gate[1]);
#ifdef LINEAR_BEFORE_RESET
        const float r = GATE(BOUNDED(SUM(1), g.clip), g.gate[0], g.gate[1]);
        const float all = (float)x[2 * n + j] + r * ((float)inner[j] + g.terms[j]);
#else
        const float all = (float)x[2 * n + j] + (float)inner[j];
#endif
        const float new = SQUASH(BOUNDED(all, g.clip), g.squash[0], g.squash[1]);
        state[j] = new + z * (state[j] - new);
    }
}
#else
#define GATES 1
EK_INLINE void gates(const ek_recurrent_args *args, const ek_real *restrict x,
                     const ek_real *restrict sums, float *restrict state) {
    const ek_recurrent_args g = *args;
    const long n = g.hidden;
    for (long j = 0; j < n; j++)
        state[j] = SQUASH(BOUNDED(SUM(0), g.clip), g.squash[0], g.squash[1]);
}
#endif

#if defined OP_GRU && !defined LINEAR_BEFORE_RESET
#define AT_ONCE 2 /* gates in the first product */
#else
#define AT_ONCE GATES
#endif
#define VECTORS(columns) (((columns) + EK_VL - 1) / EK_VL)

/* A row of scratch memory: sums of the gates and, if the hidden gate is reset first, of that gate,
 * in full vectors, and the input of its product; with EK_HALF, the state in f16. */
EK_INLINE ek_real *scratch_of(const ek_recurrent_args *g, long sequence) {
    return (ek_real *)g->scratch + sequence * g->row;
}
#ifdef EK_HALF
#define STATES 1 /* in a row of scratch memory */

static void round_state(const ek_recurrent_args *g, long sequence) {
    const float *restrict state = g->state + sequence * g->hidden;
    ek_real *restrict to = scratch_of(g, sequence) + g->row - g->hidden;
    for (long j = 0; j < g->hidden; j++)
        to[j] = (ek_real)state[j];
}
#else
#define STATES 0
#endif

/* The state's contribution to the gates, for `count` sequences starting at `from`; x: see
 * `step`. */
static void sums_of(const ek_recurrent_args *g, ek_pool *pool, long from, long count,
                    const ek_real *x) {
    const long n = g->hidden, row = g->row, end = row - STATES * n;
    ek_real *sums = scratch_of(g, from);
#ifdef EK_HALF
    const ek_real *state = sums + end;
    const long state_row = row;
#else
    const ek_real *state = g->state + from * n;
    const long state_row = n;
#endif
    const product_args all = {
        g, state, state_row, count, g->weights, g->scales, VECTORS(AT_ONCE * n), sums};
    product(pool, &all);
#if AT_ONCE < GATES
    const float *before = g->state + from * n;
    ek_real *const inner = sums + VECTORS(2 * n) * EK_VL, *const after_reset = sums + end - n;
    for (long i = 0; i < count; i++)
        reset(g, x + i * GATES * n, sums + i * row, before + i * n, after_reset + i * row);
    product(pool, &(product_args){g, after_reset, row, count, g->inner, g->inner_scales, VECTORS(n),
                                  inner});
#else
    (void)x;
#endif
}

/* Step t of `count` sequences starting at `from`. */
static void step(const ek_recurrent_args *g, ek_pool *pool, long from, long count, long t) {
    const long n = g->hidden;
    const ek_real *x = (const ek_real *)g->x + (t * g->batch + from) * GATES * n;
    const ek_real *sums = scratch_of(g, from);
    const int32_t *lengths = g->lengths ? g->lengths + from : NULL;
    float *state = g->state + from * n;
    ek_real *y = (ek_real *)g->y + (t * g->batch + from) * n;
    int any = !lengths;
    for (long i = 0; i < count && !any; i++)
        any = t < lengths[i];
    if (any)
        sums_of(g, pool, from, count, x);
    for (long i = 0; i < count; i++, x += GATES * n, sums += g->row, state += n, y += n) {
        if (lengths && t >= lengths[i]) {
            memset(y, 0, sizeof *y * (size_t)n);
            continue;
        }
#if defined OP_LSTM
        gates(g, x, sums, state, g->cell + (from + i) * n);
#elif defined OP_GRU
        gates(g, x, sums, sums + (AT_ONCE < GATES ? VECTORS(2 * n) * EK_VL : 2 * n), state);
#else
        gates(g, x, sums, state);
#endif
#ifdef EK_HALF
        round_state(g, from + i);
        memcpy(y, sums + g->row - n, sizeof *y * (size_t)n);
#else
        memcpy(y, state, sizeof *y * (size_t)n);
#endif
    }
}

static void layer(const ek_recurrent_args *g, ek_pool *pool, long from, long count) {
    const size_t bytes = sizeof(float) * (size_t)(g->hidden * count);
    memcpy(g->state + from * g->hidden, g->hidden_before + from * g->hidden, bytes);
#ifdef OP_LSTM
    memcpy(g->cell + from * g->hidden, g->cell_before + from * g->hidden, bytes);
#endif
#ifdef EK_HALF
    for (long i = 0; i < count; i++)
        round_state(g, from + i);
#endif
    for (long s = 0; s < g->steps; s++)
        step(g, pool, from, count, g->backwards ? g->steps - 1 - s : s);
}

/* Task: MR sequences of the batch. */
static void sequences(const void *args, long begin, long end) {
    const ek_recurrent_args *g = args;
    for (long from = begin * MR; from < ek_min(end * MR, g->batch); from += MR)
        layer(g, NULL, from, ek_min(MR, g->batch - from));
}

/* Threads split the sequences, or if there are few, the product of each step. */
void NAME(const void *args, ek_pool *pool) {
    const ek_recurrent_args *g = args;
    const long blocks = (g->batch + MR - 1) / MR;
    if (blocks < ek_pool_threads(pool) && g->hidden * g->hidden * GATES >= SHARED)
        layer(g, pool, 0, g->batch);
    else
        ek_parallel(pool, sequences, g, blocks, 1);
}
