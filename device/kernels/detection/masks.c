/* Masks of detected objects: sums of maps. Compile-time parameters: NAME, EK_SIMD. */
#include "../kernel.h"

#define FIELDS 7
#define BLOCK 64

typedef struct {
    long maps, h, w;
    float across, down, steps, least;
    const float *rows; /* [n, FIELDS + maps] */
    const float *x;    /* [maps, h, w] */
    int8_t *y;         /* [n, h, w] */
} ek_masks_args;

static long clamped(float at, long count) {
    return at > 0 ? (at < (float)count ? (long)at : count) : 0;
}

/* The first cell of a range, and the one behind the last. NaN is no cell. */
static long first_of(float low, float size, long count) {
    const float at = low / size;
    return at == at ? ek_max(clamped(at, count) - 1, 0) : count;
}

static long end_of(float high, float size, long count) {
    const float at = high / size;
    return at == at ? ek_min(clamped(at, count) + 2, count) : 0;
}

/* The mask of a row in `count` cells of at most BLOCK, which begin at cell `at`. Sums are in f64:
 * so the order of rounding is the same everywhere. */
static void sum_block(const ek_masks_args *a, const float *weights, long at, long count,
                      int8_t *y) {
    double sums[BLOCK] = {0};
    for (long k = 0; k < a->maps; k++) {
        const float *x = a->x + k * a->h * a->w + at;
        const double weight = (double)weights[k];
        for (long i = 0; i < count; i++)
            sums[i] += weight * (double)x[i];
    }
    for (long i = 0; i < count; i++) {
        /* Within a byte before it is an integer; NaN is -128. */
        const double scaled = sums[i] * (double)a->steps + 0.5;
        const double low = scaled > -128 ? scaled : -128, kept = low < 127 ? low : 127;
        /* Through f32, which may round up to the next integer: QEMU 7.2 ends at vectors of f64 that
         * become integers. */
        const int whole = (int)(float)kept;
        y[at + i] = (int8_t)(whole - ((double)whole > kept));
    }
}

/* Task: one row. */
void NAME(const void *args, long begin, long end) {
    const ek_masks_args *a = args;
    for (long t = begin; t < end; t++) {
        const float *row = a->rows + t * (FIELDS + a->maps);
        int8_t *y = a->y + t * a->h * a->w;
        memset(y, -128, (size_t)(a->h * a->w));
        if (!(row[1] >= 0 && row[2] >= a->least))
            continue;
        const long left = first_of(row[3], a->across, a->w);
        const long right = end_of(row[5], a->across, a->w);
        const long bottom = end_of(row[6], a->down, a->h);
        for (long r = first_of(row[4], a->down, a->h); r < bottom; r++)
            for (long c = left; c < right; c += BLOCK)
                sum_block(a, row + FIELDS, r * a->w + c, ek_min(BLOCK, right - c), y);
    }
}
