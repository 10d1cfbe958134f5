/* Poses of an image from heatmaps and offsets. Compile-time parameters: NAME, EK_SIMD.
 *
 * Local maxima are roots, processed best first; from each, the skeleton is followed along the
 * offsets. Positions are clamped so that no value, not even NaN, points outside the image.
 * Following offsets repeatedly amplifies rounding errors where offsets are steep, so products and
 * sums are rounded separately, as in the reference. */
#include <math.h>
#include "../kernel.h"
#include "../elementwise/exp.h"

#pragma STDC FP_CONTRACT OFF

#define EK_EDGES 16

/* A local maximum and its position in the heatmaps. */
typedef struct {
    float score;
    int32_t place;
} ek_root;
_Static_assert(sizeof(ek_root) == EK_ROOT_BYTES, "must match the host");

/* Positions are in cells. */
typedef struct {
    float y[EK_KEYPOINTS], x[EK_KEYPOINTS], score[EK_KEYPOINTS];
    float mean;
    int32_t order;
} ek_pose;
_Static_assert(sizeof(ek_pose) == EK_POSE_BYTES, "must match the host");

typedef struct {
    long h, w;
    long keep;                /* capacity for poses */
    float least;              /* minimum score of a pose */
    float logit;              /* minimum logit of a root */
    float near;               /* squared distance, in cells, below which two keypoints count as
                                 one */
    float cell;               /* cells per pixel */
    float stride;             /* pixels per cell */
    const void *heat;         /* [h, w, 17] */
    const void *near_offsets; /* [h, w, 2, 17] */
    const void *edge_offsets; /* [h, w, 2, 2, 16] */
    void *y;                  /* [keep, 17, 2] */
    void *scores;             /* [keep, 17] */
    void *means;              /* [keep] */
    void *count;              /* [1] */
    void *roots;              /* [h, w, 17] */
    void *poses;              /* [keep] */
} ek_poses_args;

#define STEPS 5 /* iterations of following short offsets */

static const uint8_t EDGES[EK_EDGES][2] = {
    {0, 1},   {1, 3},   {0, 2}, {2, 4}, {0, 5},  {5, 7},  {7, 9},   {5, 11},
    {11, 13}, {13, 15}, {0, 6}, {6, 8}, {8, 10}, {6, 12}, {12, 14}, {14, 16},
};

typedef struct {
    float y, x;
} point;

static void rise(ek_root *x, long gap, ek_root v) {
    for (long above; gap && x[above = (gap - 1) / 2].score < v.score; gap = above)
        x[gap] = x[above];
    x[gap] = v;
}

/* Removes the largest of n from a heap: the gap sinks to a leaf along the larger child (the second
 * if equal), and the last entry rises from there. */
static ek_root take(ek_root *x, long n) {
    const ek_root top = x[0], last = x[--n];
    long gap = 0, below = 2;
    for (; below < n; gap = below, below = 2 * below + 2) {
        below -= x[below].score < x[below - 1].score;
        x[gap] = x[below];
    }
    if (n && below == n) {
        x[gap] = x[below - 1];
        gap = below - 1;
    }
    if (n)
        rise(x, gap, last);
    return top;
}

static int is_largest(const ek_poses_args *g, const float *heat, long y, long x) {
    const float own = *heat;
    for (long dy = y > 0 ? -1 : 0; dy <= (y + 1 < g->h); dy++)
        for (long dx = x > 0 ? -1 : 0; dx <= (x + 1 < g->w); dx++)
            if (heat[(dy * g->w + dx) * EK_KEYPOINTS] > own)
                return 0;
    return 1;
}

static long find_roots(const ek_poses_args *g, ek_root *to) {
    const float *heat = g->heat;
    long count = 0, place = 0;
    for (long y = 0; y < g->h; y++)
        for (long x = 0; x < g->w; x++)
            for (long k = 0; k < EK_KEYPOINTS; k++, place++)
                if (heat[place] >= g->logit && is_largest(g, heat + place, y, x)) {
                    rise(to, count, (ek_root){heat[place], (int32_t)place});
                    count++;
                }
    return count;
}

static float inside(float v, long size) {
    const float end = (float)(size - 1);
    return v >= 0 ? (v < end ? v : end) : 0;
}

static point moved(const ek_poses_args *g, point at, float dy, float dx) {
    return (point){inside(at.y + dy, g->h), inside(at.x + dx, g->w)};
}

/* Bilinear interpolation of values times `factor`. */
static float sample(const ek_poses_args *g, const float *v, long channels, point at, float factor) {
    const long top = (long)at.y, left = (long)at.x;
    const float fy = at.y - (float)top, fx = at.x - (float)left;
    const float *a = v + (top * g->w + left) * channels, *b = a + (fx > 0 ? channels : 0);
    const long down = fy > 0 ? g->w * channels : 0;
    const float above = (1 - fx) * (*a * factor) + fx * (*b * factor);
    const float below = (1 - fx) * (a[down] * factor) + fx * (b[down] * factor);
    return (1 - fy) * above + fy * below;
}

/* Moves from a keypoint along an edge's offsets to another keypoint. */
static point displaced(const ek_poses_args *g, point at, long edge, long keypoint) {
    const float *v = (const float *)g->edge_offsets + edge;
    const float *w = (const float *)g->near_offsets + keypoint;
    float dy = sample(g, v, 4 * EK_EDGES, at, g->cell);
    float dx = sample(g, v + EK_EDGES, 4 * EK_EDGES, at, g->cell);
    at = moved(g, at, dy, dx);
    for (int i = 0; i < STEPS; i++) {
        dy = sample(g, w, 2 * EK_KEYPOINTS, at, g->cell);
        dx = sample(g, w + EK_KEYPOINTS, 2 * EK_KEYPOINTS, at, g->cell);
        at = moved(g, at, dy, dx);
    }
    return at;
}

static int is_near(const ek_poses_args *g, const ek_pose *pose, long k, point at) {
    const float dy = pose->y[k] - at.y, dx = pose->x[k] - at.x;
    return dy * dy + dx * dx <= g->near;
}

/* Mean of all scores, with hidden ones as 0, summed from the largest down. */
static float mean_of(const float *scores, const uint8_t *hidden) {
    uint8_t order[EK_KEYPOINTS];
    float sum = 0;
    for (int i = 0; i < EK_KEYPOINTS; i++) {
        int at = i;
        for (; at > 0 && scores[order[at - 1]] < scores[i]; at--)
            order[at] = order[at - 1];
        order[at] = (uint8_t)i;
    }
    for (int i = 0; i < EK_KEYPOINTS; i++)
        sum += hidden[order[i]] ? 0 : scores[order[i]];
    return sum / EK_KEYPOINTS;
}

/* Completes a pose from its known keypoint `root`. */
static void follow(const ek_poses_args *g, ek_pose *pose, long root) {
    uint32_t known = 1u << root;
    while (known != (1u << EK_KEYPOINTS) - 1)
        for (int e = 0; e < EK_EDGES; e++) {
            const int parent = EDGES[e][0], child = EDGES[e][1];
            const int forward = known >> parent & 1, from = forward ? parent : child;
            const int to = forward ? child : parent;
            if (!(known >> from & 1) || known >> to & 1)
                continue;
            const point at = {pose->y[from], pose->x[from]};
            const point next = displaced(g, at, forward ? e : e + 2 * EK_EDGES, to);
            pose->y[to] = next.y, pose->x[to] = next.x;
            known |= 1u << to;
        }
    for (int k = 0; k < EK_KEYPOINTS; k++) {
        const point at = {pose->y[k], pose->x[k]};
        const float odds = sample(g, (const float *)g->heat + k, EK_KEYPOINTS, at, 1);
        pose->score[k] = 1 / (1 + ek_expf(-odds));
    }
}

/* Poses in the order of their roots. */
static long find_poses(const ek_poses_args *g, ek_pose *poses) {
    static const uint8_t none[EK_KEYPOINTS];
    const float *near_offsets = g->near_offsets;
    ek_root *roots = g->roots;
    long count = 0, left = find_roots(g, roots);
    for (; count < g->keep && left; left--) {
        const long place = take(roots, left).place, k = place % EK_KEYPOINTS;
        const long cell = place / EK_KEYPOINTS;
        const float *offset = near_offsets + cell * 2 * EK_KEYPOINTS + k;
        const point grid = {(float)(cell / g->w), (float)(cell % g->w)};
        const point at = moved(g, grid, *offset * g->cell, offset[EK_KEYPOINTS] * g->cell);
        long known = 0;
        while (known < count && !is_near(g, poses + known, k, at))
            known++;
        if (known < count)
            continue;
        ek_pose *pose = poses + count;
        pose->y[k] = at.y, pose->x[k] = at.x;
        follow(g, pose, k);
        pose->mean = mean_of(pose->score, none);
        count += pose->mean >= g->least;
    }
    return count;
}

/* poses[i].order: index of the pose with the i-th best mean. */
static void sort(ek_pose *poses, long count) {
    for (long i = 0; i < count; i++) {
        long at = i;
        for (; at > 0 && poses[poses[at - 1].order].mean < poses[i].mean; at--)
            poses[at].order = poses[at - 1].order;
        poses[at].order = (int32_t)i;
    }
}

/* Recomputes means without the keypoints that a better pose already has. */
static void rescore(const ek_poses_args *g, ek_pose *poses, long count) {
    for (long i = 0; i < count; i++) {
        ek_pose *pose = poses + poses[i].order;
        uint8_t hidden[EK_KEYPOINTS];
        for (long k = 0; k < EK_KEYPOINTS; k++) {
            const point at = {pose->y[k], pose->x[k]};
            hidden[k] = 0;
            for (long j = 0; j < i && !hidden[k]; j++)
                hidden[k] = (uint8_t)is_near(g, poses + poses[j].order, k, at);
        }
        pose->mean = mean_of(pose->score, hidden);
    }
}

/* A single task. */
void NAME(const void *args, long begin, long end) {
    const ek_poses_args *g = args;
    ek_pose *poses = g->poses;
    float *y = g->y, *scores = g->scores, *means = g->means;
    (void)begin, (void)end;
    const long count = find_poses(g, poses);
    sort(poses, count);
    rescore(g, poses, count);
    sort(poses, count);
    memset(y, 0, (size_t)g->keep * EK_KEYPOINTS * 2 * sizeof *y);
    memset(scores, 0, (size_t)g->keep * EK_KEYPOINTS * sizeof *scores);
    memset(means, 0, (size_t)g->keep * sizeof *means);
    long made = 0;
    for (; made < count && poses[poses[made].order].mean >= g->least; made++) {
        const ek_pose *pose = poses + poses[made].order;
        for (long k = 0; k < EK_KEYPOINTS; k++) {
            *y++ = pose->y[k] * g->stride;
            *y++ = pose->x[k] * g->stride;
        }
        memcpy(scores + made * EK_KEYPOINTS, pose->score, sizeof pose->score);
        means[made] = pose->mean;
    }
    *(float *)g->count = (float)made;
}
