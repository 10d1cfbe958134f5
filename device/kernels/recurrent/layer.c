/* Recurrent layers: at each time step the state's product with weights, then the gates.
 *
 * Compile-time parameters: NAME, EK_SIMD, MR (sequences of the batch that share a pass over the
 * weights), NV (vectors of a panel), one of OP_LSTM, OP_GRU, OP_RNN; GATE, SQUASH, LAST: functions;
 * PEEPHOLES (LSTM), LINEAR_BEFORE_RESET (GRU). */
#include "layer.h"
#include "../gemm/f32_tile.h"
#include "functions.h"

/* to[mr][nv vectors] = a[mr][k] . b; rows of `to` are `row` apart, those of b `b_row`. */
EK_INLINE void tile(const int mr, const int nv, const float *const a[MR], const float *b,
                    long b_row, long k, float *to, long row) {
    vf acc[MR][NV] = {0};
    f32_rows(mr, nv, 0, acc, a, (f32_columns){.at = b, .row = b_row}, k);
    EK_UNROLL
    for (int i = 0; i < mr; i++) {
        EK_UNROLL
        for (int j = 0; j < nv; j++)
            vf_store(to + i * row + j * EK_VL, acc[i][j]);
    }
}

/* sums[mr][columns] = state[mr][hidden] . weights, in whole vectors. Weights lie in panels of NV
 * vectors of columns, the last one of fewer, hidden rows each. */
EK_INLINE void product(const int mr, const ek_recurrent_args *g, const float *state, long state_row,
                       const float *weights, long columns, float *sums) {
    const long k = g->hidden, vectors = (columns + EK_VL - 1) / EK_VL;
    const long whole = vectors / NV * NV, rest = vectors - whole;
    const float *a[MR];
    EK_UNROLL
    for (int i = 0; i < mr; i++)
        a[i] = state + i * state_row;
    long j = 0;
    for (; j < whole; j += NV, weights += NV * EK_VL * k)
        tile(mr, NV, a, weights, NV * EK_VL, k, sums + j * EK_VL, g->row);
    for (; j < vectors; j++, weights += EK_VL)
        tile(mr, 1, a, weights, rest * EK_VL, k, sums + j * EK_VL, g->row);
}

#define BOUNDED(v, limit) apply_clamp(v, -(limit), limit)

/* The gates of one sequence at one step: `sums` is what `product` made. */
#if defined OP_LSTM
#define GATES 4
EK_INLINE void gates(const ek_recurrent_args *args, const float *restrict x,
                     const float *restrict sums, float *restrict state, float *restrict cell) {
    const ek_recurrent_args g = *args; /* a copy, so that stores cannot change it */
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
/* Where the hidden gate is reset first: what its product takes, r . h. */
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

/* Step t of mr sequences from `from` on. */
EK_INLINE void step(const int mr, const ek_recurrent_args *g, long from, long t) {
    const long n = g->hidden, row = g->row;
    const float *x = g->x + (t * g->batch + from) * GATES * n;
    float *state = g->state + from * n, *sums = g->scratch + from * row;
    float *y = g->y + (t * g->batch + from) * n;
    int inside[MR], any = 0;
    for (int i = 0; i < mr; i++)
        any |= inside[i] = !g->lengths || t < g->lengths[from + i];
    if (!any) {
        memset(y, 0, sizeof(float) * (size_t)(mr * n));
        return;
    }
#if defined OP_GRU && !defined LINEAR_BEFORE_RESET
    const long first = (2 * n + EK_VL - 1) / EK_VL * EK_VL;
    float *const inner = sums + first, *const after_reset = sums + row - n;
    product(mr, g, state, n, g->weights, 2 * n, sums);
    for (int i = 0; i < mr; i++)
        reset(g, x + i * GATES * n, sums + i * row, state + i * n, after_reset + i * row);
    product(mr, g, after_reset, row, g->inner, n, inner);
#else
    product(mr, g, state, n, g->weights, GATES * n, sums);
#endif
    for (int i = 0; i < mr; i++, x += GATES * n, sums += row, state += n, y += n) {
        if (!inside[i]) {
            memset(y, 0, sizeof(float) * (size_t)n);
            continue;
        }
#if defined OP_LSTM
        gates(g, x, sums, state, g->cell + (from + i) * n);
#elif defined OP_GRU
#ifdef LINEAR_BEFORE_RESET
        gates(g, x, sums, sums + 2 * n, state);
#else
        gates(g, x, sums, inner + i * row, state);
#endif
#else
        gates(g, x, sums, state);
#endif
        memcpy(y, state, sizeof(float) * (size_t)n);
    }
}

static void layer(const ek_recurrent_args *g, long from, int all) {
    const size_t bytes = sizeof(float) * (size_t)(g->hidden * (all ? MR : 1));
    memcpy(g->state + from * g->hidden, g->hidden_before + from * g->hidden, bytes);
#ifdef OP_LSTM
    memcpy(g->cell + from * g->hidden, g->cell_before + from * g->hidden, bytes);
#endif
    for (long s = 0; s < g->steps; s++) {
        const long t = g->backwards ? g->steps - 1 - s : s;
        if (all)
            step(MR, g, from, t);
        else
            step(1, g, from, t);
    }
}

/* Tasks: MR sequences of the batch, the last one of those that are left, one by one. */
void NAME(const void *args, long begin, long end) {
    const ek_recurrent_args *g = args;
    for (long from = begin * MR; from < ek_min(end * MR, g->batch);) {
        const int all = from + MR <= g->batch;
        layer(g, from, all);
        from += all ? MR : 1;
    }
}
