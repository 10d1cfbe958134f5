/* Selection of rotated boxes. Compile-time parameters: NAME, EK_SIMD. */
#include "../elementwise/log.h"
#include "../kernel.h"

#define FIELDS 6

typedef struct {
    long n, limit;
    float most, least;
    const float *boxes;  /* [n, FIELDS]: class, x, y, xx, yy, xy */
    const float *scores; /* [n] */
    int64_t *y;          /* [limit] */
} ek_rotated_args;

static float determinant(const float *box) {
    const float found = box[3] * box[4] - box[5] * box[5];
    return found > 0 ? found : 0;
}

/* Whether the Bhattacharyya distance of two boxes is at most `most`. Both parts of it are at least
 * 0: most boxes are too far apart to need the second. */
static int overlap(const float *a, const float *b, float most) {
    if (a[0] != b[0])
        return 0;
    const float across = a[1] - b[1], down = a[2] - b[2];
    const float xx = a[3] + b[3], yy = a[4] + b[4], xy = a[5] + b[5];
    const float both = xx * yy - xy * xy;
    const float apart = (xx * down * down + yy * across * across) / 4 - xy * across * down / 2;
    const float first = apart / both;
    if (!(first <= most))
        return 0;
    const float sizes = __builtin_sqrtf(determinant(a) * determinant(b));
    return first + ek_logf(both / (4 * sizes)) / 2 <= most;
}

/* One task: all boxes. */
void NAME(const void *args, long begin, long end) {
    (void)begin, (void)end;
    const ek_rotated_args *a = args;
    long count = 0;
    for (long i = 0; i < a->n && count < a->limit && a->scores[i] > a->least; i++) {
        long j = 0;
        while (j < i && !overlap(a->boxes + j * FIELDS, a->boxes + i * FIELDS, a->most))
            j++;
        if (j == i)
            a->y[count++] = i;
    }
    for (; count < a->limit; count++)
        a->y[count] = -1;
}
