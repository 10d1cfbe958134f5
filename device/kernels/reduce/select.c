/* Non-maximum suppression: keeps boxes, in order, that do not overlap a box kept before; fills with
 * -1. Compile-time parameters: NAME, EK_SIMD, TI (type of indices), ABOVE: scores must exceed
 * `least`. */
#include "select.h"

#ifdef ABOVE
#define PASSES(score, least) ((score) > (least))
#else
#define PASSES(score, least) ((score) >= (least))
#endif

static inline float least_of(float a, float b) {
    return a < b ? a : b;
}

static inline float most_of(float a, float b) {
    return a > b ? a : b;
}

static float area_of(const float *box) {
    return (box[2] - box[0]) * (box[3] - box[1]);
}

/* Intersection over union; 0 if a box is empty. */
static float overlap_of(const float *a, const float *b) {
    float area = area_of(a), other = area_of(b);
    if (area <= 0 || other <= 0)
        return 0;
    float height = least_of(a[2], b[2]) - most_of(a[0], b[0]);
    float width = least_of(a[3], b[3]) - most_of(a[1], b[1]);
    float common = most_of(height, 0) * most_of(width, 0);
    return common / (area + other - common);
}

static int overlaps(const ek_select_args *a, const float *boxes, const TI *kept, long count,
                    const float *box) {
    for (long i = 0; i < count; i++)
        if (overlap_of(boxes + 4 * kept[i], box) > a->overlap)
            return 1;
    return 0;
}

/* Task: batch entry x class. */
void NAME(const void *args, long begin, long end) {
    const ek_select_args *a = args;
    for (long t = begin; t < end; t++) {
        const float *boxes = a->boxes + t / a->classes * a->n * 4, *scores = a->scores + t * a->n;
        const TI *order = (const TI *)a->order + t * a->n;
        TI *y = (TI *)a->y + t * a->limit;
        long count = 0;
        for (long i = 0; i < a->n && count < a->limit && PASSES(scores[i], a->least); i++) {
            TI box = order[i] < 0 ? 0 : order[i] >= a->n ? (TI)(a->n - 1) : order[i];
            if (!overlaps(a, boxes, y, count, boxes + 4 * box))
                y[count++] = box;
        }
        for (; count < a->limit; count++)
            y[count] = -1;
    }
}
