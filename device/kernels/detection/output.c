/* Detections of an image. Compile-time parameters: NAME, EK_SIMD.
 *
 * Class by class, or across classes, collects the scores above the threshold, sorts the best and
 * drops those that overlap a better one too much. Then selects the best over all classes. */
#include "../kernel.h"

/* One box's score for one class. */
typedef struct {
    float score;
    int32_t label, box;
} ek_candidate;
_Static_assert(sizeof(ek_candidate) == EK_CANDIDATE_BYTES, "must match the host");

typedef struct {
    long n, classes;    /* boxes per image and scores per box */
    long locations;     /* boxes per location: 1, or one per class */
    long background;    /* index of the background class, or -1 */
    long single;        /* a box is only of the class of its best score */
    long across;        /* such boxes compete across classes */
    long top_k;         /* candidates per class */
    long keep;          /* output rows per image */
    long entries;       /* capacity for candidates per image */
    float threshold;    /* minimum score, exclusive */
    float overlap;      /* maximum overlap of two boxes */
    const void *boxes;  /* [images, n, locations, 4] */
    const void *scores; /* [images, classes, n] */
    void *y;            /* [images, keep, 7] */
    void *candidates;   /* [images, entries] */
} ek_detection_args;

#define FIELDS 7
#define BLOCK 64

static int better(ek_candidate a, ek_candidate b) {
    if (a.score != b.score)
        return a.score > b.score;
    return a.label != b.label ? a.label < b.label : a.box < b.box;
}

static int by_label(ek_candidate a, ek_candidate b) {
    return a.label != b.label ? a.label < b.label : better(a, b);
}

typedef int (*ek_order)(ek_candidate, ek_candidate);

/* Inserts v at p in a heap of n, sifting down so that the entry that leaves first is on top. */
static void sift(ek_candidate *x, long n, long p, ek_candidate v, ek_order first) {
    for (long child; (child = 2 * p + 1) < n; p = child) {
        if (child + 1 < n && first(x[child], x[child + 1]))
            child++;
        if (!first(v, x[child]))
            break;
        x[p] = x[child];
    }
    x[p] = v;
}

static void sort(ek_candidate *x, long n, ek_order first) {
    for (long p = n / 2 - 1; p >= 0; p--)
        sift(x, n, p, x[p], first);
    for (long last = n - 1; last > 0; last--) {
        ek_candidate v = x[last];
        x[last] = x[0];
        sift(x, last, 0, v, first);
    }
}

static int any_above(const float *x, long n, float threshold) {
    int found = 0;
    for (long i = 0; i < n; i++)
        found |= x[i] > threshold;
    return found;
}

/* Whether no other class has a better score of box i, of equal ones no lower class. */
static int is_best(const ek_detection_args *a, const float *scores, long i, long label) {
    const float own = scores[label * a->n + i];
    for (long c = 0; c < a->classes; c++) {
        const float other = scores[c * a->n + i];
        if (c != a->background && (other > own || (other == own && c < label)))
            return 0;
    }
    return 1;
}

static long collect(const ek_detection_args *a, const float *scores, long label, ek_candidate *to) {
    const float *own = scores + label * a->n;
    long count = 0;
    for (long from = 0; from < a->n; from += BLOCK) {
        long end = ek_min(from + BLOCK, a->n);
        if (!any_above(own + from, end - from, a->threshold))
            continue;
        for (long i = from; i < end; i++)
            if (own[i] > a->threshold && (!a->single || is_best(a, scores, i, label)))
                to[count++] = (ek_candidate){own[i], (int32_t)label, (int32_t)i};
    }
    return count;
}

static inline float side(float low, float high) {
    return high > low ? high - low : 0;
}

static inline float area(const float *box) {
    return side(box[0], box[2]) * side(box[1], box[3]);
}

static int overlaps(const float *a, const float *b, float limit) {
    float width = side(a[0] > b[0] ? a[0] : b[0], a[2] < b[2] ? a[2] : b[2]);
    float height = side(a[1] > b[1] ? a[1] : b[1], a[3] < b[3] ? a[3] : b[3]);
    float shared = width * height, sum = area(a) + area(b);
    float both = sum - shared;
    return shared > limit * both;
}

static const float *box_of(const ek_detection_args *a, const float *boxes, ek_candidate c) {
    return boxes + ((long)c.box * a->locations + (a->locations > 1 ? c.label : 0)) * 4;
}

/* Non-maximum suppression of n candidates in place; returns the number kept, best first. */
static long suppress(const ek_detection_args *a, const float *boxes, ek_candidate *x, long n) {
    long kept = 0;
    sort(x, n, better);
    n = ek_min(n, a->top_k);
    for (long i = 0; i < n; i++) {
        const float *own = box_of(a, boxes, x[i]);
        long j = 0;
        while (j < kept && !overlaps(own, box_of(a, boxes, x[j]), a->overlap))
            j++;
        if (j == kept)
            x[kept++] = x[i];
    }
    return kept;
}

static void image(const ek_detection_args *a, long at) {
    const float *boxes = (const float *)a->boxes + at * a->n * a->locations * 4;
    const float *scores = (const float *)a->scores + at * a->classes * a->n;
    float *y = (float *)a->y + at * a->keep * FIELDS;
    ek_candidate *found = (ek_candidate *)a->candidates + at * a->entries;
    long count = 0;
    for (long c = 0; c < a->classes; c++) {
        if (c == a->background)
            continue;
        ek_candidate *own = found + count;
        long n = collect(a, scores, c, own);
        count += a->across ? n : suppress(a, boxes, own, n);
    }
    if (a->across)
        count = suppress(a, boxes, found, count);
    else if (count > a->keep)
        sort(found, count, better);
    if (count > a->keep || a->across) {
        count = ek_min(count, a->keep);
        sort(found, count, by_label);
    }
    for (long i = 0; i < count; i++, y += FIELDS) {
        y[0] = (float)at, y[1] = (float)found[i].label, y[2] = found[i].score;
        memcpy(y + 3, box_of(a, boxes, found[i]), 4 * sizeof(float));
    }
    for (long i = 0; i < (a->keep - count) * FIELDS; i++)
        y[i] = -1;
}

/* Task: one image. */
void NAME(const void *args, long begin, long end) {
    for (long t = begin; t < end; t++)
        image(args, t);
}
