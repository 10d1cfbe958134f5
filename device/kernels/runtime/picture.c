/* ek_fit_picture: letterbox, color order, normalization and layout in one pass over the input. */
#include "picture.h"
#include <string.h>

enum { RUN = 256, COLORS = 3 }; /* pixels at a time, which stay in the L1 cache */

typedef struct {
    int64_t low, high; /* the two taps */
    int weight;        /* of the second one, of 256 */
} taps;

/* The taps of pixel `i` of `size` that are made of `from` pixels: centers lie on centers. */
static inline taps taps_of(int64_t i, int64_t size, int64_t from) {
    int64_t at = (((2 * i + 1) * from) << 15) / size - (1 << 15);
    at = at < 0 ? 0 : at;
    int64_t low = at >> 16, last = from - 1;
    taps t = {low < last ? low : last, low < last ? low + 1 : last, (int)(at >> 8 & 255)};
    return t;
}

static void resize(const ek_picture *p, int64_t row, int64_t column, int64_t count, uint8_t *run) {
    taps y = taps_of(row, p->down, p->height);
    const uint8_t *upper = p->pixels + y.low * p->stride, *lower = p->pixels + y.high * p->stride;
    for (int64_t i = 0; i < count; i++) {
        taps x = taps_of(column + i, p->across, p->width);
        for (int64_t c = 0; c < COLORS; c++) {
            int64_t a = COLORS * x.low + c, b = COLORS * x.high + c;
            int above = upper[a] * (256 - x.weight) + upper[b] * x.weight;
            int below = lower[a] * (256 - x.weight) + lower[b] * x.weight;
            int sum = above * (256 - y.weight) + below * y.weight;
            run[COLORS * i + c] = (uint8_t)((sum + (1 << 15)) >> 16);
        }
    }
}

/* Pixels `column` to `column` + `count` of a row of the input, as bytes of three colors. */
static void gather(const ek_picture *p, int64_t row, int64_t column, int64_t count, uint8_t *run) {
    int64_t from = p->left > column ? p->left : column, end = p->left + p->across;
    end = end < column + count ? end : column + count;
    memset(run, (int)p->fill, (size_t)(COLORS * count));
    row -= p->top;
    if (row < 0 || row >= p->down || from >= end)
        return;
    uint8_t *target = run + COLORS * (from - column);
    if (p->across == p->width && p->down == p->height)
        memcpy(target, p->pixels + row * p->stride + COLORS * (from - p->left),
               (size_t)(COLORS * (end - from)));
    else
        resize(p, row, from - p->left, end - from, target);
}

/* Brightness as ITU-R BT.601 defines it, in place of the colors. */
static void gray(uint8_t *run, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *color = run + COLORS * i;
        int sum = 19595 * color[0] + 38470 * color[1] + 7471 * color[2];
        run[i] = (uint8_t)((sum + (1 << 15)) >> 16);
    }
}

/* One channel after the other: at the same time, three planes would evict each other from a cache
 * of two ways. */
static void put_planes(const ek_picture *p, const uint8_t *restrict run, int64_t count,
                       float *restrict target, int64_t plane) {
    uint8_t apart[COLORS][RUN];
    for (int64_t i = 0; i < count; i++)
        for (int64_t c = 0; c < COLORS; c++)
            apart[c][i] = run[COLORS * i + c];
    for (int64_t c = 0; c < COLORS; c++) {
        const uint8_t *restrict from = apart[p->reversed ? COLORS - 1 - c : c];
        const float factor = p->factor[c], shift = p->shift[c];
        for (int64_t i = 0; i < count; i++)
            target[c * plane + i] = (float)from[i] * factor + shift;
    }
}

static void put_pixels(const ek_picture *p, const uint8_t *restrict run, int64_t count,
                       float *restrict target) {
    const int64_t first = p->reversed ? COLORS - 1 : 0, last = COLORS - 1 - first;
    const float f0 = p->factor[0], f1 = p->factor[1], f2 = p->factor[2];
    const float s0 = p->shift[0], s1 = p->shift[1], s2 = p->shift[2];
    for (int64_t i = 0; i < COLORS * count; i += COLORS) {
        target[i] = (float)run[i + first] * f0 + s0;
        target[i + 1] = (float)run[i + 1] * f1 + s1;
        target[i + 2] = (float)run[i + last] * f2 + s2;
    }
}

static void put_gray(const ek_picture *p, const uint8_t *restrict run, int64_t count,
                     float *restrict target) {
    const float factor = p->factor[0], shift = p->shift[0];
    for (int64_t i = 0; i < count; i++)
        target[i] = (float)run[i] * factor + shift;
}

static void put_mapped(const ek_picture *p, const uint8_t *restrict run, int64_t count,
                       uint8_t *restrict target, int64_t plane) {
    int64_t step = p->planes ? 1 : p->channels;
    for (int64_t c = 0; c < p->channels; c++) {
        const uint8_t *from = run + (p->reversed ? p->channels - 1 - c : c);
        const uint8_t *table = p->table + 256 * c;
        uint8_t *to = target + c * plane;
        for (int64_t i = 0; i < count; i++)
            to[step * i] = table[from[p->channels * i]];
    }
}

int ek_fit_picture(const ek_picture *p, void *input) {
    int64_t sizes[] = {p->width, p->height, p->across, p->down, p->to_width, p->to_height};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] < 1)
            return -1;
    if (p->channels != 1 && p->channels != COLORS)
        return -1;
    uint8_t run[RUN * COLORS];
    int64_t plane = p->planes ? p->to_width * p->to_height : 1;
    int64_t step = p->planes ? 1 : p->channels;
    for (int64_t row = 0; row < p->to_height; row++)
        for (int64_t column = 0; column < p->to_width; column += RUN) {
            int64_t count = p->to_width - column < RUN ? p->to_width - column : RUN;
            int64_t at = step * (row * p->to_width + column);
            gather(p, row, column, count, run);
            if (p->channels == 1)
                gray(run, count);
            if (p->table)
                put_mapped(p, run, count, (uint8_t *)input + at, plane);
            else if (p->channels == 1)
                put_gray(p, run, count, (float *)input + at);
            else if (p->planes)
                put_planes(p, run, count, (float *)input + at, plane);
            else
                put_pixels(p, run, count, (float *)input + at);
        }
    return 0;
}
