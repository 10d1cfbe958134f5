/* Rotated boxes of the connected areas of a map. Compile-time parameters: NAME, EK_SIMD. */
#include <math.h>
#include <string.h>
#include "../kernel.h"

#define BOX 7
#define CORNERS 4
#define FIELDS (BOX + 3 * CORNERS)

typedef struct {
    int32_t x, y; /* a corner between pixels */
} point;

typedef struct {
    int32_t left, right; /* right is excluded */
} span;

typedef struct {
    long h, w, keep, least;
    float threshold, sure, grow;
    const float *x; /* [h, w] */
    float *y;       /* [keep, FIELDS] */
    int32_t *waiting;
    uint8_t *seen; /* h x w of both */
    int32_t *rows; /* h spans */
    int32_t *hull; /* 2 x (h + 1) points */
} ek_area_boxes_args;

/* A rectangle along (x, y), `size` long: products of its points with that vector and its normal. */
typedef struct {
    int64_t x, y, low, high, first, last;
    double size;
} rectangle;

/* Finds the area of pixel `first`, marks its pixels and gives its spans in rows *top to *bottom,
 * which is excluded. */
static void area_of(const ek_area_boxes_args *a, long first, long *top, long *bottom) {
    span *rows = (span *)a->rows;
    long count = 0;
    a->waiting[count++] = (int32_t)first;
    a->seen[first] = 1;
    *top = *bottom = first / a->w; /* no pixel is above the first */
    while (count) {
        const long at = a->waiting[--count], y = at / a->w, x = at % a->w;
        for (; *bottom <= y; ++*bottom)
            rows[*bottom] = (span){(int32_t)a->w, 0};
        span *row = rows + y;
        row->left = (int32_t)ek_min(row->left, x);
        row->right = (int32_t)ek_max(row->right, x + 1);
        for (long ny = ek_max(y - 1, 0); ny < ek_min(y + 2, a->h); ny++)
            for (long nx = ek_max(x - 1, 0); nx < ek_min(x + 2, a->w); nx++) {
                const long next = ny * a->w + nx;
                if (a->seen[next] || !(a->x[next] > a->threshold))
                    continue;
                a->seen[next] = 1;
                a->waiting[count++] = (int32_t)next;
            }
    }
}

/* Appends a point of a hull; points from `fixed` on that are no corners any more go. */
static long append(point *hull, long count, long fixed, point next) {
    while (count >= fixed + 2) {
        const point a = hull[count - 2], b = hull[count - 1];
        if ((int64_t)(b.x - a.x) * (next.y - b.y) > (int64_t)(b.y - a.y) * (next.x - b.x))
            break;
        count--;
    }
    hull[count] = next;
    return count + 1;
}

/* The convex hull of an area, clockwise from its upper right corner. */
static long hull_of(const ek_area_boxes_args *a, long top, long bottom) {
    const span *rows = (const span *)a->rows;
    point *hull = (point *)a->hull;
    long count = 0;
    for (long y = top; y <= bottom; y++) {
        const int32_t above = y > top ? rows[y - 1].right : 0;
        const int32_t below = y < bottom ? rows[y].right : 0;
        count = append(hull, count, 0, (point){above > below ? above : below, (int32_t)y});
    }
    const long right = count;
    for (long y = bottom; y >= top; y--) {
        const int32_t above = y > top ? rows[y - 1].left : (int32_t)a->w;
        const int32_t below = y < bottom ? rows[y].left : (int32_t)a->w;
        count = append(hull, count, right, (point){above < below ? above : below, (int32_t)y});
    }
    return count;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static rectangle along(const point *hull, long count, point from, point to) {
    rectangle r = {.x = to.x - from.x, .y = to.y - from.y};
    r.low = r.first = INT64_MAX;
    r.high = r.last = -INT64_MAX;
    for (long i = 0; i < count; i++) {
        const int64_t forward = hull[i].x * r.x + hull[i].y * r.y;
        const int64_t across = hull[i].y * r.x - hull[i].x * r.y;
        r.low = least(r.low, forward), r.high = -least(-r.high, -forward);
        r.first = least(r.first, across), r.last = -least(-r.last, -across);
    }
    r.size = sqrt((double)(r.x * r.x + r.y * r.y));
    return r;
}

/* The smallest rectangle around a hull; one of its sides is a side of the hull. */
static rectangle smallest(const point *hull, long count) {
    rectangle best = {0};
    double fewest = INFINITY;
    for (long i = 0; i < count; i++) {
        const rectangle r = along(hull, count, hull[i], hull[i + 1 < count ? i + 1 : 0]);
        const double pixels =
            (double)(r.high - r.low) * (double)(r.last - r.first) / (double)(r.x * r.x + r.y * r.y);
        if (pixels < fewest)
            best = r, fewest = pixels;
    }
    return best;
}

/* Corners [CORNERS][2] of a rectangle whose sides are moved outwards by `away`. */
static void corners_of(const rectangle *r, double away, double (*corners)[2]) {
    const double x = (double)r->x / r->size, y = (double)r->y / r->size;
    const double low = (double)r->low / r->size - away, high = (double)r->high / r->size + away;
    const double first = (double)r->first / r->size - away;
    const double last = (double)r->last / r->size + away;
    for (long i = 0; i < CORNERS; i++) {
        const double forward = i == 1 || i == 2 ? high : low, across = i < 2 ? first : last;
        corners[i][0] = forward * x - across * y;
        corners[i][1] = forward * y + across * x;
    }
}

/* Left, top, right and bottom of corners, within the map. */
static void bounds_of(const ek_area_boxes_args *a, const double (*corners)[2], double *bounds) {
    for (long axis = 0; axis < 2; axis++) {
        double low = INFINITY, high = -INFINITY;
        for (long i = 0; i < CORNERS; i++) {
            low = fmin(low, corners[i][axis]), high = fmax(high, corners[i][axis]);
        }
        bounds[axis] = fmax(low, 0);
        bounds[2 + axis] = fmin(high, (double)(axis ? a->h : a->w));
    }
}

/* The mean of the pixels whose centers are in a rectangle. */
static float mean_of(const ek_area_boxes_args *a, const rectangle *r) {
    double corners[CORNERS][2], bounds[4], sum = 0;
    corners_of(r, 1, corners); /* rounded: a pixel more */
    bounds_of(a, (const double (*)[2])corners, bounds);
    long count = 0;
    for (long y = (long)bounds[1]; y < (long)bounds[3]; y++)
        for (long x = (long)bounds[0]; x < (long)bounds[2]; x++) {
            const int64_t forward = (2 * x + 1) * r->x + (2 * y + 1) * r->y;
            const int64_t across = (2 * y + 1) * r->x - (2 * x + 1) * r->y;
            if (forward < 2 * r->low || forward > 2 * r->high || across < 2 * r->first ||
                across > 2 * r->last)
                continue;
            sum += (double)a->x[y * a->w + x];
            count++;
        }
    return (float)(sum / (double)count);
}

/* Inserts a row among the `count` best; returns how many there are then. */
static long insert(const ek_area_boxes_args *a, long count, const rectangle *r, float score) {
    long place = count;
    while (place > 0 && a->y[(place - 1) * FIELDS + 2] < score)
        place--;
    if (place == a->keep)
        return count;
    count = ek_min(count + 1, a->keep);
    float *row = a->y + place * FIELDS;
    for (long i = (count - place) * FIELDS - 1; i >= FIELDS; i--)
        row[i] = row[i - FIELDS];
    const double length = (double)(r->high - r->low) / r->size;
    const double width = (double)(r->last - r->first) / r->size;
    double corners[CORNERS][2], bounds[4];
    corners_of(r, (double)a->grow * length * width / (length + width) / 2, corners);
    bounds_of(a, (const double (*)[2])corners, bounds);
    row[0] = row[1] = 0;
    row[2] = score;
    for (long i = 0; i < 4; i++)
        row[3 + i] = (float)bounds[i];
    for (long i = 0; i < CORNERS; i++) {
        row[BOX + 3 * i] = (float)corners[i][0];
        row[BOX + 3 * i + 1] = (float)corners[i][1];
        row[BOX + 3 * i + 2] = 1;
    }
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
        long top, bottom;
        area_of(a, first, &top, &bottom);
        const rectangle r = smallest((const point *)a->hull, hull_of(a, top, bottom));
        if ((double)least(r.high - r.low, r.last - r.first) < (double)a->least * r.size)
            continue;
        const float score = mean_of(a, &r);
        if (score >= a->sure)
            count = insert(a, count, &r, score);
    }
}
