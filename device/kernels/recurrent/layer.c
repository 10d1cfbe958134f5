/* Recurrent layers: at each time step the product of the state with the weights, then the gates.
 *
 * Compile-time parameters: NAME, EK_SIMD, MR (sequences of the batch that share a pass over the
 * weights), NV (vectors per panel), one of OP_LSTM, OP_GRU, OP_RNN; GATE, SQUASH, LAST: functions;
 * PEEPHOLES (LSTM), LINEAR_BEFORE_RESET (GRU). */
#include "layer.h"
#include "../gemm/f32_tile.h"
#include "functions.h"

#define SHARED 65536 /* multiply-adds worth distributing at each step */

/* to[mr][nv vectors] = a[mr][k] . b; a_row, to_row and b_row are row strides. */
EK_INLINE void tile(const int mr, const int nv, const float *a, long a_row, const float *b,
                    long b_row, long k, float *to, long to_row) {
    vf acc[MR][NV] = {0};
    const float *x[MR];
    EK_UNROLL
    for (int i = 0; i < mr; i++)
        x[i] = a + i * a_row;
    f32_rows(mr, nv, 0, acc, x, (f32_columns){.at = b, .row = b_row}, k);
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
    const float *state;
    long state_row, count;
    const float *weights;
    long vectors; /* of columns */
    float *to;
} product_args;

/* Each panel is used for all blocks of MR rows before the next one, so that it stays in the nearest
 * cache. */
static void products(const void *task, long begin, long end) {
    const product_args *g = task;
    const long k = g->args->hidden, row = g->args->row, blocks = (g->count + MR - 1) / MR;
    for (long t = begin; t < end; t++) {
        const long first = t / blocks * NV, from = t % blocks * MR;
        const long wide = ek_min(NV, g->vectors - first), rows = ek_min(MR, g->count - from);
        const float *panel = g->weights + first * EK_VL * k,
                    *state = g->state + from * g->state_row;
        float *to = g->to + from * row + first * EK_VL;
        if (rows == MR && wide == NV) {
            tile(MR, NV, state, g->state_row, panel, NV * EK_VL, k, to, row);
            continue;
        }
        for (long i = 0; i < rows; i++, state += g->state_row, to += row) {
            if (wide == NV)
                tile(1, NV, state, 0, panel, NV * EK_VL, k, to, row);
            for (long j = 0; wide < NV && j < wide; j++)
                tile(1, 1, state, 0, panel + j * EK_VL, wide * EK_VL, k, to + j * EK_VL, row);
        }
    }
}

static void product(ek_pool *pool, const product_args *g) {
    const long blocks = (g->count + MR - 1) / MR, panels = (g->vectors + NV - 1) / NV;
    ek_parallel(pool, products, g, blocks * panels, 1);
}

#define BOUNDED(v, limit) apply_clamp(v, -(limit), limit)

/* The gates of one sequence at one step; `sums` comes from sums_of. */
#if defined OP_LSTM
#define GATES 4
EK_INLINE void gates(const ek_recurrent_args *args, const float *restrict x,
                     const float *restrict sums, float *restrict state, float *restrict cell) {
    const ek_recurrent_args g = *args; /* a copy, because stores might alias it */
    const long n = g.hidden;
    for (long j = 0; j < n; j++) {
        float i = x[j] + sums[j], o = x[n + j] + sums[n + j];
        float f = x[2 * n + j] + sums[2 * n + j];
        const float c = x[3 * n + j] + sums[3 * n + j];
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
EK_INLINE void reset(const ek_recurrent_args *args, const float *restrict x,
                     const float *restrict sums, const float *restrict state, float *restrict y) {
    const ek_recurrent_args g = *args;
    const long n = g.hidden;
    for (long j = 0; j < n; j++)
        y[j] = GATE(BOUNDED(x[n + j] + sums[n + j], g.clip), g.gate[0], g.gate[1]) * state[j];
}

/* `inner`: the hidden gate's product. */
EK_INLINE void gates(const ek_recurrent_args *args, const float *restrict x,
                     const float *restrict sums, const float *restrict inner,
                     float *restrict state) {
    const ek_recurrent_args g = *args;
    const long n = g.hidden;
    for (long j = 0; j < n; j++) {
        const float z = GATE(BOUNDED(x[j] + sums[j], g.clip), g.gate[0], g.gate[1]);
#ifdef LINEAR_BEFORE_RESET
        const float r = GATE(BOUNDED(x[n + j] + sums[n + j], g.clip), g.gate[0], g.gate[1]);
        const float all = x[2 * n + j] + r * (inner[j] + g.terms[j]);
#else
        const float all = x[2 * n + j] + inner[j];
#endif
        const float new = SQUASH(BOUNDED(all, g.clip), g.squash[0], g.squash[1]);
        state[j] = new + z * (state[j] - new);
    }
}
#else
#define GATES 1
EK_INLINE void gates(const ek_recurrent_args *args, const float *restrict x,
                     const float *restrict sums, float *restrict state) {
    const ek_recurrent_args g = *args;
    for (long j = 0; j < g.hidden; j++)
        state[j] = SQUASH(BOUNDED(x[j] + sums[j], g.clip), g.squash[0], g.squash[1]);
}
#endif

#if defined OP_GRU && !defined LINEAR_BEFORE_RESET
#define AT_ONCE 2 /* gates in the first product */
#else
#define AT_ONCE GATES
#endif
#define VECTORS(columns) (((columns) + EK_VL - 1) / EK_VL)

/* The state's contribution to the gates, for `count` sequences starting at `from`; x: see
 * `step`. */
static void sums_of(const ek_recurrent_args *g, ek_pool *pool, long from, long count,
                    const float *x) {
    const long n = g->hidden, row = g->row;
    float *state = g->state + from * n, *sums = g->scratch + from * row;
    product(pool, &(product_args){g, state, n, count, g->weights, VECTORS(AT_ONCE * n), sums});
#if AT_ONCE < GATES
    float *const inner = sums + VECTORS(2 * n) * EK_VL, *const after_reset = sums + row - n;
    for (long i = 0; i < count; i++)
        reset(g, x + i * GATES * n, sums + i * row, state + i * n, after_reset + i * row);
    product(pool, &(product_args){g, after_reset, row, count, g->inner, VECTORS(n), inner});
#else
    (void)x;
#endif
}

/* Step t of `count` sequences starting at `from`. */
static void step(const ek_recurrent_args *g, ek_pool *pool, long from, long count, long t) {
    const long n = g->hidden;
    const float *x = g->x + (t * g->batch + from) * GATES * n;
    const float *sums = g->scratch + from * g->row;
    const int32_t *lengths = g->lengths ? g->lengths + from : NULL;
    float *state = g->state + from * n, *y = g->y + (t * g->batch + from) * n;
    int any = !lengths;
    for (long i = 0; i < count && !any; i++)
        any = t < lengths[i];
    if (any)
        sums_of(g, pool, from, count, x);
    for (long i = 0; i < count; i++, x += GATES * n, sums += g->row, state += n, y += n) {
        if (lengths && t >= lengths[i]) {
            memset(y, 0, sizeof(float) * (size_t)n);
            continue;
        }
#if defined OP_LSTM
        gates(g, x, sums, state, g->cell + (from + i) * n);
#elif defined OP_GRU
        gates(g, x, sums, sums + (AT_ONCE < GATES ? VECTORS(2 * n) * EK_VL : 2 * n), state);
#else
        gates(g, x, sums, state);
#endif
        memcpy(y, state, sizeof(float) * (size_t)n);
    }
}

static void layer(const ek_recurrent_args *g, ek_pool *pool, long from, long count) {
    const size_t bytes = sizeof(float) * (size_t)(g->hidden * count);
    memcpy(g->state + from * g->hidden, g->hidden_before + from * g->hidden, bytes);
#ifdef OP_LSTM
    memcpy(g->cell + from * g->hidden, g->cell_before + from * g->hidden, bytes);
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
