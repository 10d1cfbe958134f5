/* Boxes of the connected areas of a map. Compile-time parameters: NAME, EK_SIMD. */
#include <string.h>
#include "../kernel.h"

#define FIELDS 7

typedef struct {
    long h, w, keep, least;
    float threshold, sure, grow;
    const float *x; /* [h, w] */
    float *y;       /* [keep, FIELDS] */
    int32_t *waiting;
    uint8_t *seen; /* h x w of both */
} ek_area_boxes_args;

typedef struct {
    long left, top, right, bottom; /* right and bottom are excluded */
} box;

/* The box of the area of pixel `first`; marks its pixels. */
static box area_of(const ek_area_boxes_args *a, long first) {
    box found = {.left = a->w, .top = a->h};
    long count = 0;
    a->waiting[count++] = (int32_t)first;
    a->seen[first] = 1;
    while (count) {
        const long at = a->waiting[--count], y = at / a->w, x = at % a->w;
        found.left = ek_min(found.left, x), found.top = ek_min(found.top, y);
        found.right = ek_max(found.right, x + 1), found.bottom = ek_max(found.bottom, y + 1);
        for (long ny = ek_max(y - 1, 0); ny < ek_min(y + 2, a->h); ny++)
            for (long nx = ek_max(x - 1, 0); nx < ek_min(x + 2, a->w); nx++) {
                const long next = ny * a->w + nx;
                if (a->seen[next] || !(a->x[next] > a->threshold))
                    continue;
                a->seen[next] = 1;
                a->waiting[count++] = (int32_t)next;
            }
    }
    return found;
}

static float mean_of(const ek_area_boxes_args *a, box b) {
    double sum = 0;
    for (long y = b.top; y < b.bottom; y++)
        for (long x = b.left; x < b.right; x++)
            sum += (double)a->x[y * a->w + x];
    return (float)(sum / (double)((b.right - b.left) * (b.bottom - b.top)));
}

/* Inserts a row among the `count` best; returns how many there are then. */
static long insert(const ek_area_boxes_args *a, long count, box b, float score) {
    long place = count;
    while (place > 0 && a->y[(place - 1) * FIELDS + 2] < score)
        place--;
    if (place == a->keep)
        return count;
    count = ek_min(count + 1, a->keep);
    float *row = a->y + place * FIELDS;
    for (long i = (count - place) * FIELDS - 1; i >= FIELDS; i--)
        row[i] = row[i - FIELDS];
    const long width = b.right - b.left, height = b.bottom - b.top;
    const float away = a->grow * (float)(width * height) / (float)(width + height) / 2;
    row[0] = row[1] = 0;
    row[2] = score;
    row[3] = (float)b.left - away > 0 ? (float)b.left - away : 0;
    row[4] = (float)b.top - away > 0 ? (float)b.top - away : 0;
    row[5] = (float)b.right + away < (float)a->w ? (float)b.right + away : (float)a->w;
    row[6] = (float)b.bottom + away < (float)a->h ? (float)b.bottom + away : (float)a->h;
    return count;
}

/* One task: the whole map. */
void NAME(const void *args, long begin, long end) {
    (void)begin, (void)end;
    const ek_area_boxes_args *a = args;
    long count = 0;
    memset(a->seen, 0, (size_t)(a->h * a->w));
    for (long i = 0; i < a->keep * FIELDS; i++)
        a->y[i] = -1;
    for (long first = 0; first < a->h * a->w; first++) {
        if (a->seen[first] || !(a->x[first] > a->threshold))
            continue;
        const box b = area_of(a, first);
        if (ek_min(b.right - b.left, b.bottom - b.top) < a->least)
            continue;
        const float score = mean_of(a, b);
        if (score >= a->sure)
            count = insert(a, count, b, score);
    }
}
