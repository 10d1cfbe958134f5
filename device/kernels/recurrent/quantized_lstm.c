/* 8-bit quantized LSTMs: at each time step the products of input and state, then the gates.
 *
 * Compile-time parameters: NAME, CELL_BITS (integer bits of the cell). */
#include "quantized_lstm.h"
#include "../reduce/inverse_root.h"
#include "fixed16.h"

#define SHARED 65536 /* multiply-adds worth distributing at each step */
#define ROWS 16      /* rows of weights per task */

EK_DOT(dot, int8_t)

typedef struct {
    const ek_quantized_lstm_args *args;
    long from, t; /* first sequence, and step */
} now;

/* Task: a sequence starting at `from` x gate x block of cells; writes the gates' inputs. */
static void sums(const void *task, long begin, long end) {
    const now *n = task;
    const ek_quantized_lstm_args *g = n->args;
    const long width = g->gates * g->cells;
    for (long i = begin; i < end; i++) {
        const long b = n->from + i / width, row = i % width, gate = row / g->cells;
        const int32_t of_input = dot(g->x + (n->t * g->batch + b) * g->size,
                                     g->weights + row * g->size, g->size, g->bias[row]);
        const int32_t of_state =
            dot(g->hidden + b * g->out, g->recurrent + row * g->out, g->out, g->bias[width + row]);
        const int32_t first = ek_short(ek_rescaled(of_input, g->of_input[gate]));
        /* in 64 bits, because the second term is not saturated yet */
        const int64_t both = (int64_t)first + ek_rescaled(of_state, g->of_state[gate]);
        g->sums[b * width + row] = (int16_t)(both < INT16_MIN   ? INT16_MIN
                                             : both > INT16_MAX ? INT16_MAX
                                                                : both);
    }
}

/* Adds the cell's peephole `number` to a gate. */
static void add_peephole(const ek_quantized_lstm_args *g, int number, const int16_t *cell,
                         int16_t *gate) {
    const int16_t *weights = g->peepholes + number * g->cells;
    for (long j = 0; j < g->cells; j++) {
        const int64_t both =
            (int64_t)gate[j] + ek_rescaled(cell[j] * weights[j], g->of_cell[number]);
        gate[j] = (int16_t)(both < INT16_MIN ? INT16_MIN : both > INT16_MAX ? INT16_MAX : both);
    }
}

/* Normalizes gate `number` to zero mean and unit deviation, in units of 1/1024 until it is
 * scaled. */
static void normalize(const ek_quantized_lstm_args *g, int number, int16_t *gate) {
    const long n = g->cells;
    const int16_t *weights = g->norms + number * n;
    const int32_t *bias = g->norm_bias + number * n;
    int64_t total = 0, squares = 0;
    for (long j = 0; j < n; j++) {
        total += gate[j];
        squares += gate[j] * gate[j];
    }
    const int32_t mean = (int32_t)(total * 1024 / n);
    const int64_t variance = (squares * ((1 << 20) / n) - (int64_t)mean * mean) / (1 << 20);
    int shift;
    const int32_t root =
        ek_inverse_root(variance < 1 ? g->guards[number] : (int32_t)variance, &shift);
    for (long j = 0; j < n; j++) {
        const int32_t x = ek_rescaled(1024 * gate[j] - mean, (ek_factor){root, -shift});
        const int64_t sum = (int64_t)x * weights[j] + bias[j];
        const int32_t y = (int32_t)((sum + (sum > 0 ? 512 : -512)) / 1024);
        gate[j] = (int16_t)ek_short(ek_rescaled(y, g->of_norm[number]));
    }
}

static void logistic(int16_t *x, long n) {
    for (long j = 0; j < n; j++)
        x[j] = (int16_t)ek_logistic16(x[j]);
}

/* taken: NULL for 1 - forget. */
static void update(int16_t *restrict cell, const int16_t *input, const int16_t *forget,
                   const int16_t *new, long n) {
    for (long j = 0; j < n; j++) {
        const int32_t i = input ? input[j] : INT16_MAX - forget[j];
        const int32_t added = ek_shifted(i * ek_tanh16(new[j], 3), 15 + CELL_BITS);
        cell[j] = (int16_t)ek_short(ek_shifted(forget[j] * cell[j], 15) + added);
    }
}

static void write_hidden(const ek_quantized_lstm_args *g, const int16_t *output,
                         const int16_t *cell, int8_t *restrict to) {
    const ek_factor factor = g->to_hidden;
    const long n = g->cells;
    const int zero = g->hidden_zero;
    for (long j = 0; j < n; j++) {
        const int32_t h = ek_rescaled(output[j] * ek_tanh16(cell[j], CELL_BITS), factor);
        to[j] = (int8_t)ek_bounded(ek_short(h) + zero, INT8_MIN, INT8_MAX);
    }
}

/* Computes one sequence's new cell state and hidden values. */
static void gates(const ek_quantized_lstm_args *g, int16_t *sums, int16_t *cell, int8_t *to) {
    const long n = g->cells;
    const int forget = g->gates - 3; /* 0 without an input gate */
    int16_t *new = sums + (forget + 1) * n, *output = new + n;
    for (int i = 0; g->peepholes && i <= forget; i++)
        add_peephole(g, i, cell, sums + i * n);
    for (int i = 0; g->norms && i <= forget + 1; i++)
        normalize(g, i, sums + i * n);
    logistic(sums, (forget + 1) * n);
    update(cell, forget ? sums : NULL, sums + forget * n, new, n);
    for (long j = 0; g->cell_clip && j < n; j++)
        cell[j] = (int16_t)ek_bounded(cell[j], -g->cell_clip, g->cell_clip);
    if (g->peepholes)
        add_peephole(g, forget + 1, cell, output);
    if (g->norms)
        normalize(g, forget + 2, output);
    logistic(output, n);
    write_hidden(g, output, cell, to);
}

static void project(const ek_quantized_lstm_args *g, const int8_t *from, int8_t *to) {
    for (long o = 0; o < g->out; o++) {
        const int8_t *weights = g->projection + o * g->cells;
        const int32_t sum = dot(from, weights, g->cells, g->projection_bias[o]);
        int32_t y = ek_short(ek_rescaled(sum, g->to_output)) + g->zero;
        y = ek_bounded(y, INT8_MIN, INT8_MAX);
        to[o] = (int8_t)(g->clip ? ek_bounded(y, -g->clip, g->clip) : y);
    }
}

static void step(const ek_quantized_lstm_args *g, ek_pool *pool, long from, long count, long t) {
    ek_parallel(pool, sums, &(now){g, from, t}, count * g->gates * g->cells, ROWS);
    for (long b = from; b < from + count; b++) {
        int16_t *sums_of = g->sums + b * g->gates * g->cells;
        int8_t *hidden = g->hidden + b * g->out;
        int8_t *inner = g->projection ? g->inner + b * g->cells : hidden;
        gates(g, sums_of, g->cell + b * g->cells, inner);
        if (g->projection)
            project(g, inner, hidden);
        memcpy(g->y + (t * g->batch + b) * g->out, hidden, (size_t)g->out);
    }
}

static void layer(const ek_quantized_lstm_args *g, ek_pool *pool, long from, long count) {
    memcpy(g->hidden + from * g->out, g->hidden_before + from * g->out, (size_t)(count * g->out));
    memcpy(g->cell + from * g->cells, g->cell_before + from * g->cells,
           sizeof(int16_t) * (size_t)(count * g->cells));
    for (long t = 0; t < g->steps; t++)
        step(g, pool, from, count, t);
}

/* Task: one sequence of the batch. */
static void sequences(const void *args, long begin, long end) {
    layer(args, NULL, begin, end - begin);
}

/* Threads split the sequences, or if there are few, the products of each step. */
void NAME(const void *args, ek_pool *pool) {
    const ek_quantized_lstm_args *g = args;
    if (g->batch < ek_pool_threads(pool) &&
        g->batch * g->gates * g->cells * (g->size + g->out) >= SHARED)
        layer(g, pool, 0, g->batch);
    else
        ek_parallel(pool, sequences, g, g->batch, 1);
}
