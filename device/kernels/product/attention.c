/* Attention of queries to cached keys and values, which are read once, a block of tokens at a time:
 * the maximum of the scores so far is subtracted before the exponential function, and sums are
 * scaled down where it grows (Milakov and Gimelshein, 2018, "Online normalizer calculation for
 * softmax").
 *
 * Compile-time parameters: NAME, EK_SIMD, EIGHT: keys and values are s8 with a scale per token. */
#include "../kernel.h"
#include "../elementwise/exp_vector.h"

#ifdef EIGHT
typedef int8_t cached;
#else
typedef float cached;
#endif

typedef struct {
    long rows; /* queries per group of heads that share keys: heads x count */
    long count, context, size;
    long window; /* tokens that a query sees, or 0 for all before it */
    float scale, cap;
    const int32_t *position; /* of the first of `count` tokens */
    const float *query;      /* [shared][rows][size] */
    const void *keys;        /* [shared][context][size] */
    const void *values;
    const float *key_scale; /* [shared][context], or 0 */
    const float *value_scale;
    float *y; /* like query */
} ek_attention_args;

#define ROWS EK_ATTENTION_ROWS
#define BLOCK 64     /* tokens; a multiple of every EK_VL */
#define SMALL -80.0f /* e^SMALL is negligible, and no subnormal number */
#define AT_ONCE 4

typedef struct {
    const ek_attention_args *a;
    const float *query; /* of the group of heads, like the others */
    const cached *keys, *values;
    const float *key_scale, *value_scale;
    float *y;
    float most[ROWS], sum[ROWS];
    float share[ROWS][BLOCK] __attribute__((aligned(64)));
} attention;

/* Tokens [first, until) that a row sees. */
typedef struct {
    long first, until;
} seen;

static seen seen_by(const ek_attention_args *a, long row) {
    long at = (long)*a->position + row % a->count;
    at = ek_max(ek_min(at, a->context - 1), 0);
    return (seen){a->window ? ek_max(at + 1 - a->window, 0) : 0, at + 1};
}

/* The first n of a vector's values. */
EK_INLINE vf cached_load(const cached *p, long n) {
#ifdef EIGHT
    return vcast(n < EK_VL ? vi_from_s8_n(p, n) : vi_from_s8(p), vf);
#else
    return n < EK_VL ? vf_load_n(p, n) : vf_load(p);
#endif
}

EK_INLINE float key_scale(const attention *s, long token) {
#ifdef EIGHT
    return s->key_scale[token];
#else
    return 1;
#endif
}

/* share[row + r][t]: products of `rows` queries and `tokens` keys. */
EK_INLINE void multiply(attention *s, const int rows, const int tokens, long row, long at,
                        float *to) {
    const long size = s->a->size;
    const float *query = s->query + row * size;
    const cached *keys = s->keys + at * size;
    vf sum[2][AT_ONCE];
    EK_UNROLL
    for (int i = 0; i < rows * tokens; i++)
        sum[i / tokens][i % tokens] = vf_splat(0);
    for (long c = 0; c < size; c += EK_VL) {
        const long left = size - c;
        vf k[AT_ONCE];
        EK_UNROLL
        for (int t = 0; t < tokens; t++)
            k[t] = cached_load(keys + t * size + c, left);
        EK_UNROLL
        for (int r = 0; r < rows; r++) {
            const float *from = query + r * size + c;
            const vf q = left < EK_VL ? vf_load_n(from, left) : vf_load(from);
            EK_UNROLL
            for (int t = 0; t < tokens; t++)
                sum[r][t] = vf_fma(q, k[t], sum[r][t]);
        }
    }
    EK_UNROLL
    for (int i = 0; i < rows * tokens; i++)
        to[i / tokens * BLOCK + i % tokens] =
            vf_sum(sum[i / tokens][i % tokens]) * key_scale(s, at + i % tokens);
}

/* Scores of `rows` queries for tokens [at, until). */
EK_INLINE void score(attention *s, const int rows, long row, long at, long until, long block) {
    for (; at + AT_ONCE <= until; at += AT_ONCE)
        multiply(s, rows, AT_ONCE, row, at, &s->share[row % ROWS][at - block]);
    for (; at < until; at++)
        multiply(s, rows, 1, row, at, &s->share[row % ROWS][at - block]);
}

EK_INLINE vf power(vf x) {
    static const float each[2] = {EK_LOG2E, EK_LOG2E_REST};
    vf v[1] = {vf_max(x, vf_splat(SMALL))};
    ek_powers(v, each, EK_SHIFT, 1);
    return v[0];
}

/* Turns scores of tokens [first, until) of a block into shares, and scales y to a new maximum. */
static void normalize(attention *s, long row, long first, long until) {
    const ek_attention_args *a = s->a;
    float *share = s->share[row % ROWS], most = s->most[row % ROWS];
    for (long t = 0; t < BLOCK; t += EK_VL) {
        vf v = vf_load(share + t) * vf_splat(a->scale);
        if (a->cap > 0) { /* tanh(x) = 1 - 2 / (1 + e^2x) */
            const vf twice = vf_clamp(v * (2 / a->cap), vf_bound(SMALL), vf_bound(-SMALL));
            v = a->cap - 2 * a->cap / (1 + power(twice));
        }
        vf_store(share + t, v);
    }
    for (long t = 0; t < BLOCK; t++)
        share[t] = t < first || t >= until ? -INFINITY : share[t];
    for (long t = first; t < until; t++)
        most = share[t] > most ? share[t] : most;
    vf sum = vf_splat(0);
    for (long t = 0; t < BLOCK; t += EK_VL) {
        const vf v = vf_load(share + t), p = power(v - most);
        const vf kept = vf_where(EK_MASK(v == vf_splat(-INFINITY)), vf_splat(0), p);
        sum += kept;
        vf_store(share + t, kept);
    }
    float down[EK_VL];
    vf_store(down, power(vf_splat(s->most[row % ROWS] - most)));
    if (s->most[row % ROWS] != most) {
        float *y = s->y + row * a->size;
        for (long c = 0; c < a->size; c++)
            y[c] *= down[0];
        s->sum[row % ROWS] *= down[0];
    }
    s->most[row % ROWS] = most;
    s->sum[row % ROWS] += vf_sum(sum);
}

/* y += shares of tokens [at, until) times values, for `rows` rows and `vectors` vectors. */
EK_INLINE void add(attention *s, const int rows, const int vectors, long row, long c, long n,
                   long at, long until, long block) {
    const long size = s->a->size;
    float *y = s->y + row * size + c;
    vf sum[2][AT_ONCE];
    EK_UNROLL
    for (int i = 0; i < rows * vectors; i++) {
        float *from = y + i / vectors * size + i % vectors * EK_VL;
        sum[i / vectors][i % vectors] = n < EK_VL ? vf_load_n(from, n) : vf_load(from);
    }
    const cached *values = s->values + at * size + c;
    for (long t = at - block; t < until - block; t++, values += size) {
        EK_UNROLL
        for (int i = 0; i < vectors; i++) {
            const vf v = cached_load(values + i * EK_VL, n);
            EK_UNROLL
            for (int r = 0; r < rows; r++)
                sum[r][i] = vf_fma(vf_splat(s->share[row % ROWS + r][t]), v, sum[r][i]);
        }
    }
    EK_UNROLL
    for (int i = 0; i < rows * vectors; i++) {
        float *to = y + i / vectors * size + i % vectors * EK_VL;
        if (n < EK_VL)
            vf_store_n(to, sum[i / vectors][i % vectors], n);
        else
            vf_store(to, sum[i / vectors][i % vectors]);
    }
}

/* A block of tokens by `rows` rows; those that only one of two rows sees have a share of 0 in the
 * other. */
EK_INLINE void attend(attention *s, const int rows, long row, long block) {
    const seen one = seen_by(s->a, row), other = seen_by(s->a, row + rows - 1);
    const long end = ek_min(block + BLOCK, s->a->context), size = s->a->size;
    const long at = ek_max(ek_min(one.first, other.first), block);
    const long until = ek_min(ek_max(one.until, other.until), end);
    if (at >= until)
        return;
    score(s, rows, row, at, until, block);
    for (int r = 0; r < rows; r++) {
        const seen by = r ? other : one;
        normalize(s, row + r, ek_max(by.first, at) - block, ek_min(by.until, until) - block);
#ifdef EIGHT
        for (long t = at; t < until; t++)
            s->share[(row + r) % ROWS][t - block] *= s->value_scale[t];
#endif
    }
    long c = 0;
    for (; c + AT_ONCE * EK_VL <= size; c += AT_ONCE * EK_VL)
        add(s, rows, AT_ONCE, row, c, EK_VL, at, until, block);
    for (; c < size; c += EK_VL)
        add(s, rows, 1, row, c, size - c, at, until, block);
}

/* Task: at most ROWS queries of a group of heads. */
void NAME(const void *args, long begin, long end) {
    const ek_attention_args *a = args;
    const long blocks = (a->rows + ROWS - 1) / ROWS;
    attention s = {.a = a};
    for (long task = begin; task < end; task++) {
        const long group = task / blocks, from = task % blocks * ROWS;
        const long to = ek_min(from + ROWS, a->rows), all = a->context * a->size;
        s.query = a->query + group * a->rows * a->size;
        s.y = a->y + group * a->rows * a->size;
        s.keys = (const cached *)a->keys + group * all;
        s.values = (const cached *)a->values + group * all;
#ifdef EIGHT
        s.key_scale = a->key_scale + group * a->context;
        s.value_scale = a->value_scale + group * a->context;
#endif
        long first = a->context, until = 0;
        for (long row = from; row < to; row++) {
            const seen by = seen_by(a, row);
            first = ek_min(first, by.first), until = ek_max(until, by.until);
            s.most[row % ROWS] = -INFINITY, s.sum[row % ROWS] = 0;
        }
        memset(s.y + from * a->size, 0, (size_t)((to - from) * a->size) * sizeof *s.y);
        memset(s.share, 0, sizeof s.share);
        for (long block = first / BLOCK * BLOCK; block < until; block += BLOCK) {
            long row = from;
            for (; row + 2 <= to; row += 2)
                attend(&s, 2, row, block);
            if (row < to)
                attend(&s, 1, row, block);
        }
        for (long row = from; row < to; row++)
            for (long c = 0; c < a->size; c++)
                s.y[row * a->size + c] /= s.sum[row % ROWS];
    }
}
