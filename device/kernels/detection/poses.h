/* Poses of an image from heatmaps and offsets. */
#ifndef EK_DETECTION_POSES_H
#define EK_DETECTION_POSES_H
#include "../kernel.h"

#define EK_EDGES 16

/* A local maximum: its place in the heatmaps. */
typedef struct {
    float score;
    int32_t place;
} ek_root;
_Static_assert(sizeof(ek_root) == EK_ROOT_BYTES, "the host makes room for them");

/* Positions in cells. */
typedef struct {
    float y[EK_KEYPOINTS], x[EK_KEYPOINTS], score[EK_KEYPOINTS];
    float mean;
    int32_t order;
} ek_pose;
_Static_assert(sizeof(ek_pose) == EK_POSE_BYTES, "the host makes room for them");

typedef struct {
    long h, w;
    long keep;                /* poses that there is room for */
    float least;              /* score of a pose */
    float logit;              /* of a root */
    float near;               /* squared distance of two that are one, in cells */
    float cell;               /* of a pixel */
    float stride;             /* pixels of a cell */
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
#endif
