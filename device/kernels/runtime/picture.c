/* ek_fit_picture: letterbox, color order, normalization and layout in one pass over the input. */
#include "picture.h"
#include <stdlib.h>
#include <string.h>

enum {
    RUN = 256, /* pixels at a time, which stay in the L1 cache */
    COLORS = 3,
    WEIGHT_BITS = 22,
};

/* For each pixel `from` to `end` of a resized edge: `count` weights, which sum to 1 <<
 * WEIGHT_BITS, of the pixels of the picture from `first` on. */
typedef struct {
    int64_t from, end, most; /* most: room for weights of a pixel */
    int64_t *first, *count;
    int32_t *weights;
} edge_filter;

/* A picture whose visible part was resized across, rows from `top` on of `edge_filter` down. */
typedef struct {
    edge_filter across, down;
    int64_t top;
    uint8_t *rows;
} filtered;

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

/* Keys' cubic with a = -1/2, or a triangle. */
static double weight_at(ek_filter filter, double x) {
    x = x < 0 ? -x : x;
    if (filter == EK_LINEAR)
        return x < 1 ? 1 - x : 0;
    return x < 1 ? (1.5 * x - 2.5) * x * x + 1 : x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
}

/* The weights of the part that is visible: the resized edge of `size` pixels, made of `pixels`,
 * begins at `start` of an input of `room` pixels. Returns 0 without memory. */
static int make_edge(edge_filter *e, ek_filter filter, int64_t pixels, int64_t size, int64_t start,
                     int64_t room) {
    const double scale = (double)pixels / (double)size, wide = scale < 1 ? 1 : scale;
    const double reach = (filter == EK_LINEAR ? 1 : 2) * wide;
    e->from = start < 0 ? -start : 0;
    e->end = start + size < room ? size : room - start;
    const int64_t total = e->end > e->from ? e->end - e->from : 0;
    e->most = 2 * ((int64_t)reach + 1) + 1;
    e->first = calloc((size_t)total + 1, 2 * sizeof *e->first);
    e->weights = calloc((size_t)(total * e->most) + 1, sizeof *e->weights);
    double *real = calloc((size_t)e->most, sizeof *real);
    const int made = e->first && e->weights && real;
    e->count = made ? e->first + total : NULL;
    for (int64_t i = 0; made && i < total; i++) {
        const double center = ((double)(e->from + i) + 0.5) * scale;
        const double low = center - reach + 0.5, high = center + reach + 0.5;
        const int64_t first = low < 0 ? 0 : (int64_t)low;
        const int64_t last = high > (double)pixels ? pixels : (int64_t)high;
        double sum = 0;
        for (int64_t k = first; k < last; k++)
            sum += real[k - first] = weight_at(filter, ((double)k - center + 0.5) * (1 / wide));
        for (int64_t k = 0; k < last - first; k++) {
            const double share = real[k] / sum * (1 << WEIGHT_BITS);
            e->weights[i * e->most + k] = (int32_t)(share < 0 ? share - 0.5 : share + 0.5);
        }
        e->first[i] = first, e->count[i] = last - first;
    }
    free(real);
    return made;
}

static uint8_t byte_of(int32_t sum) {
    sum >>= WEIGHT_BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

static const int32_t HALF = 1 << (WEIGHT_BITS - 1);

/* `count` pixels to one. */
static void blend(const uint8_t *from, const int32_t *weights, int64_t count, uint8_t *to) {
    int32_t red = HALF, green = HALF, blue = HALF;
    for (int64_t k = 0; k < count; k++) {
        red += from[COLORS * k] * weights[k];
        green += from[COLORS * k + 1] * weights[k];
        blue += from[COLORS * k + 2] * weights[k];
    }
    to[0] = byte_of(red), to[1] = byte_of(green), to[2] = byte_of(blue);
}

static void free_filtered(filtered *f) {
    free(f->across.first), free(f->across.weights);
    free(f->down.first), free(f->down.weights);
    free(f->rows);
}

/* Resizes the visible part across. Returns 0 without memory. */
static int make_filtered(filtered *f, const ek_picture *p, ek_filter filter) {
    edge_filter *x = &f->across, *y = &f->down;
    if (!make_edge(x, filter, p->width, p->across, p->left, p->to_width) ||
        !make_edge(y, filter, p->height, p->down, p->top, p->to_height))
        return 0;
    const int64_t columns = x->end - x->from, lines = y->end - y->from;
    if (columns < 1 || lines < 1)
        return 1;
    f->top = y->first[0];
    const int64_t rows = y->first[lines - 1] + y->count[lines - 1] - f->top;
    f->rows = malloc((size_t)(rows * columns * COLORS));
    for (int64_t row = 0; f->rows && row < rows; row++) {
        const uint8_t *from = p->pixels + (f->top + row) * p->stride;
        uint8_t *to = f->rows + row * columns * COLORS;
        if (p->across == p->width)
            memcpy(to, from + COLORS * x->from, (size_t)(COLORS * columns));
        else
            for (int64_t i = 0; i < columns; i++)
                blend(from + COLORS * x->first[i], x->weights + i * x->most, x->count[i],
                      to + COLORS * i);
    }
    return f->rows != NULL;
}

/* Resizes rows of what was resized across. */
static void resize_down(const filtered *f, int is_same, int64_t row, int64_t column, int64_t count,
                        uint8_t *run) {
    const edge_filter *x = &f->across, *y = &f->down;
    const int64_t bytes = (x->end - x->from) * COLORS, i = row - y->from;
    const uint8_t *from = f->rows + (column - x->from) * COLORS;
    if (is_same) {
        memcpy(run, from + (row - f->top) * bytes, (size_t)(COLORS * count));
        return;
    }
    int32_t sums[RUN * COLORS];
    for (int64_t at = 0; at < COLORS * count; at++)
        sums[at] = HALF;
    from += (y->first[i] - f->top) * bytes;
    for (int64_t k = 0; k < y->count[i]; k++, from += bytes) {
        const int32_t weight = y->weights[i * y->most + k];
        for (int64_t at = 0; at < COLORS * count; at++)
            sums[at] += from[at] * weight;
    }
    for (int64_t at = 0; at < COLORS * count; at++)
        run[at] = byte_of(sums[at]);
}

/* Pixels `column` to `column` + `count` of a row of the input, as bytes of three colors: written to
 * `run`, or where the picture has them so. */
static const uint8_t *gather(const ek_picture *p, const filtered *f, int64_t row, int64_t column,
                             int64_t count, uint8_t *run) {
    int64_t from = p->left > column ? p->left : column, end = p->left + p->across;
    end = end < column + count ? end : column + count;
    row -= p->top;
    const int is_seen = row >= 0 && row < p->down && from < end;
    const int is_whole = is_seen && end - from == count;
    const int is_same = p->across == p->width && p->down == p->height;
    const uint8_t *own =
        is_seen && is_same ? p->pixels + row * p->stride + COLORS * (from - p->left) : NULL;
    if (is_whole && own && p->channels == COLORS && !p->table) /* a table reads it thrice */
        return own;
    if (!is_whole)
        memset(run, (int)p->fill, (size_t)(COLORS * count));
    uint8_t *target = run + COLORS * (from - column);
    if (own)
        memcpy(target, own, (size_t)(COLORS * (end - from)));
    else if (is_seen && f)
        resize_down(f, p->down == p->height, row, from - p->left, end - from, target);
    else if (is_seen)
        resize(p, row, from - p->left, end - from, target);
    return run;
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

static int is_possible(const ek_picture *p) {
    int64_t sizes[] = {p->width, p->height, p->across, p->down, p->to_width, p->to_height};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] < 1)
            return 0;
    return p->channels == 1 || p->channels == COLORS;
}

/* Writes a row of the input that is the same as another one. */
static void repeat(const ek_picture *p, int64_t row, int64_t other, void *input) {
    const int64_t size = p->table ? 1 : (int64_t)sizeof(float);
    const int64_t bytes = p->to_width * size * (p->planes ? 1 : p->channels);
    uint8_t *plane = input;
    for (int64_t c = 0; c < (p->planes ? p->channels : 1); c++, plane += bytes * p->to_height)
        memcpy(plane + row * bytes, plane + other * bytes, (size_t)bytes);
}

static void put(const ek_picture *p, const filtered *f, void *input) {
    uint8_t room[RUN * COLORS];
    int64_t plane = p->planes ? p->to_width * p->to_height : 1;
    int64_t step = p->planes ? 1 : p->channels;
    int64_t blank = -1; /* a row without the picture */
    for (int64_t row = 0; row < p->to_height; row++) {
        const int is_blank = row < p->top || row >= p->top + p->down;
        if (is_blank && blank >= 0) {
            repeat(p, row, blank, input);
            continue;
        }
        blank = is_blank ? row : blank;
        for (int64_t column = 0; column < p->to_width; column += RUN) {
            int64_t count = p->to_width - column < RUN ? p->to_width - column : RUN;
            int64_t at = step * (row * p->to_width + column);
            const uint8_t *run = gather(p, f, row, column, count, room);
            if (p->channels == 1)
                gray(room, count);
            if (p->table)
                put_mapped(p, run, count, (uint8_t *)input + at, plane);
            else if (p->channels == 1)
                put_gray(p, run, count, (float *)input + at);
            else if (p->planes)
                put_planes(p, run, count, (float *)input + at, plane);
            else
                put_pixels(p, run, count, (float *)input + at);
        }
    }
}

int ek_fit_picture(const ek_picture *p, void *input) {
    if (!is_possible(p))
        return -1;
    put(p, NULL, input);
    return 0;
}

int ek_filter_picture(const ek_picture *p, ek_filter filter, void *input) {
    filtered f = {0};
    if (!is_possible(p))
        return -1;
    const int made = make_filtered(&f, p, filter);
    if (made)
        put(p, &f, input);
    free_filtered(&f);
    return made ? 0 : -1;
}
