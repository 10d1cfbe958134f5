/* Convolutions of s16 images with s8 weights: s64 totals, accumulated in s32 parts.
 *
 * Compile-time parameters: NAME, EK_SIMD, BLOCK (channels of y that a task computes per pixel);
 * DEPTHWISE: each channel of x yields `share` channels of y; TWICE: totals wrap to s32, and
 * requantization rounds both the product with the multiplier and the shift; ONCE: it rounds halves
 * away from zero, not up. */
#include "conv_16x8.h"

#define RUN 256 /* number of s16 x s8 products whose sum fits s32 */

typedef struct {
    int64_t total[BLOCK];
    int32_t part[BLOCK];
    long count; /* products accumulated in each part */
} block;

static void flush(block *b) {
    for (int j = 0; j < BLOCK; j++) {
        b->total[j] += b->part[j];
        b->part[j] = 0;
    }
    b->count = 0;
}

#ifdef DEPTHWISE
/* One tap of the window for n channels starting at `first`. */
EK_INLINE void add(block *b, const ek_conv_16x8_args *a, const int16_t *x, const int8_t *w,
                   long first, long n) {
    if (b->count == RUN)
        flush(b);
    b->count++;
    if (a->share == 1) {
        for (long j = 0; j < n; j++)
            b->part[j] += x[first + j] * w[first + j];
    } else {
        for (long j = 0; j < n; j++)
            b->part[j] += x[(first + j) / a->share] * w[first + j];
    }
}
#else
/* One tap of the window for all channels of a group. */
EK_INLINE void add(block *b, const int16_t *x, const int8_t *w, long depth) {
    for (long from = 0; from < depth; from += RUN) {
        const long n = ek_min(RUN, depth - from);
        if (b->count + n > RUN)
            flush(b);
        b->count += n;
        int32_t part[BLOCK];
        memcpy(part, b->part, sizeof part);
        for (long i = from; i < from + n; i++) {
            const int8_t *row = w + i * BLOCK;
            for (int j = 0; j < BLOCK; j++)
                part[j] += x[i] * row[j];
        }
        memcpy(b->part, part, sizeof part);
    }
}
#endif

#ifdef TWICE
static int64_t rescale(int64_t total, int32_t multiplier, int32_t right) {
    const int32_t x = (int32_t)((uint32_t)total << (right < 0 ? -right : 0));
    const int64_t product = (int64_t)x * multiplier;
    const int64_t high = (product + (product < 0 ? 1 - (1LL << 30) : 1LL << 30)) / (1LL << 31);
    const int shift = right < 0 ? 0 : right;
    const int64_t mask = (1LL << shift) - 1;
    return (high >> shift) + ((high & mask) > (mask >> 1) + (high < 0));
}
#else
static int64_t rescale(int64_t total, int32_t multiplier, int32_t right) {
    const uint64_t product = (uint64_t)total * (uint64_t)(int64_t)multiplier;
#ifdef ONCE
    return (int64_t)(product + (1ULL << (right - 1)) - (total < 0)) >> right;
#else
    return (int64_t)(product + (1ULL << (right - 1))) >> right;
#endif
}
#endif

static void finish(const ek_conv_16x8_args *a, block *b, int16_t *y, long first, long n) {
    flush(b);
    for (long j = 0; j < n; j++) {
        const long o = first + j;
        const int64_t v = rescale(b->total[j] + a->bias[o], a->multiplier[o], a->right[o]);
        y[o] = (int16_t)(v < a->low ? a->low : v > a->high ? a->high : v);
    }
}

/* Task: pixel of y x group x block of channels. */
void NAME(const void *args, long begin, long end) {
    const ek_conv_16x8_args *a = args;
    const ek_window *g = &a->win;
    const long taps = (long)g->kh * g->kw;
    for (long t = begin; t < end; t++) {
        const long part = t % a->blocks, group = t / a->blocks % a->groups;
        const long pixel = t / a->blocks / a->groups;
        const long column = pixel % g->ow, row = pixel / g->ow % g->oh,
                   image = pixel / g->ow / g->oh;
        const long first = group * a->share + part * BLOCK;
        block b = {0};
#ifdef DEPTHWISE
        const long n = ek_min(BLOCK, g->oc - first);
#else
        const long n = ek_min(BLOCK, a->share - part * BLOCK);
        const int8_t *weights = a->weights + (group * a->blocks + part) * taps * a->depth * BLOCK;
#endif
        for (long tap = 0; tap < taps; tap++) {
            const long r = row * g->sh - g->top + tap / g->kw * g->dh;
            const long c = column * g->sw - g->left + tap % g->kw * g->dw;
            if (r < 0 || r >= g->h || c < 0 || c >= g->w)
                continue;
            const int16_t *x = a->x + ((image * g->h + r) * g->w + c) * g->c;
#ifdef DEPTHWISE
            add(&b, a, x, a->weights + tap * g->oc, first, n);
#else
            add(&b, x + group * a->depth, weights + tap * a->depth * BLOCK, a->depth);
#endif
        }
        finish(a, &b, a->y + pixel * g->oc, first, n);
    }
}
